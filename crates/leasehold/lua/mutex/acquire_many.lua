#!lua
-- Up to 32 acquires, in their order.
--
-- KEYS  four for each, see prelude.lua
-- ARGV  four for each, see acquire.lua
-- Reply one for each, see acquire.lua; or {'error', text}
--
-- Not declared allow-oom: a full server refuses all of it before it has written anything.
return each(4, acquire)
