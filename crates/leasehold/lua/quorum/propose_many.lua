#!lua
-- Up to 32 votes on proposals, also for locks that are held or waited for, and by a node that may have lost its memory.
--
-- KEYS  1 the mark of the node, '<nodes> <longest TTL in ms> <when it was made, in ms> <id>', then four for each: the
--       fence counter of the name's bucket, and three as in prelude.lua
-- ARGV  seven for each: 1 owner token  2 TTL in ms  3 the first fence proposed  4 how many
--       5 '' ask once; '-' queue and poll; else queue and receive wakes on this channel
--       6 how many nodes the quorum has  7 its longest TTL in ms
-- Reply one for each: as in acquire.lua, or, without a vote (core: NoVote)
--       {'behind', least, most}      the lock is free, and the proposal is outside of these bounds
--       {'not-raised', least, most}  the owner holds it with lower fences, and the proposal is outside of these bounds
--       {'quarantined', ms}          the node may have forgotten holds and fences
--       {'other-terms', nodes, longest TTL in ms}
--       {'error', text}
--
-- Closes the same races as acquire.lua. A node that has no counter for the bucket may have lost its memory, and looks at
-- the mark: without a mark it makes one, and gives no vote until its old holds and fences are past (core: QR8). The
-- counter's key names the terms of the quorum, so a client with other terms finds no counter and is refused by the mark.
-- Not declared allow-oom: a full server refuses the whole script before it has written anything.
local MARK = KEYS[1]
local AHEAD = 10000000

-- The bounds of the fences that the counter accepts (core: Counter::acceptable).
local function bounds(floor)
  local last, highest = last_fence(), FENCE_MAX - BLOCK_MOST
  return math.min(last and last + 1 or floor, highest + 1), math.min(time() + AHEAD, highest)
end

-- When the mark was made, in ms; nil without a mark. Then the terms of the mark, if they are others.
local function made_at(nodes, longest)
  local mark = call('GET', MARK)
  if not mark then
    return
  end
  local count, ttl, made = match(mark, '^(%d+) (%d+) (%d+) %x+$')
  if not count then
    error('the mark of the quorum has an unknown form')
  elseif count ~= nodes or ttl ~= longest then
    return nil, { 'other-terms', count, ttl }
  end
  return tonumber(made)
end

-- When the node gives votes again, in ms (core: quarantine). A mark that was made at 0 belongs to a new quorum.
local function trusted_from(made, longest)
  return made > 0 and made + math.max(math.max(longest, 10000) + 1000, 13000) or 0
end

return each(7, function(owner, ttl, proposed, wanted, channel, nodes, longest)
  local first, made, refused = tonumber(proposed), nil, nil
  if not last_fence() then
    made, refused = made_at(nodes, longest)
    if refused then
      return refused
    end
  end
  local value, kind = advance(owner)
  if holder == owner then
    if first <= tonumber(fence) then
      return hold(ttl)
    end
    local least, most = bounds(time())
    if first < least or first > most then
      hold(ttl)
      return { 'not-raised', digits(least), digits(most) }
    end
    local queued = call('ZCARD', QUEUE)
    grant(owner, ttl, first, wanted, queued > 0)
    return held(queued)
  end

  local floor = 0
  if not last_fence() then
    local now_ms = math.floor(time() / 1000)
    if not made then
      made = now_ms
      -- The first half of the owner's random number is the id.
      local id = string.sub(owner, 5, 20)
      call('SET', MARK, table.concat({ nodes, longest, digits(made), id }, ' '))
    end
    local from = trusted_from(made, tonumber(longest))
    if from > now_ms then
      return { 'quarantined', digits(from - now_ms) }
    end
    floor = from * 1000
  end
  if kind ~= 'none' then
    return refuse(owner, ttl, 'exclusive', wanted, channel, value, kind)
  end
  local least, most = bounds(floor)
  if first < least or first > most then
    return { 'behind', digits(least), digits(most) }
  end
  local queued = call('ZCARD', QUEUE)
  grant(owner, ttl, first, wanted, queued > 0)
  return held(queued)
end)
