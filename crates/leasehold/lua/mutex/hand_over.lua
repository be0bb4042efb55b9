-- The short way of a release while others wait: grants the lock to the first waiter, if that one is alive, listens, wants
-- it alone, and has a TTL of a second or more, so that no other waiter is to be told. In any other case it changes nothing, and
-- release.lua does the step.
--
-- This text comes before the prelude, so a request of one such step runs nothing else. It must leave each byte as
-- `serve` and `grant` in prelude.lua do.
--
-- Reply true if the step is done
local function hand_over(counter, name, queue, waiters, owner, believed)
  local call, match = redis.call, string.match
  local own, value = owner .. '#' .. believed, call('GETRANGE', name, '0', '1023')
  local mark = string.sub(value, 1, #own) == own and string.sub(value, #own + 1) or ''
  local drawn = mark == '!' and 1 or tonumber(match(mark, '^/(%d+)!$') or 0)
  if drawn < 1 or drawn > 1024 then
    return false
  end
  local token = call('ZRANGE', queue, '0', '0')[1]
  local record = token and call('HGET', waiters, token) or ''
  local ttl, wanted, channel, seen_until = match(record, '^exclusive (%d+) (%d+) (%S+) (%d+)$')
  if not ttl or tonumber(ttl) < 1000 or channel == '-' then
    return false
  end
  -- In a cluster: see TAG in prelude.lua.
  local publish, numsub = 'PUBLISH', 'NUMSUB'
  if string.byte(counter, -1) == 125 then
    publish, numsub = 'SPUBLISH', 'SHARDNUMSUB'
  end
  local clock = call('TIME')
  if tonumber(seen_until) < clock[1] * 1000 + math.floor(clock[2] / 1000)
      or call('PUBSUB', numsub, channel)[2] == 0 then
    return false
  end

  -- core: Counter::draw. As in take.lua, digits are compared as text.
  local at, last = clock[1] .. string.rep('0', 6 - #clock[2]) .. clock[2], call('GET', counter)
  local fences, block = at, tonumber(wanted)
  if last and (#last > #at or #last == #at and last >= at) and not string.find(last, '%D')
      and tonumber(last) <= 9007199254739967 then
    fences = string.format('%.0f', last + 1)
  end
  last = fences
  if block ~= 1 then
    last, fences = string.format('%.0f', fences + block - 1), fences .. (block > 1 and '/' .. wanted or '')
  end
  -- First what takes no memory: the first change decides on a full server of Redis 6.2. The counter is written before
  -- the lock: if the server fails in between, some fences stay unused.
  call('ZREM', queue, token)
  call('HDEL', waiters, token)
  local others = call('ZCARD', queue)
  call('SET', counter, last)
  local window = tonumber(ttl) < 3000 and ttl or '3000'
  call('SET', name, token .. '#' .. fences .. (others > 0 and '!' or ''), 'PX', window)
  local message = 'granted ' .. fences .. ' ' .. at .. ' ' .. others .. ' ' .. token .. ' ' .. name
  redis.pcall(publish, channel, message)
  return true
end

-- The same for any step. If a command fails, release.lua does the step. The owner still holds the lock then: the last
-- command that may fail gives the lock away.
local function is_handed_over(counter, name, queue, waiters, verb, owner, ms, believed)
  if verb ~= 'release' or ms ~= '0' or believed == '' then
    return false
  end
  local done, is_handed = pcall(hand_over, counter, name, queue, waiters, owner, believed)
  return done and is_handed
end

-- One step, of no node of a quorum.
if #KEYS == 4 and is_handed_over(KEYS[1], KEYS[2], KEYS[3], KEYS[4], unpack(ARGV)) then
  return 'released'
end
