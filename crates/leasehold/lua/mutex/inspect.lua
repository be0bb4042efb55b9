#!lua flags=no-writes
-- Read a lock, its holder and its queue without changing them.
--
-- KEYS  1 the fence counter, then three, see prelude.lua; at a node of a quorum, 1 its mark, then four
-- ARGV  at a node of a quorum, as in prelude.lua
-- Reply {{'seen', view, {token, record, token, record, ...}, now in ms}}; if several hold it, also the views of at most
--       99 others, and how many more they are
--       {{'other-terms', nodes, longest TTL in ms}}
--
-- One script, so that holder and queue are from one moment.
-- core: Snapshot::SHOWN
local SHOWN = 100
return each(0, function()
  local value, kind = look()
  local queue = {}
  for _, token in ipairs(call('ZRANGEBYSCORE', QUEUE, '0', '+inf')) do
    queue[#queue + 1] = token
    queue[#queue + 1] = call('HGET', WAITERS, token) or ''
  end
  local now_ms = digits(math.floor(time() / 1000))
  if holders < 2 then
    return { 'seen', view(value, kind), queue, now_ms }
  end
  local others = {}
  for rank = 1, math.min(holders, SHOWN) - 1 do
    others[rank] = view_of(rank)
  end
  return { 'seen', view_of(0), queue, now_ms, others, math.max(holders - SHOWN, 0) }
end)
