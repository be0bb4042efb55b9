#!lua flags=allow-oom
-- Free a lock, only if its deadline is the caller's and has not passed.
--
-- KEYS[1]  the lock
-- ARGV     1 a unit in microseconds  2... all deadlines that may be the caller's
-- Reply    'released'
--          {'not-held', type, value if that is a string, now in us}
--
-- Closes the race between reading the deadline and DEL, which would delete the next holder's deadline.
if not is_mine(2) then
  return { 'not-held', kind, value, now_text }
end
call('DEL', KEY)
return 'released'
