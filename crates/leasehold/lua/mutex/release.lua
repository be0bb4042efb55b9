-- Free the mutex or leave its queue, and hand it to the next.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 ms to keep the key for, 0 to free it now
-- Reply 'released'
--       {'not-held', view}
--
-- Closes the race between checking the owner and deleting the key, and the one between deleting it and granting it to
-- the first in line: the key never looks free while someone waits.
-- allow-oom: see extend.lua. A failure to hand over must not undo the release, hence `pcall`; waiters also poll.
local function release(owner, keep)
  local value, kind = redis.pcall('GET', NAME), 'string'
  if value ~= owner then
    value, kind = advance()
  end
  if value == owner then
    if keep == '0' then
      call('DEL', NAME)
      if redis.pcall('ZCARD', QUEUE) ~= 0 then
        pcall(serve)
      end
    else
      call('PEXPIRE', NAME, keep)
      call('PEXPIRE', FENCE, FENCE_MEMORY)
    end
    return 'released'
  end
  if call('ZREM', QUEUE, owner) == 1 then
    call('HDEL', WAITERS, owner)
    return 'released'
  end
  return { 'not-held', view(value, kind) }
end
