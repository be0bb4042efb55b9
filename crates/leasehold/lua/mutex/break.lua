#!lua flags=allow-oom
-- Free a mutex whose holder cannot do it, for an operator who has seen its fence; one slot of a semaphore; or end the
-- holds of all readers, which have one fence.
--
-- KEYS  1 the fence counter, then three, see prelude.lua; at a node of a quorum, 1 its mark, then four
-- ARGV  1 a fence of the holder: that of its grant, or another one drawn with it; then, at a node, as in prelude.lua
-- Reply {'released'}
--       {{'not-held', view}}
--       {{'other-terms', nodes, longest TTL in ms}}
--
-- Closes the race between inspecting a holder and freeing the lock of its successor: the fence says which holder is
-- meant. A foreign holder has no fence and is never broken.
return each(1, function(seen)
  local value, kind = advance()
  local is_ended = crowd and evict(tonumber(seen))
  if holder and not crowd and holds(holder, tonumber(seen)) then
    call('DEL', NAME)
    is_ended = true
  end
  if is_ended then
    pcall(serve)
    return 'released'
  end
  return { 'not-held', view(value, kind) }
end)
