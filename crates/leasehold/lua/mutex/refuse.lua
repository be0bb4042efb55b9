-- Refuse a request for a lock that another holds. The request joins the queue, or keeps its place, if it waits.
--
-- KEYS  see prelude.lua
-- ARGV  see acquire.lua
-- Reply {'busy', ahead, poll_after in ms, now in us, view}, then how many others hold the lock, if some do
--
-- Closes the race between a refusal and joining the queue: no release can come in between.
local function refuse(owner, ttl, mode, wanted, channel, value, kind)
  local these = kind == 'several' and value
  local is_ours, holders = holder or these, these and these.holders or 0
  if not is_ours and tonumber(call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2] or 0) < 0 then
    -- Somebody has overwritten a lock that several held.
    several().forget('-inf')
  end
  local queued, passed = call('ZCARD', QUEUE) - holders, 0
  local rank = queued > 0 and call('ZRANK', QUEUE, owner)
  if channel ~= '' and queued > 0 and rank ~= holders then
    local place = serve(owner, is_ours and 'ours' or 'foreign', nil, these)
    passed = not is_ours and place or 0
    rank = call('ZRANK', QUEUE, owner)
  end
  local ahead = (rank or queued > 0 and call('ZCARD', QUEUE) or holders) - holders
  -- A request for a slot waits for the next end, any other one for the last (core: Mode::waits_for).
  local seen = these and these.mode == 'slots' and string.sub(mode, 1, 5) == 'slot/' and these.view(holders - 1)
    or view(value, kind)

  -- Poll after one second for each place in the queue, or 250 ms for a client that receives no wakes. A foreign holder
  -- sends no wake: poll after 50 ms as the first waiter, 90 ms as one of the next. Waiters that cannot be told do not
  -- count. All waiters also ask when the lease ends (one millisecond after its last), each 10 ms after the previous one
  -- (core: poll_after).
  local places, poll_after = ahead - passed, 50
  if is_ours then
    poll_after = ((channel == '' or channel == '-') and 250 or 1000) * (places + 1)
  elseif places > PASSED_OVER then
    poll_after = 50 * (places + 2 - PASSED_OVER)
  elseif places > 0 then
    poll_after = 90
  end
  poll_after = math.min(poll_after, 15000)
  if seen[3] >= 0 then
    poll_after = math.min(poll_after, seen[3] + 1 + 10 * places)
  end

  local at_us = digits(time())
  if channel ~= '' then
    local behind = call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
    local seen_until = digits(math.floor(time() / 1000) + poll_after + WAITER_GRACE)
    -- Fails if WAITERS has another type. Nothing fails after this.
    call('HSET', WAITERS, owner, table.concat({ mode, ttl, wanted, channel, seen_until }, ' '))
    call('PEXPIRE', WAITERS, these and these.memory or QUEUE_MEMORY)
    if not rank then
      call('ZADD', QUEUE, digits(math.max(behind and behind + 1 or 0, time())), owner)
    end
    call('PEXPIRE', QUEUE, these and these.memory or QUEUE_MEMORY)
    if holder and not contended then
      -- From now on, the short forms leave this lock to the long ones.
      call('SET', NAME, written .. '!', 'KEEPTTL')
    end
    -- Tells the holder each time, since a message may get lost: a client that keeps the lock for its own tasks should
    -- give it up.
    if ahead == 0 and holder then
      redis.pcall(PUBLISH, 'leasehold:wake:' .. TAG .. client_of(holder), 'wanted ' .. holder .. ' ' .. NAME)
    elseif ahead == 0 and these then
      -- One of each client, of the first 16 holders.
      local told = {}
      for _, token in ipairs(call('ZRANGE', QUEUE, '0', math.min(holders, 16) - 1)) do
        local client = client_of(token)
        if client and not told[client] then
          told[client] = true
          redis.pcall(PUBLISH, 'leasehold:wake:' .. TAG .. client, 'wanted ' .. token .. ' ' .. NAME)
        end
      end
    end
  end
  return { 'busy', ahead, poll_after, at_us, seen, holders > 1 and holders - 1 or nil }
end
