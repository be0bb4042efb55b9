#!lua flags=no-writes
-- Look at a lock, its holder and its queue without changing them.
--
-- KEYS  see prelude.lua
-- Reply {'seen', view, last fence or '', {token, record, token, record, ...}}
--
-- One script, so that holder, fence and queue are of one moment.
local value, kind = look()
local fence = last_fence()
local queue = {}
for _, token in ipairs(redis.call('ZRANGE', QUEUE, 0, -1)) do
  queue[#queue + 1] = token
  queue[#queue + 1] = redis.call('HGET', WAITERS, token) or ''
end
return { 'seen', view(value, kind), fence and digits(fence) or '', queue, digits(now_ms) }
