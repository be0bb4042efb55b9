#!lua
-- Up to 32 votes on proposals, also for locks that are held or waited for, and by a node that may have lost its memory.
--
-- KEYS  1 the mark of the node, then four for each: the fence counter of the name's bucket, and three as in prelude.lua
-- ARGV  six for each: 1 owner token  2 TTL in ms  3 'exclusive' or 'shared'
--       4 the first fence proposed, or the number of a reader  5 how many
--       6 '' ask once; '-' queue and poll; else queue and receive wakes on this channel
--       then '<nodes> <longest TTL in ms> <server>', as in prelude.lua
-- Reply one for each: as in acquire.lua, or, without a vote (core: NoVote)
--       {'behind', least, most}      the lock would be granted, and the proposal is outside of these bounds
--       {'not-raised', least, most}  the owner holds it with lower fences, and the proposal is outside of these bounds
--       {'quarantined', ms}          the node may have forgotten holds and fences
--       {'other-terms', nodes, longest TTL in ms}
--       {'error', text}
--
-- Closes the same races as acquire.lua. Each reader has a number of its own, so that a repeated give-back of one vote frees
-- no later one. Readers accept any number above the exclusive fences before them (core: QR10). A node without a mark has lost its memory. A mark that names another server came
-- with the data of that server, or is of an earlier start. Then the node makes a mark, drops its counters, and gives no
-- vote until its old holds and fences are past (core: QR8). Meanwhile nothing renews a hold that came with the data.
-- Not declared allow-oom: a full server refuses the whole script before it has written anything.
local MARK = KEYS[1]
local AHEAD = 10000000

-- The bounds of the fences that the counter accepts, beside `these` readers or alone (core: acceptable).
local function bounds(floor, these)
  local last, highest = last_fence(), FENCE_MAX - BLOCK_MOST
  local least = math.min(last and last + 1 or floor, highest + 1)
  if these then
    local of_phase = tonumber(these.phase)
    least = last and of_phase or math.max(of_phase, least)
  end
  return least, math.min(time() + AHEAD, highest)
end

-- Counts the number of a reader, which may be below the last one (core: Counter::accept).
local function count(number)
  local last = last_fence()
  if not last or last < number then
    call('SET', COUNTER, digits(number))
  end
end

local NODES, LONGEST = match(TERMS, '^(%d+) (%d+)$')
local BUCKETS = 1024

-- When the node gives votes again, in ms (core: quarantine). A mark that was made at 0 belongs to a new quorum.
local function trusted_from(made)
  return made > 0 and made + math.max(math.max(tonumber(LONGEST), 10000) + 1000, 13000) or 0
end

-- Deletes the counters.
local function forget()
  for from = 0, BUCKETS - 1, 256 do
    local keys = {}
    for bucket = from, from + 255 do
      keys[#keys + 1] = table.concat({ MARK, NODES, LONGEST, bucket }, ':')
    end
    call('DEL', unpack(keys))
  end
end

-- Writes the mark of this quorum, as of this server. `state` is '' or ' young'.
local function write_mark(made, state)
  local written = TERMS .. ' ' .. digits(made) .. ' ' .. SERVER .. state
  call('SET', MARK, written)
  mark = written
end

-- When the mark was made, in ms, and whether the node is in quarantine. Makes the mark if the memory of the node is not
-- its own.
local function read_mark()
  local made, server, state = match(mark or '', '^%d+ %d+ (%d+) (%x+)( ?%a*)$')
  if mark and not made then
    error('its key leasehold:quorum holds no mark, so it gives no vote: find out what wrote the key, and delete it '
      .. 'there; the server votes a quarantine after that', 0)
  elseif server ~= SERVER then
    made, state = math.floor(time() / 1000), ' young'
    forget()
    write_mark(made, state)
  end
  return tonumber(made), state ~= ''
end

return each(6, function(owner, ttl, mode, proposed, wanted, channel)
  local first, made, young = tonumber(proposed), read_mark()
  local from, now_ms = trusted_from(made), math.floor(time() / 1000)
  local remembers = not young and last_fence()
  if not remembers and from > now_ms then
    return { 'quarantined', digits(from - now_ms) }
  elseif young then
    -- Copied waiters may have been granted locks meanwhile, by counters that begin too low.
    forget()
    write_mark(made, '')
  end
  local value, kind = advance(owner)
  local these = kind == 'several' and value
  if these then
    these.find(owner)
  end
  if holder == owner then
    -- A late proposal shortens no renewed hold.
    ttl = math.max(ttl, these and these.left() or call('PTTL', NAME))
    if first <= tonumber(fence) then
      return hold(ttl, these)
    end
    local least, most = bounds(time(), these)
    if first < least or first > most then
      return { 'not-raised', digits(least), digits(most) }
    elseif these then
      count(first + wanted - 1)
      these.vote(proposed)
      return hold(ttl, these)
    end
    local queued = call('ZCARD', QUEUE)
    grant(owner, ttl, first, wanted, queued > 0)
    return held(queued)
  end

  local floor = last_fence() and 0 or from * 1000
  if kind ~= 'none' and (not these or these.blocked or not these.admits(mode)) then
    return refuse(owner, ttl, mode, wanted, channel, value, kind)
  end
  local least, most = bounds(floor, these)
  if first < least or first > most then
    return { 'behind', digits(least), digits(most) }
  end
  local queued = call('ZCARD', QUEUE)
  if mode == 'shared' then
    these = these or several()
    -- A user who may not do this could neither renew nor release what it gets.
    call('ZCOUNT', QUEUE, '1', '0')
    count(first + wanted - 1)
    these.join(owner, ttl, mode, wanted, proposed, least)
    return held(these.rest(queued + 1))
  end
  grant(owner, ttl, first, wanted, queued > 0)
  return held(queued)
end)
