#!lua flags=allow-oom
-- Write a later deadline, only over one of the caller's that lies ahead: what has passed is never taken again here.
--
-- KEYS[1]  the lock
-- ARGV     1 a unit in microseconds  2 TTL in units, rounded up  3 the deadline to write  4... all that may be the caller's
-- Reply    {'held', deadline, now in us}
--          {'again', now in us}: the deadline does not fit this server's clock, and nothing was done
--          {'not-held', type, value if that is a string, now in us}
--
-- Closes the race between looking whose deadline it is and overwriting it. The caller says what to write, so that it knows
-- its deadline also when the answer is lost.
-- allow-oom: a full server must not cost a holder its lock. Redis 6.2 does not know the flag, but lets a script end what it has
-- begun: PEXPIRE, which is allowed on a full server and which SET takes back, makes it begin. The mutex needs that command too, so
-- a user who may use the one may use the other.
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
