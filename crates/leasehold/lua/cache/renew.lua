#!lua flags=allow-oom
-- Keep the lease of a load that is under way. Never takes one again that has ended.
--
-- KEYS  see prelude.lua
-- ARGV  1 token of the load  2 lease in ms, from now on
-- Reply {'renewed', now}
--       {'not-loading', now}: the lease has ended, or the entry was invalidated; the load may still commit
--
-- Closes the race between looking whose lease it is and moving its end.
-- allow-oom: a full server must not make a second one load.
if not control or control.token ~= ARGV[1] then
  return { 'not-loading', now }
end
go_on_when_full()
call('HSET', CONTROL, 'until', digits(now + ARGV[2]))
remember(tonumber(ARGV[2]))
return { 'renewed', now }
