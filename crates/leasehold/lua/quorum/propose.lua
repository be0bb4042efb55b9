#!lua
-- Up to 32 votes on proposals for free locks without waiters, by a node that remembers its fences; propose_many.lua does
-- the rest.
--
-- KEYS  1 the mark of the node, then three for each: the fence counter of the name's bucket, the lock's name, its queue
-- ARGV  four for each: 1 owner token  2 TTL in ms  3 the first fence proposed  4 how many
--       then '<nodes> <longest TTL in ms> <server>', as in prelude.lua
-- Reply one for each: 'done', or 'other' if the step has changed nothing
--
-- Closes the race between two clients that propose, and between the vote and the client's knowledge of it: the value
-- contains the fence.
-- Not declared allow-oom: a full server refuses the whole script before it has written anything.
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local clock, replies = call('TIME'), {}
-- A mark that names another server came with that server's data. One of another quorum is no one's who asks here. A key
-- of another type has none, and MGET does not fail for it.
local mark, terms, server = call('MGET', KEYS[1])[1] or '', string.match(ARGV[#ARGV], '^(%d+ %d+ )(%x+)$')
local remembers = string.sub(mark, 1, #terms) == terms and string.sub(mark, -16) == server
-- core: AHEAD, Counter::acceptable
local most = math.min(clock[1] * 1000000 + clock[2] + 10000000, 9007199254739967)
for number = 1, (#ARGV - 1) / 4 do
  local key, argument = 3 * number - 1, 4 * number - 3
  local last, fence, block = call('GET', KEYS[key]), ARGV[argument + 2], ARGV[argument + 3]
  last = last and not string.find(last, '%D') and tonumber(last)
  local first = tonumber(fence)
  replies[number] = 'other'
  if remembers and last and last < first and first <= most and call('EXISTS', KEYS[key + 1], KEYS[key + 2]) == 0 then
    replies[number] = 'done'
    -- Written before the lock: if the server fails in between, some fences stay unused.
    call('SET', KEYS[key], block == '1' and fence or string.format('%.0f', first + block - 1))
    local value = ARGV[argument] .. '#' .. fence .. (block == '1' and '' or '/' .. block)
    call('SET', KEYS[key + 1], value, 'PX', ARGV[argument + 1])
  end
end
return replies
