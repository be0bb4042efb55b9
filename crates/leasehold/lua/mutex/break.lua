#!lua flags=allow-oom
-- Free a mutex whose holder cannot, by an operator who has seen its fence.
--
-- KEYS  see prelude.lua
-- ARGV  1 fence of the holder: its grant's, or any that it has drawn since
-- Reply {'released'}
--       {{'not-held', view}}
--
-- Closes the race between looking at a holder and freeing the lock of the next one: the fence says which is meant.
-- A foreign holder has no fence and is never broken.
return each(1, function(fence)
  local value, kind = advance()
  local known, meant = kind ~= 'none' and client_of(value) and last_fence(), tonumber(fence)
  if known and granted <= meant and meant < last + FENCE_BLOCK then
    call('DEL', NAME)
    pcall(serve)
    return 'released'
  end
  return { 'not-held', view(value, kind) }
end)
