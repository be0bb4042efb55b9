#!lua
-- Up to 32 acquires of free locks without waiters; acquire_many.lua does the rest.
--
-- KEYS  1 the fence counter, then the locks' names, then their queues
-- ARGV  an owner token for each; then the TTL in ms of all, which draw one fence each, or for each: TTL in ms, how many
--       fences to draw
-- Reply one text: the first fence drawn, or 0; then the numbers of the steps that have changed nothing, each after a space. The
--       fences of the other steps follow each other.
--
-- Closes the race between taking a lock and learning it: the value contains the fence. NX, since a name may be taken, or
-- occur twice.
-- Not declared allow-oom: a full server refuses the whole script before it has written anything.
-- Each word of a request costs as much as a fifth of a SET, and so does each table in a reply.
local call, KEYS, ARGV = redis.call, KEYS, ARGV
local count = (#KEYS - 1) / 2
local some_wait = call('EXISTS', unpack(KEYS, count + 2)) ~= 0

-- core: Counter::draw. Digits are compared as text: converting them to a number and back costs half as much as a SET.
local clock, last = call('TIME'), call('GET', KEYS[1])
local first = clock[1] .. string.rep('0', 6 - #clock[2]) .. clock[2]
if last and (#last > #first or #last == #first and last >= first) and not string.find(last, '%D')
    and tonumber(last) <= 9007199254739967 then
  first = string.format('%.0f', last + 1)
end
-- A single acquire, as each of them is in a cluster.
if count == 1 and not some_wait and not ARGV[3] then
  if not call('SET', KEYS[2], ARGV[1] .. '#' .. first, 'NX', 'PX', ARGV[2]) then
    return '0 1'
  end
  call('SET', KEYS[1], first)
  return first
end
-- The next fence after the first one: what comes before its last two digits, and those as bytes; 57 is '9'.
local head, tens, ones
local char, ttl, block, has_each, others, drawn = string.char, ARGV[count + 1], 1, #ARGV > count + 1, '', 0
for number = 1, count do
  local value = head and ARGV[number] .. head .. char(tens, ones) or ARGV[number] .. '#' .. first
  if has_each then
    ttl, block = ARGV[count + 2 * number - 1], ARGV[count + 2 * number]
    value = value .. (block == '1' and '' or '/' .. block)
  end
  local is_free = not some_wait or call('EXISTS', KEYS[count + 1 + number]) == 0
  if is_free and call('SET', KEYS[number + 1], value, 'NX', 'PX', ttl) then
    drawn = drawn + block
    if not head and number < count then
      head, tens, ones = '#' .. string.sub(first, 1, -3), string.byte(first, -2, -1)
    end
    if head then
      ones = ones + block
      if ones > 57 then
        tens, ones = tens + math.floor((ones - 48) / 10), 48 + (ones - 48) % 10
        if tens > 57 then
          head = '#' .. string.format('%.0f', string.sub(head, 2) + math.floor((tens - 48) / 10))
          tens = 48 + (tens - 48) % 10
        end
      end
    end
  else
    others = others .. ' ' .. number
  end
end
if drawn > 0 then
  call('SET', KEYS[1], drawn == 1 and first or string.format('%.0f', first + drawn - 1))
end
return (drawn > 0 and first or '0') .. others
