-- Give the lease a new deadline, only while it is held: an expired lock is never taken again here.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms  3 a fence by which the owner believes to hold, nil if it knows none
-- Reply 'held <fence of the grant> <how many were drawn> <queued>'
--       {'not-held', view}
--
-- Closes the race between checking the owner and extending the key. The fence tells an owner that holds from one that was
-- granted the lock a second time, by a server that was rolled back: a failover to a replica that lags (core: C8).
-- allow-oom: a full server must not cost a holder its lease; PEXPIRE takes no memory. The flag also makes a replica
-- answer READONLY where a script without it would read stale data and answer 'not-held'.
local function extend(owner, ttl, believed)
  local value, kind = advance()
  if holds(owner, believed) then
    return hold(ttl)
  end
  return { 'not-held', view(value, kind) }
end
