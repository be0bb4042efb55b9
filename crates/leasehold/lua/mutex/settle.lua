#!lua flags=allow-oom
-- Up to 32 extensions and releases by holders whose locks have no waiters; settle_many.lua does the rest.
--
-- KEYS  one for each: the lock's name; at a node of a quorum, its mark before them
-- ARGV  1 '<token>#<fence>' for each, by which the owner believes to hold, joined by spaces
--       2 ms for each, joined by spaces, or once if all are alike: the new lease, or how long to keep the key at a
--       release, or 0
--       3 at a node of a quorum, as in prelude.lua; or '!' while the other keys of the lock are at another node of a cluster: the
--         step is done also if another client waits
-- Reply one for each: 'done', followed by '/<how many>' if more than that one fence was drawn; or, if the step has changed
--       nothing, 'contended' (another client waits) or 'other'. Or one 'done' for all.
--
-- Closes the race between checking the owner and extending or deleting the key; see extend.lua.
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local values, before, is_strange, ms, is_alone = call('MGET', unpack(KEYS)), 0, false, ARGV[2], ARGV[3] == '!'
-- A single release, as each of them is in a cluster.
if #KEYS == 1 and values[1] == ARGV[1] and ms == '0' and not ARGV[3] then
  call('DEL', KEYS[1])
  return 'done'
end
if ARGV[3] and not is_alone then
  -- The client may count another quorum, or the data may be those of another server; see propose_many.lua.
  local mark, terms, server = values[1] or '', string.match(ARGV[3], '^(%d+ %d+ )(%x+)$')
  before, is_strange = 1, string.sub(mark, 1, #terms) ~= terms or string.sub(mark, -16) ~= server
end

-- The usual case: all hold, and all are freed. No owner's value has a space, so equal texts mean equal values. It fails if
-- a lock has no value. If a name comes twice, fewer keys are deleted, and the loop below answers.
local are_there, all = pcall(table.concat, values, ' ', before + 1)
if ms == '0' and are_there and all == ARGV[1] and not is_strange
    and call('DEL', unpack(KEYS, before + 1)) == #KEYS - before then
  return 'done'
end

local gone, replies, number, each_ms, are_done = {}, {}, 0, string.gmatch(ms, '%d+'), true
for own in string.gmatch(ARGV[1], '%S+') do
  number, ms = number + 1, each_ms() or ms
  local name = KEYS[number + before]
  local value, reply = not is_strange and not gone[name] and values[number + before], 'done'
  if value ~= own then
    -- The value has the number of fences and the mark after the token and the fence.
    local rest = value and string.sub(value, 1, #own) == own and string.sub(value, #own + 1)
    local many = rest and tonumber(string.match(rest, '^/(%d+)!?$') or rest == '!' and 1)
    if not many or many < 1 or many > 1024 then
      reply = 'other'
    elseif string.byte(rest, -1) ~= 33 then
      reply = 'done' .. rest
    elseif is_alone then
      reply = 'done' .. string.sub(rest, 1, -2)
    else
      reply = 'contended'
    end
    are_done = false
  end
  if reply == 'other' or reply == 'contended' then
    -- It stays as it is.
  elseif ms ~= '0' then
    call('PEXPIRE', name, ms)
  else
    call('DEL', name)
    gone[name] = true
  end
  replies[number] = reply
end
return are_done and 'done' or replies
