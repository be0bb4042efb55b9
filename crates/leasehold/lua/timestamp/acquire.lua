#!lua
-- Take a lock whose value is its deadline, if it is free or its deadline has passed.
--
-- KEYS[1]  the lock
-- ARGV     1 a unit of its time in microseconds: 1000000, or 1000  2 TTL in units, rounded up
-- Reply    {'held', deadline, now in us}
--          {'busy', deadline, now in us}
--          {'foreign', type, value if that is a string, now in us}
--          {'bad-clock', now in us}
--
-- Closes the race between reading a passed deadline and overwriting it. GETSET alone would also overwrite a deadline
-- that another client has written in between.
if kind ~= 'none' and not deadline then
  return { 'foreign', kind, value, now_text }
end
if deadline and deadline >= now then
  return { 'busy', digits(deadline), now_text }
end
local taken = digits(now + ARGV[2] + 1)
if not read(taken) then
  return { 'bad-clock', now_text }
end
call('SET', KEY, taken)
return { 'held', taken, now_text }
