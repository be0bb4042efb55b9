#!lua flags=allow-oom
-- Free a mutex whose holder cannot do it, for an operator who has seen its fence; one slot of a semaphore; the vote of one
-- reader at a node of a quorum; or end the holds of all readers, which have one fence.
--
-- KEYS  1 the fence counter, then three, see prelude.lua; at a node of a quorum, 1 its mark, then four
-- ARGV  1 a fence of the holder: that of its grant, or another one drawn with it; then, at a node, as in prelude.lua
-- Reply {'released'}
--       {{'not-held', view}}
--       {{'other-terms', nodes, longest TTL in ms}}
--
-- Closes the race between inspecting a holder and freeing the lock of its successor: the fence says which holder is
-- meant. A foreign holder has no fence and is never broken.
-- It ends holds before it grants: a reader that joined the phase in this step would be told of a hold that has ended.
return each(1, function(seen)
  local value, kind = look()
  local is_ended, these = false, kind == 'several' and value
  seen = tonumber(seen)
  if these then
    these.expire()
  end
  if these and (TERMS or these.mode == 'slots') then
    -- Two have the same fence, if the counter was lost; readers at a node may have the same number.
    for _, token in ipairs(call('ZRANGE', QUEUE, '0', these.holders - 1)) do
      if holds(token, seen, these) then
        these.leave()
        is_ended = true
      end
    end
    these = these.holders > 0 and these
  elseif these and seen == tonumber(these.phase) or holder and holds(holder, seen) then
    -- `serve` forgets the readers.
    call('DEL', NAME)
    these, is_ended = nil, true
  end
  if is_ended then
    pcall(serve, nil, nil, nil, these)
    return 'released'
  end
  if these or kind == 'none' then
    value, kind = serve(nil, nil, nil, these)
  end
  return { 'not-held', view(value, kind) }
end)
