-- Give the lease a new deadline, only while it is held: an expired lock is never taken again here.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms  3 whether to draw more fences for the holder as well
--       4 the fence under which the owner believes to hold, nil if it does not know
-- Reply 'held <fence of the grant, or the last one of those drawn> <queued>'
--       {'not-held', view}
--
-- Closes the race between checking the owner and extending the key. The fence tells an owner that holds from one that was
-- granted the lock a second time, by a server that was rolled back: a failover to a replica that lags (core: C8).
-- allow-oom: a full server must not cost a holder its lease; PEXPIRE takes no memory. The flag also makes a replica
-- answer READONLY where a script without it would read stale data and answer 'not-held'.

-- Whether the holder is who believes to hold under this fence. A fence that was lost proves nothing.
local function is_under(fence)
  return not fence or not last_fence() or granted <= fence and fence < last + FENCE_BLOCK
end

local function extend(owner, ttl, refill, fence)
  local value, kind = advance()
  if value == owner and is_under(fence) then
    return hold(ttl, refill, fence)
  end
  return { 'not-held', view(value, kind) }
end
