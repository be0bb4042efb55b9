-- Shared by all scripts of the timestamp protocol: reads the key and its meaning (core: timestamp.rs). This text
-- follows the `#!lua` line. It reads the clock and the key, and changes nothing.
local call, digits = redis.call, function(number) return string.format('%.0f', number) end
local KEY, UNIT = KEYS[1], tonumber(ARGV[1])

-- The server's clock, in microseconds and in whole units.
local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now, now_text = math.floor(now_us / UNIT), digits(now_us)

-- The deadline that a value stands for; nil if it is not a time in this unit (T3).
local function read(value)
  local whole, part = string.match(value, '^([1-9]%d*)(.*)$')
  local least = UNIT == 1000 and 13 or 10
  if not whole or (#whole ~= least and #whole ~= least + 1) then
    return nil
  end
  if part ~= '' and not string.find(part, '^%.%d+$') then
    return nil
  end
  return tonumber(whole) + (string.find(part, '[1-9]') and 1 or 0)
end

-- The content of the key: its type, or 'none'; its value, if that is a string; its deadline, if it has one.
local kind, value, deadline = 'none', '', nil
-- Only the beginning of a long value: it is not a time (T3), and copying it each time would block the server.
local found = redis.pcall('GETRANGE', KEY, '0', '1024')
if found == '' then
  kind = call('TYPE', KEY).ok
elseif type(found) == 'string' and #found > 1024 then
  kind, value = 'string', string.sub(found, 1, 1024)
elseif type(found) == 'string' then
  kind, value, deadline = 'string', found, read(found)
elseif found and string.find(found.err, 'WRONGTYPE', 1, true) then
  kind = call('TYPE', KEY).ok
elseif found then
  error(found)
end

-- True if the value is one of the deadlines in ARGV from this place on, exactly as written, and has not passed (T4).
local function is_mine(first)
  for place = first, #ARGV do
    if value == ARGV[place] then
      return deadline and deadline > now
    end
  end
  return false
end
