-- Take the mutex, report that this owner holds it already, or join the queue.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms  3 mode  4 how many fences to draw
--       5 '' ask once; '-' queue and poll; else queue and receive wakes on this channel
-- Reply 'held <fence of the grant> <how many were drawn> <queued>', then ' <number>' of a slot
--       {'busy', ahead, poll_after in ms, now in us, view}, see refuse.lua
--
-- Closes the race between taking a lock and learning it. Value, lease and fence are set in one step. If the owner
-- repeats the request after a lost reply, it finds its own token, and the reply is 'held' again.
local function acquire(owner, ttl, mode, wanted, channel)
  local value, kind = advance(owner)
  local these = kind == 'several' and value
  if these then
    these.find(owner)
  end
  if holder == owner then
    return hold(ttl, these)
  end
  if kind ~= 'none' and (not these or these.blocked or not these.admits(mode)) then
    return refuse(owner, ttl, mode, wanted, channel, value, kind)
  end
  -- The remaining waiters could not be told, and do not keep the caller from the lock.
  local queued = call('ZCARD', QUEUE)
  if mode ~= 'exclusive' then
    if not these then
      these = several()
      -- A user who may not do this could neither renew nor release what it gets.
      call('ZCOUNT', QUEUE, '1', '0')
      if mode ~= 'shared' then
        call('ZRANGEBYSCORE', QUEUE, '1', '0')
        call('HLEN', WAITERS)
      end
    end
    these.join(owner, ttl, mode, wanted)
    return held(these.rest(queued + 1))
  end
  grant(owner, ttl, next_fence(), wanted, queued > 0)
  return held(queued)
end
