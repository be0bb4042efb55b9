-- Shared by all scripts of cache entries: reads the keys, by the same rules as `leasehold-core` (cache/state.rs).
-- This text follows the `#!lua` line. It drops what has ended, answers for other programs' data, and changes
-- nothing else.
--
-- KEYS[1]  the entry: a line of 69 bytes, then the value
-- KEYS[2]  its control: a hash, {entry}:lh-cache
--            last, epoch            the last number given out, and that of the last invalidation
--            token, version, until  the loader: its token, its version, the last ms of its lease
--            back_off_until, error  after a failed load: the last ms of the back-off, and the error
--            failures               how many loads have failed in a row
--            w:<client id>          a client to tell when the load ends; in a cluster, with the hash tag of its channel before it
-- Every reply is an array: a word, then now in ms. {'foreign', now, type}: a key holds another program's data, and
-- nothing was changed.
local call, digits = redis.call, function(number) return string.format('%.0f', number) end
local ENTRY, CONTROL = KEYS[1], KEYS[2]
local MEMORY, VERSION_MAX = 900000, 9007199254740991

local clock = call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

-- The type of another program's data; nil if there is none.
local foreign
local function is_other(key, answer)
  if not string.find(answer.err, 'WRONGTYPE', 1, true) then
    error(answer)
  end
  foreign = foreign or call('TYPE', key).ok
end

-- The stored value, by the line before it; nil if there is none.
local stored
local line = redis.pcall('GETRANGE', ENTRY, '0', '68')
if type(line) == 'table' then
  is_other(ENTRY, line)
elseif line ~= '' or call('EXISTS', ENTRY) == 1 then
  local mark, version, at, soft, took =
    string.match(line, '^lhc1 ([fi]) (%d+) (%d+) (%d+) (%d+) [jmr]\n$')
  if mark and #version == 16 and #at == 16 and #soft == 16 and #took == 8 and tonumber(version) <= VERSION_MAX then
    stored = { invalidated = mark == 'i', version = tonumber(version), at = tonumber(at), soft = soft }
  else
    foreign = 'string'
  end
end
-- The clock may have been set back: a value from more than a second in the future is stale.
local fresh = stored
  and not stored.invalidated
  and now + 1000 >= stored.at
  and now < tonumber(stored.soft)

-- The control; nil if there is none.
local control
local fields = redis.pcall(
  'HMGET', CONTROL, 'last', 'epoch', 'token', 'version', 'until', 'back_off_until', 'error', 'failures')
if fields.err then
  is_other(CONTROL, fields)
elseif tonumber(fields[1] or '') and tonumber(fields[2] or '') then
  control = {
    last = tonumber(fields[1]),
    epoch = tonumber(fields[2]),
    token = fields[3],
    version = tonumber(fields[4] or 0),
    until_ms = tonumber(fields[5] or 0),
    back_off_until = fields[6] and tonumber(fields[6]),
    error = fields[7],
    failures = tonumber(fields[8] or 0),
  }
  if control.token and control.until_ms < now then
    control.token = false
    call('HDEL', CONTROL, 'token', 'version', 'until')
  end
  if control.back_off_until and control.back_off_until < now then
    control.back_off_until = false
    call('HDEL', CONTROL, 'back_off_until', 'error')
  end
elseif call('EXISTS', CONTROL) == 1 then
  foreign = foreign or 'hash'
end

-- The next number after `last`: never below wall time, so that numbers rise even if the last one was lost (core:
-- Version::after).
local function after(last)
  local counted = last < VERSION_MAX and last + 1 or 0
  return math.min(math.max(counted, now_us), VERSION_MAX)
end

-- The next number above all that were given out.
local function next_number()
  return after(math.max(control and control.last or 0, stored and stored.version or 0))
end

-- Keeps the control for this many ms plus a quarter of an hour, or longer if it already was to be kept for longer.
local function remember(needed)
  local left = needed + MEMORY
  if call('PTTL', CONTROL) < left then
    call('PEXPIRE', CONTROL, digits(left))
  end
end

-- Makes a change without effect that takes no memory: a full server of version 6 refuses the first change of a script
-- if that takes memory, but none after it.
local function go_on_when_full()
  call('HDEL', CONTROL, '-')
end

-- Tells all waiters that the load has ended. This is a hint: they also poll, so a user without permission to publish
-- goes on.
local function tell()
  for _, field in ipairs(call('HKEYS', CONTROL)) do
    local client = string.match(field, '^w:(.*)$')
    if client then
      call('HDEL', CONTROL, field)
      local publish = string.byte(client) == 123 and 'SPUBLISH' or 'PUBLISH'
      redis.pcall(publish, 'leasehold:wake:' .. client, 'loaded ' .. ENTRY)
    end
  end
end

if foreign then
  return { 'foreign', now, foreign }
end
