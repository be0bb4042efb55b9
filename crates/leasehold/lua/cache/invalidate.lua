#!lua flags=allow-oom
-- The stored value is no longer true: it is stale from now on, and so are the values of the loads in progress.
--
-- KEYS  see prelude.lua
-- ARGV  1 1 to delete the stale value, 0 to keep it
-- Reply {'invalidated', now}
--
-- Closes the race between an invalidation and a load that began before it. The load is recognized by its version,
-- which is below the new epoch, even if it commits much later.
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
  -- Its TTL does not change.
  call('SETRANGE', ENTRY, '5', 'i')
end
-- The values of loads in progress are not wanted any more, so no client waits for them.
if control then
  tell()
end
return { 'invalidated', now }
