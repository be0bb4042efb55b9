#!lua flags=allow-oom
-- Up to 32 extensions and releases, in their order.
--
-- KEYS  four for each, see prelude.lua
-- ARGV  three for each: 1 'extend', 'refill' or 'release'  2 owner token  3 ms
-- Reply one for each, see extend.lua and release.lua; or {'error', text}
return each(3, function(verb, owner, ms)
  if verb == 'release' then
    return release(owner, ms)
  end
  return extend(owner, ms, verb == 'refill')
end)
