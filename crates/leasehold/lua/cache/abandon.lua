#!lua flags=allow-oom
-- End a load without a value.
--
-- KEYS  see prelude.lua
-- ARGV  1 token of the load  2 back-off in ms after a failure; '' if the load was given up  3 the error
-- Reply {'abandoned', now}
--
-- Closes the race between checking the owner of a load and ending it: a client that took the load over goes on.
-- allow-oom: a full server must not keep waiters from loading.
if control and control.token == ARGV[1] then
  local back_off = tonumber(ARGV[2])
  call('HDEL', CONTROL, 'token', 'version', 'until')
  if back_off then
    local failures = math.min(control.failures + 1, 4294967295)
    call('HSET', CONTROL, 'failures', digits(failures), 'back_off_until', digits(now + back_off), 'error', ARGV[3])
  end
  remember(back_off or 0)
  tell()
end
return { 'abandoned', now }
