#!lua
-- Store a loaded value.
--
-- KEYS  see prelude.lua
-- ARGV  1 token of the load  2 its version  3 ms to be fresh  4 ms to be kept as stale after that  5 ms it took to load
--       6 its encoding: j, m or r  7 the value
-- Reply {'committed', now, 'fresh', soft expiry in ms}
--       {'committed', now, 'stale'}: invalidated since the load began, or it is unknown whether it was; kept as stale, unless
--         its version was given out by a lost control
--       {'committed', now, 'overtaken'}: something newer is stored, and this value was dropped
--
-- Closes two races. Between the load and an invalidation: the old value is never stored as fresh. Between a late load
-- and a newer one: the late value never replaces the newer one.
local version, kept, soft = tonumber(ARGV[2]), nil, nil
-- A version above all that this control gave out comes from a lost control, from before the clock was set back: nothing
-- is known of it.
local unknown = control and version > control.last
if stored and stored.version > version then
  kept = 'overtaken'
elseif stored and stored.version == version then
  -- A repeat; the value may have been invalidated since.
  kept, soft = stored.invalidated and 'stale' or 'fresh', stored.soft
elseif unknown then
  kept = stored and 'overtaken' or 'stale'
else
  local invalidated = not control or version < control.epoch
  local fresh_ms = invalidated and 0 or tonumber(ARGV[3])
  local keep = fresh_ms + ARGV[4]
  kept, soft = invalidated and 'stale' or 'fresh', digits(now + fresh_ms)
  if keep > 0 then
    local header = string.format('lhc1 %s %016.0f %016.0f %016.0f %08.0f %s\n',
      invalidated and 'i' or 'f', version, now, now + fresh_ms, ARGV[5], ARGV[6])
    call('SET', ENTRY, header .. ARGV[7], 'PX', digits(keep))
  end
end

local mine = control and control.token == ARGV[1]
if mine then
  call('HDEL', CONTROL, 'token', 'version', 'until')
end
-- The source works. A value that was not needed, or a repeat, proves nothing new, unless it comes from the current
-- load.
if control and (mine or not unknown and not (stored and stored.version >= version)) then
  call('HDEL', CONTROL, 'back_off_until', 'error', 'failures')
  tell()
  remember(0)
end
return { 'committed', now, kept, kept == 'fresh' and soft or nil }
