#!lua flags=no-writes
-- Read a lock, its holder and its queue without changing them.
--
-- KEYS  1 the fence counter, then three, see prelude.lua; at a node of a quorum, 1 its mark, then four
-- ARGV  at a node of a quorum, as in prelude.lua
-- Reply {{'seen', view, {token, record, token, record, ...}, now in ms}}
--       {{'other-terms', nodes, longest TTL in ms}}
--
-- One script, so that holder and queue are from one moment.
return each(0, function()
  local value, kind = look()
  local queue = {}
  for _, token in ipairs(call('ZRANGE', QUEUE, '0', '-1')) do
    queue[#queue + 1] = token
    queue[#queue + 1] = call('HGET', WAITERS, token) or ''
  end
  local now_ms = digits(math.floor(time() / 1000))
  return { 'seen', view(value, kind), queue, now_ms }
end)
