#!lua flags=allow-oom
-- Up to 32 extensions and releases, in their order.
--
-- KEYS  four for each, see prelude.lua
-- ARGV  four for each: 1 'extend', 'refill' or 'release'  2 owner token  3 ms
--       4 the fence under which the owner believes to hold, or ''
-- Reply one for each, see extend.lua and release.lua; or {'error', text}
return each(4, function(verb, owner, ms, fence)
  fence = tonumber(fence)
  if verb == 'release' then
    return release(owner, ms, fence)
  end
  return extend(owner, ms, verb == 'refill', fence)
end)
