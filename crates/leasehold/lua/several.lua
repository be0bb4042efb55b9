-- What a lock that several hold needs: readers, or holders of the slots of a semaphore. This text follows prelude.lua.
--
-- NAME is a marker then: 'lh1-shared#<fence of the phase>' or 'lh1-slots', until the end of the last holder.
-- The holders stand in QUEUE before the waiters. The score of a holder is minus its end in ms, so the last to end comes
-- first, and holders with one end are ordered by their tokens (core: Holder::order).
-- A holder of a slot has a record in WAITERS: 'slot/<of> <number> <first fence> <how many>'. A reader has none, but at a
-- node of a quorum: 'shared <number>', if the node has voted for it with that number. A node has no slots.
--
-- A hold counts only while the marker is there: whoever deletes or overwrites NAME has ended all of them, as with a
-- mutex. A marker whose holders are lost counts as foreign, since nobody knows until when they hold.
--
-- Called with the value of NAME, it returns the same as `look`. Otherwise it returns the table for a lock that is free,
-- which its first `join` makes one that several hold. A step of a mutex only defines this function, and each local from
-- outside costs such a step: it uses few.
several = function(marker)
  local call, match, format = redis.call, string.match, string.format
  local now_ms = math.floor(time() / 1000)
  local expired = format('(-%.0f', now_ms)
  -- mode: 'shared' or 'slots'; holders: how many; phase: the fence of readers; number: that of the caller's slot; blocked:
  -- a waiter is left that nobody may pass; memory: how long the keys of a queue last, longer than each holder there.
  local these = { holders = 0 }
  -- The last end among the holders.
  local last_end

  -- Removes the holders with scores from there on. Returns how many they were.
  function these.forget(from)
    local count, gone = 0
    repeat
      -- At one server, more than these are readers, which have no records there.
      gone = (TERMS or these.mode ~= 'shared') and call('ZRANGEBYSCORE', QUEUE, from, '(0', 'LIMIT', '0', '1000') or {}
      if gone[1] then
        call('HDEL', WAITERS, unpack(gone))
        call('ZREM', QUEUE, unpack(gone))
      end
      count = count + #gone
    until not TERMS or #gone < 1000
    return count + call('ZREMRANGEBYSCORE', QUEUE, from, '(0')
  end

  -- The number by which a reader is known: that of its vote, or the fence of the phase.
  local function number_of(token)
    return TERMS and match(call('HGET', WAITERS, token) or '', '^shared (%d+)$') or these.phase
  end

  -- Removes the holders that have expired. Each step that changes something does this first: it takes no memory, and the
  -- first change of a script decides on a full server of Redis 6.2.
  function these.expire()
    these.forget(expired)
  end

  -- The numbers of the slots that are taken; false if one is lost. Another step of the script may have read them.
  local function numbers()
    if not slots or slots.name ~= NAME or slots.holders ~= these.holders then
      slots = { name = NAME, holders = these.holders, taken = {} }
      -- Fewer than the most slots, so Lua can pass them to one call.
      local tokens = these.holders > 0 and call('ZRANGE', QUEUE, '0', these.holders - 1)
      for _, record in ipairs(tokens and call('HMGET', WAITERS, unpack(tokens)) or {}) do
        local number = match(record or '', '^slot/%d+ (%d+) %d+ %d+$')
        if not number then
          slots.taken = false
          break
        end
        slots.taken[tonumber(number)] = true
      end
    end
    return slots.taken
  end

  -- core: Mode::admits
  function these.admits(mode)
    local of = match(mode, '^slot/(%d+)')
    if these.mode == 'slots' then
      return of and these.holders < tonumber(of) and numbers()
    end
    return mode == these.mode
  end

  local function outlast()
    local left = last_end - now_ms
    these.memory = format('%.0f', math.max(left, 60000))
    if call('PTTL', QUEUE) < left or (TERMS or these.mode == 'slots') and call('PTTL', WAITERS) < left then
      call('PEXPIRE', QUEUE, left)
      call('PEXPIRE', WAITERS, left)
    end
  end

  -- Sets the end of NAME to that of the last holder.
  local function hold_until_last()
    last_end = -call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2]
    -- A holder counts in its last millisecond, and Redis deletes a key whose end is now.
    call('PEXPIRE', NAME, math.max(last_end - now_ms, 1))
    outlast()
  end

  -- The only function that makes an owner one of several holders. The lock is free, or its holders admit this one. A node
  -- of a quorum votes with this number, which it has counted. It opens a phase with the least one that it accepts.
  function these.join(token, ttl, mode, wanted, vote, least)
    local is_first, first = not these.mode, not these.phase and (least or next_fence())
    these.mode = mode == 'shared' and mode or 'slots'
    holder, fence, block, these.number = token, these.phase or format('%.0f', first), 1, nil
    if these.mode == 'shared' then
      these.phase = fence
    else
      -- The smallest number that is free (core: free_slot).
      local all, free = numbers(), 1
      while all[free] do
        free = free + 1
      end
      all[free], slots.holders = true, these.holders + 1
      block, these.number = tonumber(wanted), free
    end
    -- Written before the lock: if the server fails in between, some fences stay unused.
    if first and not vote then
      call('SET', COUNTER, format('%.0f', first + (block - 1)))
    end
    if these.number then
      call('HSET', WAITERS, token, table.concat({ mode, these.number, fence, block }, ' '))
    end
    if vote then
      these.vote(vote)
    end
    local until_ms = now_ms + ttl
    call('ZADD', QUEUE, format('-%.0f', until_ms), token)
    these.holders = these.holders + 1
    if is_first then
      last_end = until_ms
      call('SET', NAME, these.phase and 'lh1-shared#' .. these.phase or 'lh1-slots', 'PX', ttl)
      outlast()
    elseif until_ms > last_end then
      hold_until_last()
    elseif vote then
      outlast()
    end
  end

  -- The caller, who is one of the readers, has this number from here on.
  function these.vote(number)
    call('HSET', WAITERS, holder, 'shared ' .. number)
    fence = number
  end

  -- Makes the caller the holder, as `look` does for a mutex, if it is one of them.
  function these.find(token)
    holder, these.number = nil, nil
    local rank = call('ZRANK', QUEUE, token)
    if not rank or rank >= these.holders then
      return
    end
    holder, fence, block = token, number_of(token), 1
    if these.mode == 'slots' then
      local number, first, drawn = match(call('HGET', WAITERS, token) or '', '^slot/%d+ (%d+) (%d+) (%d+)$')
      holder, fence, block, these.number = number and token, first, tonumber(drawn or 1), number
    end
  end

  -- How many ms the caller, which `find` has found, has left.
  function these.left()
    local rank = call('ZRANK', QUEUE, holder)
    return -call('ZRANGE', QUEUE, rank, rank, 'WITHSCORES')[2] - now_ms
  end

  -- Gives the caller, which `find` has found, a new deadline.
  function these.renew(ttl)
    call('ZADD', QUEUE, format('-%.0f', now_ms + ttl), holder)
    hold_until_last()
  end

  -- How many wait, if the queue has so many members, and the number of the caller's slot: the end of the reply 'held'.
  function these.rest(queued)
    return queued - these.holders .. (these.number and ' ' .. these.number or '')
  end

  -- Ends the hold of the caller, which `find` has found. Returns the same table, or nil if nobody is left.
  function these.leave()
    call('ZREM', QUEUE, holder)
    if these.number or TERMS then
      call('HDEL', WAITERS, holder)
    end
    these.holders, slots = these.holders - 1, nil
    if these.holders > 0 then
      hold_until_last()
      return these
    end
    call('DEL', NAME)
  end

  -- A holder as others see it, like `view`, then its mode, and the number of its slot.
  function these.view(rank)
    local entry = call('ZRANGE', QUEUE, rank, rank, 'WITHSCORES')
    local token, left = entry[1], -entry[2] - now_ms
    if these.phase then
      return { 'string', token, left, number_of(token), -1, 'shared' }
    end
    local mode, number, first = match(call('HGET', WAITERS, token) or '', '^(slot/%d+) (%d+) (%d+) %d+$')
    if not mode then
      return { 'string', token, left, '', -1 }
    end
    return { 'string', token, left, first, format('%.0f', math.max(time() - tonumber(first), 0)), mode, number }
  end

  if not marker then
    return these
  end
  local phase = match(marker, '^lh1%-shared#(%d+)$')
  if not (phase and tonumber(phase) <= 9007199254740991 or marker == 'lh1-slots' and not TERMS) then
    return marker, 'string'
  end
  local alive = call('ZCOUNT', QUEUE, '-inf', format('-%.0f', now_ms))
  if alive == 0 then
    -- The last holder has ended, if the marker is in its last millisecond, too.
    local ended = call('PTTL', NAME) == 0 and call('ZCOUNT', QUEUE, expired, '(0') > 0
    return not ended and marker, ended and 'none' or 'string'
  elseif not phase and call('HLEN', WAITERS) ~= call('ZCARD', QUEUE) then
    -- Each has a record, so one is lost.
    return marker, 'string'
  end
  these.mode, these.phase, these.holders = phase and 'shared' or 'slots', phase, alive
  last_end = -call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2]
  these.memory = format('%.0f', math.max(last_end - now_ms, 60000))
  return these, 'several'
end
