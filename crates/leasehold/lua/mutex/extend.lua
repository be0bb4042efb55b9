-- Give the lease a new deadline, only while it is held. An expired lock is never taken again here.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms  3 a fence by which the owner believes to hold, nil if it knows none
-- Reply 'held <fence of the grant> <how many were drawn> <queued>', then ' <number>' of a slot
--       {'not-held', view}
--
-- Closes the race between checking the owner and extending the key. The fence tells two grants to one owner apart.
-- A second one can follow a rollback of the server: a failover to a lagging replica (core: C8).
-- allow-oom: a full server must not cost a holder its lease, and PEXPIRE takes no memory. With this flag, a replica
-- also answers READONLY; without it, the script would read stale data there and answer 'not-held'.
local function extend(owner, ttl, believed)
  local value, kind = advance()
  local these = kind == 'several' and value
  if holds(owner, believed, these) then
    return hold(ttl, these)
  end
  -- A hold of its own by another grant, whoever holds beside it: a client of a quorum learns its number there.
  local own = these and holder == owner and these.view(call('ZRANK', QUEUE, owner))
  return { 'not-held', own or view(value, kind) }
end
