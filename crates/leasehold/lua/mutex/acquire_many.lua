#!lua
-- Up to 32 acquires in order, also of locks that are held or waited for.
--
-- KEYS  1 the fence counter, then three for each, see prelude.lua
-- ARGV  five for each, see acquire.lua
-- Reply one for each, see acquire.lua; or {'error', text}
--
-- Not declared
-- allow-oom: a full server refuses the whole script before it has written anything.
return each(5, acquire)
