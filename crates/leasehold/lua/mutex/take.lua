#!lua
-- Up to 32 acquires of free locks without waiters; acquire_many.lua does the rest.
--
-- KEYS  1 the fence counter, then two for each: the lock's name, its queue
-- ARGV  three for each: 1 owner token  2 TTL in ms  3 how many fences to draw
-- Reply one for each: its fence, or 'other' if the step has changed nothing
--
-- Closes the race between taking a lock and learning it: the value contains the fence. NX, since a name may occur
-- twice.
-- Not declared allow-oom: a full server refuses the whole script before it has written anything.
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local count, replies = #ARGV / 3, {}
local all_free = call('EXISTS', unpack(KEYS, 2)) == 0
if count == 1 and not all_free then
  return { 'other' }
end

-- core: Counter::draw. Digits are compared as text: converting them to a number and back costs half as much as a SET.
local clock, last = call('TIME'), call('GET', KEYS[1])
local fence, tens, ones, drawn = clock[1] .. string.rep('0', 6 - #clock[2]) .. clock[2], nil, nil, nil
if last and (#last > #fence or #last == #fence and last >= fence) and not string.find(last, '%D')
    and tonumber(last) <= 9007199254739967 then
  fence = string.format('%.0f', last + 1)
end
for number = 1, count do
  local name, block = KEYS[2 * number], ARGV[3 * number]
  replies[number] = 'other'
  if all_free or call('EXISTS', name, KEYS[2 * number + 1]) == 0 then
    if not fence then
      -- The next fence has other tens only if its last digit is above '9', which is 57.
      if ones > 57 then
        tens, ones = string.format('%.0f', tens + math.floor((ones - 48) / 10)), 48 + (ones - 48) % 10
      end
      fence = tens .. string.char(ones)
    end
    local value = ARGV[3 * number - 2] .. '#' .. fence .. (block == '1' and '' or '/' .. block)
    if call('SET', name, value, 'NX', 'PX', ARGV[3 * number - 1]) then
      replies[number], drawn = fence, fence
      if number < count or block ~= '1' then
        tens, ones = tens or string.sub(fence, 1, -2), (ones or string.byte(fence, -1)) + block
        drawn, fence = block == '1' and drawn, nil
      end
    end
  end
end
if drawn ~= nil then
  call('SET', KEYS[1], drawn or string.format('%.0f', tens * 10 + (ones - 49)))
end
return replies
