#!lua flags=no-writes
-- Read up to 32 locks, their holders and queues without changing them.
--
-- KEYS  1 the fence counter, then three for each, see prelude.lua; at a node of a quorum, 1 its mark, then four for each
-- ARGV  at a node of a quorum, as in prelude.lua
-- Reply for each {'seen', view, {token, record, token, record, ...}, now in ms}; if several hold it, also the views of at
--       most 99 others, and how many more they are
--       {'other-terms', nodes, longest TTL in ms} or {'error', text}
--
-- One script, so that holder and queue are from one moment.
-- core: Snapshot::SHOWN
local SHOWN = 100
return each(0, function()
  local value, kind = look()
  local queue = {}
  -- Several holders, or what is left of them, stand before the waiters.
  local are_first = tonumber(call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2] or 0) < 0
  local waiters = are_first and call('ZRANGEBYSCORE', QUEUE, '0', '+inf') or call('ZRANGE', QUEUE, '0', '-1')
  for _, token in ipairs(waiters) do
    queue[#queue + 1] = token
    queue[#queue + 1] = call('HGET', WAITERS, token) or ''
  end
  local now_ms = digits(math.floor(time() / 1000))
  if kind ~= 'several' or value.holders < 2 then
    return { 'seen', view(value, kind), queue, now_ms }
  end
  local others = {}
  for rank = 1, math.min(value.holders, SHOWN) - 1 do
    others[rank] = value.view(rank)
  end
  return { 'seen', view(value, kind), queue, now_ms, others, math.max(value.holders - SHOWN, 0) }
end)
