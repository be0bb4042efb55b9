#!lua flags=allow-oom
-- Free a mutex whose holder cannot, by an operator who has seen its fence.
--
-- KEYS  1 the fence counter, then three, see prelude.lua
-- ARGV  1 a fence of the holder: its grant's, or another that was drawn with it
-- Reply {'released'}
--       {{'not-held', view}}
--
-- Closes the race between looking at a holder and freeing the lock of the next one: the fence says which is meant.
-- A foreign holder has no fence and is never broken.
return each(1, function(seen)
  local value, kind = advance()
  if holder and holds(holder, tonumber(seen)) then
    call('DEL', NAME)
    pcall(serve)
    return 'released'
  end
  return { 'not-held', view(value, kind) }
end)
