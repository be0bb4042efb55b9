#!lua flags=allow-oom
-- Up to 32 extensions and releases in order, also for locks that others wait for.
--
-- KEYS  1 the fence counter, then three for each, see prelude.lua
-- ARGV  four for each: 1 'extend' or 'release'  2 owner token  3 ms
--       4 a fence by which the owner believes to hold, or ''
-- Reply one for each, see extend.lua and release.lua; or {'error', text}
return each(4, function(verb, owner, ms, believed)
  believed = tonumber(believed)
  if verb == 'release' then
    return release(owner, ms, believed)
  end
  return extend(owner, ms, believed)
end)
