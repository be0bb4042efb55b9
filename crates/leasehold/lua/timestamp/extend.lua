#!lua flags=allow-oom
-- Write a later deadline, only over a deadline of the caller that has not passed. An expired lock is never taken again
-- here.
--
-- KEYS[1]  the lock
-- ARGV     1 a unit in microseconds  2 TTL in units, rounded up  3 the deadline to write  4... all that may be the caller's
-- Reply    {'held', deadline, now in us}
--          {'again', now in us}: the deadline does not fit this server's clock, and nothing was changed
--          {'not-held', type, value if that is a string, now in us}
--
-- Closes the race between checking the owner of a deadline and overwriting it. The caller chooses the new deadline,
-- so that it knows it even if the answer is lost.
-- allow-oom: a full server must not cost a holder its lock. Redis 6.2 does not know the flag, but lets a script
-- finish once it has made a change. PEXPIRE is allowed on a full server and makes that first change; SET then
-- undoes it. The mutex needs PEXPIRE too, so a user with the permissions for one can use the other.
if not is_mine(4) then
  return { 'not-held', kind, value, now_text }
end
local to, least = tonumber(ARGV[3]), now + ARGV[2] + 1
if to < least or to > least + 1000000 / UNIT then
  return { 'again', now_text }
end
call('PEXPIRE', KEY, 86400000)
call('SET', KEY, ARGV[3])
return { 'held', ARGV[3], now_text }
