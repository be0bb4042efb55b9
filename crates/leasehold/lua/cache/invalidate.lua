#!lua flags=allow-oom
-- What is stored is no longer true: it is stale from here on, and so is what the loads under way will bring.
--
-- KEYS  see prelude.lua
-- ARGV  1 1 to delete the stale value, 0 to keep it
-- Reply {'invalidated', now}
--
-- Closes the race between an invalidation and a load that began before it: the load is told apart by its version, which is
-- below the new epoch, also if it commits much later.
-- allow-oom: a full server must not serve old values as fresh ones.
go_on_when_full()
if control then
  local epoch = digits(next_number())
  call('HSET', CONTROL, 'last', epoch, 'epoch', epoch)
  call('HDEL', CONTROL, 'token', 'version', 'until')
  remember(0)
end
if stored and ARGV[1] == '1' then
  call('DEL', ENTRY)
elseif stored and not stored.invalidated then
  -- Its TTL stays as it is.
  call('SETRANGE', ENTRY, '5', 'i')
end
-- What a load brings is not wanted any more, so nobody waits for it.
if control then
  tell()
end
return { 'invalidated', now }
