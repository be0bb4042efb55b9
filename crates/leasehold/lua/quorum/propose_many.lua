#!lua
-- Up to 32 votes on proposals, also for locks that are held or waited for, and by a node that may have lost its memory.
--
-- KEYS  1 the mark of the node, '<nodes> <longest TTL in ms> <when it was made, in ms> <server>', then ' young' during its
--       quarantine. Then four for each: the fence counter of the name's bucket, and three as in prelude.lua
-- ARGV  seven for each: 1 owner token  2 TTL in ms  3 the first fence proposed  4 how many
--       5 '' ask once; '-' queue and poll; else queue and receive wakes on this channel
--       6 how many nodes the quorum has  7 its longest TTL in ms
--       then the server: the begin of its run_id
-- Reply one for each: as in acquire.lua, or, without a vote (core: NoVote)
--       {'behind', least, most}      the lock is free, and the proposal is outside of these bounds
--       {'not-raised', least, most}  the owner holds it with lower fences, and the proposal is outside of these bounds
--       {'quarantined', ms}          the node may have forgotten holds and fences
--       {'other-terms', nodes, longest TTL in ms}
--       {'error', text}
--
-- Closes the same races as acquire.lua. A node without a mark has lost its memory. A mark that names another server came
-- with the data of that server, or is of an earlier start. Then the node makes a mark, drops its counters, and gives no
-- vote until its old holds and fences are past (core: QR8). Meanwhile nothing renews a hold that came with the data.
-- The counter's key names the terms of the quorum, so a client with other terms is refused by the mark.
-- Not declared allow-oom: a full server refuses the whole script before it has written anything.
local MARK = KEYS[1]
local AHEAD = 10000000

-- The bounds of the fences that the counter accepts (core: Counter::acceptable).
local function bounds(floor)
  local last, highest = last_fence(), FENCE_MAX - BLOCK_MOST
  return math.min(last and last + 1 or floor, highest + 1), math.min(time() + AHEAD, highest)
end

local SERVER = ARGV[#ARGV]
local BUCKETS = 1024

-- When the node gives votes again, in ms (core: quarantine). A mark that was made at 0 belongs to a new quorum.
local function trusted_from(made, longest)
  return made > 0 and made + math.max(math.max(longest, 10000) + 1000, 13000) or 0
end

-- Deletes the counters of these terms.
local function forget(terms)
  for from = 0, BUCKETS - 1, 256 do
    local keys = {}
    for bucket = from, from + 255 do
      keys[#keys + 1] = table.concat({ MARK, terms, bucket }, ':')
    end
    call('DEL', unpack(keys))
  end
end

-- The mark as this call knows it: when it was made, and whether the node is in quarantine.
local made, young

-- Reads the mark, and makes it if the memory of the node is not its own. Returns a reply for clients with other terms.
local function read_mark(nodes, longest)
  local mark = call('GET', MARK)
  local count, ttl, at, server, state = match(mark or '', '^(%d+) (%d+) (%d+) (%x+)( ?%a*)$')
  if mark and not count then
    error('the mark of the quorum has an unknown form')
  elseif mark and (count ~= nodes or ttl ~= longest) then
    return { 'other-terms', count, ttl }
  end
  if server == SERVER then
    made, young = tonumber(at), state ~= ''
    return
  end
  made, young = math.floor(time() / 1000), true
  forget(nodes .. ':' .. longest)
  call('SET', MARK, table.concat({ nodes, longest, digits(made), SERVER, 'young' }, ' '))
end

return each(7, function(owner, ttl, proposed, wanted, channel, nodes, longest)
  local first = tonumber(proposed)
  local refused = read_mark(nodes, longest)
  if refused then
    return refused
  end
  local from, now_ms = trusted_from(made, tonumber(longest)), math.floor(time() / 1000)
  local remembers = not young and last_fence()
  if not remembers and from > now_ms then
    return { 'quarantined', digits(from - now_ms) }
  elseif young then
    -- Copied waiters may have been granted locks meanwhile, by counters that begin too low.
    forget(nodes .. ':' .. longest)
    call('SET', MARK, table.concat({ nodes, longest, digits(made), SERVER }, ' '))
  end
  local value, kind = advance(owner)
  if holder == owner then
    if first <= tonumber(fence) then
      return hold(ttl)
    end
    local least, most = bounds(time())
    if first < least or first > most then
      return { 'not-raised', digits(least), digits(most) }
    end
    local queued = call('ZCARD', QUEUE)
    grant(owner, ttl, first, wanted, queued > 0)
    return held(queued)
  end

  local floor = last_fence() and 0 or from * 1000
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
