-- Free the mutex or leave its queue, and hand it to the next.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 ms to keep the key for, 0 to free it now  3 the fence, as in extend.lua
-- Reply 'released'
--       {'not-held', view}
--
-- Closes the race between checking the owner and deleting the key, and the one between deleting it and granting it to
-- the first in line: the key never looks free while someone waits. An owner lets go of whatever it has, and is told
-- whether that is what it believed to have.
-- allow-oom: see extend.lua. A failure to hand over must not undo the release, hence `pcall`; waiters also poll.
local function release(owner, keep, fence)
  local value, kind = redis.pcall('GETRANGE', NAME, '0', '1023'), 'string'
  if value ~= owner then
    value, kind = advance()
  end
  if value == owner then
    -- What cannot be told, since the fence's key is something else, is believed.
    local told, as_believed = pcall(is_under, fence)
    as_believed = as_believed or not told
    if keep == '0' or not as_believed then
      call('DEL', NAME)
      if redis.pcall('ZCARD', QUEUE) ~= 0 then
        pcall(serve)
      end
    else
      call('PEXPIRE', NAME, keep)
      call('PEXPIRE', FENCE, FENCE_MEMORY)
    end
    return as_believed and 'released' or { 'not-held', view(look()) }
  end
  local foreign = kind ~= 'none' and not client_of(value)
  local place = foreign and call('ZRANK', QUEUE, owner)
  if call('ZREM', QUEUE, owner) == 1 then
    call('HDEL', WAITERS, owner)
    if place then
      pcall(serve, nil, 'foreign', place)
    end
    if not fence then
      return 'released'
    end
  end
  return { 'not-held', view(value, kind) }
end
