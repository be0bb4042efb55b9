#!lua flags=allow-oom
-- Give the lease a new deadline, only while it is held: an expired lock is never taken again here.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms
-- Reply {'held', fence, queued}
--       {'not-held', view}
--
-- Closes the race between checking the owner and extending the key.
-- allow-oom: a full server must not cost a holder its lease; PEXPIRE takes no memory. The flag also makes a replica
-- answer READONLY where a script without it would read stale data and answer 'not-held'.
local owner, ttl = ARGV[1], tonumber(ARGV[2])

local value, kind = advance()
if value == owner then
  return hold(ttl)
end
return { 'not-held', view(value, kind) }
