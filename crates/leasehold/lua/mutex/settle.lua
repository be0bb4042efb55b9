#!lua flags=allow-oom
-- Up to 32 extensions and releases by holders whose locks have no waiters; settle_many.lua does the rest.
--
-- KEYS  one for each: the lock's name; at a node of a quorum, its mark before them
-- ARGV  three for each: 1 '<token>#<fence>', by which the owner believes to hold  2 'extend' or 'release'
--       3 ms: the new lease, or how long to keep the key at a release, or 0
--       then, at a node of a quorum, as in prelude.lua
-- Reply one for each: 'done', followed by '/<how many>' if more than that one fence was drawn; or, if the step has changed
--       nothing, 'contended' (another client waits) or 'other'. Or one 'done' for all.
--
-- Closes the race between checking the owner and extending or deleting the key; see extend.lua.
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local values, freed, gone, replies = call('MGET', unpack(KEYS)), {}, {}, nil
local before = #ARGV % 3
local is_strange = false
if before == 1 then
  -- The client may count another quorum, or the data may be those of another server; see propose_many.lua.
  local mark, terms, server = values[1] or '', string.match(ARGV[#ARGV], '^(%d+ %d+ )(%x+)$')
  is_strange = string.sub(mark, 1, #terms) ~= terms or string.sub(mark, -16) ~= server
end
for number = 1, #KEYS - before do
  local name, own, ms = KEYS[number + before], ARGV[3 * number - 2], ARGV[3 * number]
  local value, reply = not is_strange and not gone[name] and values[number + before], 'done'
  if value ~= own then
    -- The value has the number of fences and the mark after the token and the fence.
    local rest = value and string.sub(value, 1, #own) == own and string.sub(value, #own + 1)
    local many = rest and tonumber(string.match(rest, '^/(%d+)!?$') or rest == '!' and 1)
    if not many or many < 1 or many > 1024 then
      reply = 'other'
    elseif string.byte(rest, -1) == 33 then
      reply = 'contended'
    else
      reply = 'done' .. rest
    end
    if not replies then
      replies = {}
      for earlier = 1, number - 1 do
        replies[earlier] = 'done'
      end
    end
  end
  if replies then
    replies[number] = reply
  end
  if reply ~= 'other' and reply ~= 'contended' then
    if ms ~= '0' then
      call('PEXPIRE', name, ms)
    else
      freed[#freed + 1], gone[name] = name, true
    end
  end
end
if freed[1] then
  call('DEL', unpack(freed))
end
return replies or 'done'
