#!lua flags=allow-oom
-- Free a mutex whose holder cannot, by an operator who has seen its fence.
--
-- KEYS  see prelude.lua
-- ARGV  1 fence
-- Reply {'released'}
--       {'not-held', view}
--
-- Closes the race between looking at a holder and freeing the lock of the next one: the fence says which is meant.
-- A foreign holder has no fence and is never broken.
local value, kind = advance()
local seen = view(value, kind)
if seen[4] ~= '' and seen[4] == ARGV[1] then
  redis.call('DEL', NAME)
  pcall(advance)
  return { 'released' }
end
return { 'not-held', seen }
