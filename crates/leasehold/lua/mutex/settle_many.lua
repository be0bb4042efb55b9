#!lua flags=allow-oom
-- Up to 32 extensions and releases in order, also for locks that others wait for.
--
-- KEYS  1 the fence counter, then three for each, see prelude.lua; at a node of a quorum, 1 its mark, then four for each
-- ARGV  four for each: 1 'extend', 'release' or 'give-back'  2 owner token  3 ms
--       4 a fence by which the owner believes to hold, or ''
--       then, at a node of a quorum, as in prelude.lua
-- Reply 'released' for a single step that hand_over.lua has done; else one for each, see extend.lua and release.lua;
--       {'other-terms', nodes, longest TTL in ms} or {'error', text}
return each(4, function(verb, owner, ms, believed)
  -- For a single step, hand_over.lua has tried it already.
  if #KEYS > 4 and not TERMS and is_handed_over(COUNTER, NAME, QUEUE, WAITERS, verb, owner, ms, believed) then
    return 'released'
  end
  believed = tonumber(believed)
  if verb == 'extend' and TERMS and string.sub(mark or '', -16) ~= SERVER then
    -- The hold may have come with the data of another server; see propose_many.lua.
    local value, kind = advance()
    if kind == 'several' then
      value.find(owner)
    end
    if holder == owner then
      value, kind = false, 'none'
    end
    return { 'not-held', view(value, kind) }
  elseif verb == 'extend' then
    return extend(owner, ms, believed)
  elseif verb == 'give-back' then
    -- A vote at a node of a quorum: a later vote for this owner stays, and so does its place in the queue.
    local value, kind = advance()
    if not holds(owner, believed, kind == 'several' and value) then
      return { 'not-held', view(value, kind) }
    end
  end
  return release(owner, ms, believed)
end)
