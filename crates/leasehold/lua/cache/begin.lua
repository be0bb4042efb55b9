#!lua
-- Ask for a fresh value, or for the load of it.
--
-- KEYS  see prelude.lua
-- ARGV  1 token of the load  2 the highest version the caller has seen  3 1 to want a newer one even if that is fresh, or 0
--       4 lease in ms  5 the client to tell when another client's load ends, or -
-- Reply {'fresh', now, the entry}
--       {'load', now, version, failures in a row, the stale entry if the caller has not seen it}
--       {'busy', now, poll after in ms, stale entry}
--       {'back-off', now, left in ms, error, stale entry}
--
-- Closes the race between finding nothing fresh and becoming the loader: of all concurrent callers, one gets the reply
-- `load`. If it repeats the request with its token, it gets that reply again, with the same version. A full server
-- refuses the script before its first line, or (before 7.0) at its only change that takes memory, which comes first.
local token, seen, over, lease, client = ARGV[1], tonumber(ARGV[2]), ARGV[3] == '1', tonumber(ARGV[4]), ARGV[5]
if fresh and (not over or stored.version > seen) then
  return { 'fresh', now, call('GET', ENTRY) }
end
-- The clock was set back since the value was loaded, and a lost control may have counted on from its version, by less
-- than an hour's microseconds. The value is stale. Its version moves past all of them, and so do the later ones. The
-- last 20 bits of the token are added, since another lost control may have begun here too.
if not control and stored and stored.version > now_us then
  stored.version = after(stored.version + 3600000000 + tonumber(string.sub(token, -5), 16) * 1024)
  call('SETRANGE', ENTRY, '5', string.format('i %016.0f', stored.version))
end
local stale = stored and stored.version > seen and call('GET', ENTRY)

local function wait(needed)
  if client ~= '-' then
    call('HSET', CONTROL, 'w:' .. client, '')
  end
  remember(needed)
end

if control and control.token and control.token ~= token then
  wait(0)
  -- A lease is valid in its last millisecond.
  local poll_after = math.min(control.until_ms - now + 1, client == '-' and 25 or 500)
  return { 'busy', now, poll_after, stale }
end
if control and control.back_off_until then
  local left = control.back_off_until - now + 1
  wait(left)
  return { 'back-off', now, left, control.error or '', stale }
end
if not control then
  -- A server without a control does not know what was invalidated.
  local epoch = next_number()
  control = { last = epoch, epoch = epoch, failures = 0 }
end
if not control.token then
  control.last = next_number()
  control.version = control.last
end
local version = digits(control.version)
call('HSET', CONTROL, 'last', digits(control.last), 'epoch', digits(control.epoch),
  'token', token, 'version', version, 'until', digits(now + lease))
remember(lease)
return { 'load', now, version, control.failures, stale }
