-- Free the mutex or leave its queue, and grant the mutex to the next waiter.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 ms to keep the key for, 0 to free it now  3 a fence, as in extend.lua
-- Reply 'released'
--       {'not-held', view}
--
-- Closes two races: between checking the owner and deleting the key, and between deleting the key and granting it to
-- the first waiter. The key is never free while another client waits. An owner always gives up what it has. The reply
-- says whether that is what it believed to hold.
-- allow-oom: see extend.lua. A failed grant must not undo the release, hence `pcall`; waiters also poll.
local function release(owner, keep, believed)
  local value, kind = look()
  local these = kind == 'several' and value
  if TERMS and these then
    these.find(owner)
  end
  -- A node of a quorum may have raised the hold since (core: raised).
  local is_raised = TERMS and believed and holder == owner and believed < tonumber(fence)
  if these or kind == 'none' then
    value, kind = serve(nil, nil, nil, these)
    these = kind == 'several' and value
  end
  if these then
    these.find(owner)
  end
  if holder == owner then
    local as_believed = is_raised or holds(owner, believed, these)
    if keep ~= '0' and as_believed then
      if these then
        these.renew(keep)
        pcall(serve, nil, nil, nil, these)
      else
        call('PEXPIRE', NAME, keep)
      end
      return 'released'
    end
    if these then
      these = these.leave()
    else
      call('DEL', NAME)
    end
    if redis.pcall('ZCARD', QUEUE) ~= 0 then
      pcall(serve, nil, nil, nil, these)
    end
    return as_believed and 'released' or { 'not-held', view(look()) }
  end
  local is_foreign = kind ~= 'none' and not holder and not these
  if is_foreign and tonumber(call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2] or 0) < 0 then
    -- Somebody has overwritten a lock that several held.
    several().forget('-inf')
  end
  local place = is_foreign and call('ZRANK', QUEUE, owner)
  if call('ZREM', QUEUE, owner) == 1 then
    call('HDEL', WAITERS, owner)
    if place then
      pcall(serve, nil, 'foreign', place)
    elseif these then
      -- Those behind it may be admitted.
      pcall(serve, nil, nil, nil, these)
    end
    if not believed then
      return 'released'
    end
  end
  return { 'not-held', view(value, kind) }
end
