#!lua flags=allow-oom
-- Extend the lease of a load in progress. A lease that has ended is never taken again.
--
-- KEYS  see prelude.lua
-- ARGV  1 token of the load  2 lease in ms, from now on
-- Reply {'renewed', now}
--       {'not-loading', now}: the lease has ended, or the entry was invalidated; the load may still commit
--
-- Closes the race between checking the owner of a lease and extending it.
-- allow-oom: a full server must not cause a second load.
if not control or control.token ~= ARGV[1] then
  return { 'not-loading', now }
end
go_on_when_full()
call('HSET', CONTROL, 'until', digits(now + ARGV[2]))
remember(tonumber(ARGV[2]))
return { 'renewed', now }
