-- Give the lease a new deadline, only while it is held: an expired lock is never taken again here.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms  3 whether to draw more fences for the holder as well
-- Reply 'held <fence of the grant, or the last one of those drawn> <queued>'
--       {'not-held', view}
--
-- Closes the race between checking the owner and extending the key.
-- allow-oom: a full server must not cost a holder its lease; PEXPIRE takes no memory. The flag also makes a replica
-- answer READONLY where a script without it would read stale data and answer 'not-held'.
local function extend(owner, ttl, refill)
  local value, kind = advance()
  if value == owner then
    return hold(ttl, refill)
  end
  return { 'not-held', view(value, kind) }
end
