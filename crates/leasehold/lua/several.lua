-- The functions for locks that several hold: readers, or holders of the slots of a semaphore. `several` defines them
-- when a step needs them, which no step of a mutex does. This text follows prelude.lua.
--
-- NAME is a marker then: 'lh1-shared#<fence of the phase>' or 'lh1-slots', until the end of the last holder.
-- The holders stand in QUEUE before the waiters. The score of a holder is minus its end in ms, so the last to end comes
-- first, and holders with one end are ordered by their tokens (core: Holder::order).
-- A holder of a slot has a record in WAITERS: 'slot/<of> <number> <first fence> <how many>'. A reader has none.
--
-- A hold counts only while the marker is there: whoever deletes or overwrites NAME has ended all of them, as with a
-- mutex. A marker whose holders are lost counts as foreign, since nobody knows until when they hold. Both leave nothing
-- that lets in two who do not admit each other.
--
-- Called with the value of NAME, it returns the same as `look`.
several = function(marker)
  local now_ms = math.floor(time() / 1000)
  -- The fence of the readers, the last end among the holders, and the numbers of the slots that are taken.
  local phase, last_end, taken
  local expired = '(-' .. digits(now_ms)

  -- Removes the holders with scores from there on, in one command. Returns how many they were.
  forget = function(from)
    -- More than these are readers.
    local gone = crowd ~= 'shared' and call('ZRANGEBYSCORE', QUEUE, from, '(0', 'LIMIT', '0', '1000') or {}
    if gone[1] then
      call('HDEL', WAITERS, unpack(gone))
    end
    return call('ZREMRANGEBYSCORE', QUEUE, from, '(0')
  end

  -- Removes the holders that have expired. Each step that changes something does this first: it takes no memory, and the
  -- first change of a script decides on a full server of Redis 6.2.
  expire = function()
    forget(expired)
  end

  -- The numbers of the slots that are taken; false if one is lost.
  local function numbers()
    if taken == nil then
      taken = {}
      local tokens = holders > 0 and call('ZRANGE', QUEUE, '0', digits(holders - 1)) or {}
      for _, record in ipairs(tokens[1] and call('HMGET', WAITERS, unpack(tokens)) or {}) do
        local number = match(record or '', '^slot/%d+ (%d+) %d+ %d+$')
        if not number then
          taken = false
          break
        end
        taken[tonumber(number)] = true
      end
    end
    return taken
  end

  -- core: Mode::admits
  admits = function(mode)
    local of = match(mode, '^slot/(%d+)')
    return not crowd or crowd == 'shared' and mode == crowd
      or crowd == 'slots' and of and holders < tonumber(of) and numbers()
  end

  -- The keys beside the lock outlast the last holder.
  local function outlast()
    local left = last_end - now_ms
    memory = digits(math.max(left, QUEUE_MEMORY))
    if call('PTTL', QUEUE) < left or crowd == 'slots' and call('PTTL', WAITERS) < left then
      call('PEXPIRE', QUEUE, left)
      call('PEXPIRE', WAITERS, left)
    end
  end

  -- Sets the end of NAME to that of the last holder.
  local function hold_until_last()
    last_end = -call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2]
    -- A holder counts in its last millisecond, and Redis deletes a key whose end is now.
    call('PEXPIREAT', NAME, digits(math.max(last_end, now_ms + 1)))
    outlast()
  end

  -- The smallest number of a slot that no holder has (core: free_slot).
  local function free_slot()
    local all, free = numbers(), 1
    while all[free] do
      free = free + 1
    end
    all[free] = true
    return free
  end

  -- The only function that makes an owner one of several holders. The lock is free, or its holders admit this one.
  join = function(token, ttl, mode, wanted)
    local kind, first = mode == 'shared' and mode or 'slots', not phase and next_fence()
    holder, fence, block, number = token, phase, 1, nil
    if kind == 'slots' then
      block, fence, number = tonumber(wanted), digits(first), free_slot()
    elseif first then
      fence, phase = digits(first), digits(first)
    end
    -- Written before the lock: if the server fails in between, some fences stay unused.
    if first then
      call('SET', COUNTER, digits(first + block - 1))
    end
    if number then
      call('HSET', WAITERS, token, table.concat({ mode, number, fence, block }, ' '))
    end
    local until_ms = now_ms + ttl
    call('ZADD', QUEUE, '-' .. digits(until_ms), token)
    holders = holders + 1
    if not crowd then
      crowd, last_end = kind, until_ms
      call('SET', NAME, kind == 'shared' and 'lh1-shared#' .. fence or 'lh1-slots', 'PX', ttl)
      outlast()
    elseif until_ms > last_end then
      hold_until_last()
    end
  end

  -- Makes the caller the holder, as `look` does for a mutex, if it is one of them.
  find = function(token)
    holder, number = nil, nil
    local score = call('ZSCORE', QUEUE, token)
    if not score or tonumber(score) >= 0 then
      return
    end
    holder, fence, block = token, phase, 1
    if crowd == 'slots' then
      local of, first, drawn
      of, number, first, drawn = match(call('HGET', WAITERS, token) or '', '^(slot/%d+) (%d+) (%d+) (%d+)$')
      holder, fence, block = of and token, first, tonumber(drawn)
    end
  end

  -- Gives the caller, which `find` has found, a new deadline.
  renew = function(ttl)
    call('ZADD', QUEUE, '-' .. digits(now_ms + ttl), holder)
    hold_until_last()
  end

  -- Ends the hold of the caller, which `find` has found.
  leave = function()
    call('ZREM', QUEUE, holder)
    if number then
      call('HDEL', WAITERS, holder)
    end
    holders, taken, number = holders - 1, nil, nil
    if holders > 0 then
      hold_until_last()
    else
      call('DEL', NAME)
      crowd, phase = nil, nil
    end
  end

  -- Ends the holds with this fence: of all readers of the phase, or of a slot; of two, if the counter was lost. False if
  -- there is none.
  evict = function(seen)
    if crowd == 'shared' then
      if seen ~= tonumber(phase) then
        return false
      end
      -- `serve` follows, and forgets them.
      call('DEL', NAME)
      crowd, phase, holders = nil, nil, 0
      return true
    end
    local is_ended = false
    for _, token in ipairs(call('ZRANGE', QUEUE, '0', digits(holders - 1))) do
      if holds(token, seen) then
        leave()
        is_ended = true
      end
    end
    return is_ended
  end

  -- A holder as others see it, like `view`, with its mode and the number of its slot.
  view_of = function(rank)
    local at = digits(rank)
    local entry = call('ZRANGE', QUEUE, at, at, 'WITHSCORES')
    local token, left = entry[1], -entry[2] - now_ms
    if crowd == 'shared' then
      return { 'string', token, left, phase, -1, crowd }
    end
    local mode, number, first = match(call('HGET', WAITERS, token) or '', '^(slot/%d+) (%d+) (%d+) %d+$')
    if not mode then
      return { 'string', token, left, '', -1 }
    end
    return { 'string', token, left, first, digits(math.max(time() - tonumber(first), 0)), mode, number }
  end

  -- Tells the holders that the first waiter asks: one of each client, of the first 16 holders.
  want = function()
    local told = {}
    for _, token in ipairs(call('ZRANGE', QUEUE, '0', digits(math.min(holders, 16) - 1))) do
      local client = client_of(token)
      if client and not told[client] then
        told[client] = true
        redis.pcall(PUBLISH, 'leasehold:wake:' .. TAG .. client, 'wanted ' .. token .. ' ' .. NAME)
      end
    end
  end

  local first = match(marker or '', '^lh1%-shared#(%d+)$')
  if first and tonumber(first) <= FENCE_MAX then
    phase = first
  elseif marker ~= 'lh1-slots' then
    return marker, 'string'
  end
  local alive = call('ZCOUNT', QUEUE, '-inf', '-' .. digits(now_ms))
  if alive == 0 then
    -- The last holder has ended, if the marker is in its last millisecond, too.
    local ended = call('PTTL', NAME) == 0 and call('ZCOUNT', QUEUE, expired, '(0') > 0
    return not ended and marker, ended and 'none' or 'string'
  elseif not phase and call('HLEN', WAITERS) ~= call('ZCARD', QUEUE) then
    -- Each has a record, so one is lost.
    return marker, 'string'
  end
  crowd, holders = phase and 'shared' or 'slots', alive
  last_end = -call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2]
  memory = digits(math.max(last_end - now_ms, QUEUE_MEMORY))
  return marker, 'string'
end
