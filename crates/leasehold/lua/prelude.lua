-- Shared by every script of the mutex: the parts of `leasehold-core` that its verbs need, rule for rule.
-- Comes after the `#!lua` line, then the verbs, then what calls them. It does nothing by being loaded.
--
-- Redis carries a script out from its first line each time, so each function here costs every step a little; one that few
-- steps need is defined inside of what they call. Arguments of commands are strings: a number of Lua's costs as much as
-- a whole command.
local call, find = redis.call, string.find
local KEYS, ARGV = KEYS, ARGV

-- The keys of the lock that a step is about, set by `each`:
-- NAME     string  the holder's token, with the lease as its TTL
-- FENCE    string  the last fence; if its holder has drawn more since the grant, a space and the grant's fence as well
-- QUEUE    zset    waiters' tokens by arrival
-- WAITERS  hash    token -> "<mode> <ttl ms> <channel or -> <seen until, ms>"
local NAME, FENCE, QUEUE, WAITERS

local CLAIM_WINDOW = 3000
local WAITER_GRACE = 15000
local UNHEARD_GRACE = 2000
local PASSED_OVER = 32
local SHORT_CLAIM = 1000
local SOON = 50
local FENCE_MEMORY = '86400000'
local FENCE_BLOCK = 64
local FENCE_REFILL = 16
local FENCE_MAX = 9007199254740991
-- No token of ours is as long. A longer value is cut wherever it is looked at (core: VALUE_SHOWN).
local VALUE_SHOWN = 1024
-- Longer than any waiter's "seen until" reaches: what is left of a queue that everyone abandoned goes by itself.
local QUEUE_MEMORY = '60000'

-- Redis' clock is the only one: expiry is judged by the TTL of NAME, all else by TIME, in microseconds. Asked by the first
-- who needs it: all steps of a script are taken at one moment.
local now, now_text
local function time()
  if not now then
    local clock = call('TIME')
    now = clock[1] * 1000000 + clock[2]
    now_text = string.format('%.0f', now)
  end
  return now
end

-- Numbers beyond 2^31 would be written as 1.76e+15. It is mostly the time that is asked for.
local function digits(number)
  return number == now and now_text or string.format('%.0f', number)
end

-- What FENCE holds: the last fence and that of the last grant, and both as they are written; false if there is none. What
-- nobody could have written counts as lost (core: Fence::after).
local function fences_of(text)
  if not text then
    return false
  end
  local of_grant = text
  if find(text, '%D') then
    text, of_grant = string.match(text, '^(%d+) (%d+)$')
  end
  local fence = tonumber(text or '')
  if not fence or fence > FENCE_MAX - FENCE_BLOCK then
    return false
  end
  if of_grant == text then
    return fence, fence, text, text
  end
  local first = tonumber(of_grant)
  if first > fence then
    return false
  end
  return fence, first, text, of_grant
end

-- Who is to be told at the end of this step that a short claim has begun before it: its channel and its token.
local sleeper_channel, sleeper

-- That, for the FENCE of this step. `last` is nil while it was not read, false when there is none.
local last, granted, last_text, granted_text
local function last_fence()
  if last == nil then
    last, granted, last_text, granted_text = fences_of(call('GET', FENCE))
  end
  return last
end

-- Above every fence issued before, even if the last one was lost (core: Fence::after).
local function fence_after(before)
  local fence = time()
  if before and before + FENCE_BLOCK > fence then
    fence = before + FENCE_BLOCK
  end
  return fence < FENCE_MAX and fence or FENCE_MAX
end

-- The fence of a grant, or of a holder whose fence was lost; the grant's may be another one.
local function remember(fence, of_grant)
  last, last_text = fence, digits(fence)
  granted, granted_text = of_grant or fence, of_grant and digits(of_grant) or last_text
  call('SET', FENCE, of_grant and last_text .. ' ' .. granted_text or last_text, 'PX', FENCE_MEMORY)
end

-- The only place where anyone becomes a holder: value, lease and fence in one step. False if the lock is not free, and
-- then nothing has changed.
local function grant(owner, ttl)
  time()
  if not call('SET', NAME, owner, 'NX', 'PX', ttl) then
    return false
  end
  -- One command reads the last fence and writes what is mostly the next one.
  local before = redis.pcall('SET', FENCE, now_text, 'PX', FENCE_MEMORY, 'GET')
  if type(before) == 'table' then
    -- A step that answers with an error has changed nothing.
    call('DEL', NAME)
    error(before)
  end
  last, granted, last_text, granted_text = now, now, now_text, now_text
  local fence = fence_after((fences_of(before)))
  if fence ~= now then
    remember(fence)
  end
  return true
end

-- The reply to the holder, in one text: a table costs more for each of its fields. Its fence is the grant's, also when a
-- lost reply is asked for again.
local function held(queued)
  return 'held ' .. granted_text .. ' ' .. queued
end

-- The owner holds NAME: a new deadline for it and for the fence. With `refill`, the next 16 blocks of fences are drawn for
-- it, and the last one's first fence is the last fence (core: Fence::refill) and the answer; others go on to know it by
-- that of its grant. What was evicted is drawn anew, above the fence that the holder says it has: that one goes on to be its
-- grant's (core: restore).
local function hold(ttl, refill, own)
  own = own and own <= FENCE_MAX - FENCE_BLOCK and own
  local queued, first = call('ZCARD', QUEUE), not last_fence() and fence_after(own)
  -- Before SET, since it takes no memory: a full server of version 6 refuses a script's first change if that does.
  call('PEXPIRE', NAME, ttl)
  if first and own then
    remember(first, own)
    first = false
  end
  if refill then
    if first then
      granted, granted_text = first, digits(first)
    end
    last = math.min((first or fence_after(last)) + (FENCE_REFILL - 1) * FENCE_BLOCK, FENCE_MAX)
    last_text = digits(last)
    call('SET', FENCE, last_text .. ' ' .. granted_text, 'PX', FENCE_MEMORY)
    return 'held ' .. last_text .. ' ' .. queued
  end
  if first then
    remember(first)
  else
    call('PEXPIRE', FENCE, FENCE_MEMORY)
  end
  return held(queued)
end

-- Who holds NAME: the beginning of its value and its type; false and 'none' when it is free.
-- Another program may keep anything there. A value of many megabytes must not be copied for each who asks: that would keep
-- the server from all others, and what is answered would cut the connections of those who wait. Another type (Redisson has
-- a hash, Symfony a zset) is held, and never an error.
local function look()
  local value = redis.pcall('GETRANGE', NAME, '0', '1023')
  if type(value) ~= 'table' then
    if value ~= '' then
      return value, 'string'
    end
    -- Nothing, or an empty string.
    local kind = call('TYPE', NAME).ok
    return kind ~= 'none' and '', kind
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value)
  end
  return '', call('TYPE', NAME).ok
end

-- Looks for the first waiter that is alive and can be told; `caller` is both. One that is silent is dropped. One that cannot
-- be told is passed over, since its client may be connecting anew, and keeps its place for 2 s, or longer if it asks again:
-- up to 32 of them, since each is looked for again at each step, and the others are dropped.
--
-- A lock that is free goes to the waiter that was found, for the claim window, and it is told. If that ends within a second,
-- so is the next one, unless it asks soon after by itself. Returns what `look` would, afterwards.
-- `held` by one of ours, a lock keeps who cannot be told: only the silent at the front are dropped (core: drop_dead).
--
-- A lock that is held by a 'foreign' one wakes nobody when it ends, so the first in line looks often. Who is the first just now,
-- since one before it was dropped or the waiter at the place `left` has left, is told so. Returns how many were passed over.
local function serve(caller, held, left)
  local behind, place, dropped, foreign = call('ZCARD', QUEUE), 0, false, held == 'foreign'
  if behind == 0 then
    return false, 'none'
  end
  local now_ms = math.floor(time() / 1000)

  local function drop(token)
    call('ZREM', QUEUE, token)
    call('HDEL', WAITERS, token)
    behind = behind - 1
  end

  -- Whether a waiter can be told, and whether it was. It is counted before anything is said: a PUBLISH also reaches who
  -- listens at a replica, uncounted, and such a one must not hear of a grant that it does not get. Those who listen to every
  -- channel by a pattern are not counted. Where counting is not permitted, PUBLISH counts, and what it says has no fence, so
  -- that the grant has to be claimed. An error (no permission) proves nothing.
  local function hears(channel, blind)
    local heard = redis.pcall('PUBSUB', 'NUMSUB', channel)
    if not heard.err then
      return heard[2] ~= 0, false
    end
    return not blind or redis.pcall('PUBLISH', channel, blind) ~= 0, true
  end

  local function waiter(at)
    at = digits(at)
    local token = call('ZRANGE', QUEUE, at, at)[1]
    local record = call('HGET', WAITERS, token) or ''
    return token, string.match(record, '^(%S+ (%d+) (%S+) )(%d+)$')
  end

  -- The first of those from `place` on who can be told and would sleep past the end of a claim (core: sleeper).
  local function find_sleeper(window)
    local due = now_ms + WAITER_GRACE
    for at = place, math.min(behind, place + PASSED_OVER) - 1 do
      local token, terms, _, channel, seen_until = waiter(at)
      seen_until = tonumber(terms and seen_until or 0)
      if token == caller or seen_until >= due and seen_until <= due + window + SOON then
        return
      end
      if seen_until >= now_ms and channel ~= '-' and hears(channel) then
        sleeper_channel, sleeper = channel, token
        return
      end
    end
  end

  while place < behind do
    local token, terms, ttl, channel, seen_until = waiter(place)
    if not ttl or token ~= caller and tonumber(seen_until) < now_ms then
      drop(token)
      dropped = true
    elseif held and not foreign then
      return 0
    else
      local others, news = behind - 1, not foreign or dropped or left and left <= place
      local function message(fence)
        if foreign then
          return 'first ' .. token .. ' ' .. NAME
        end
        return table.concat({ 'granted', fence, digits(time()), others, token, NAME }, ' ')
      end
      -- Who asks is about to be answered; a waiter without a channel only polls, so nothing is proved.
      local able, told = true, token == caller or channel == '-'
      if not told then
        able, told = hears(channel, news and message('-'))
      end

      if able and foreign then
        if news and not told then
          redis.pcall('PUBLISH', channel, message())
        end
        return place
      elseif able then
        local fence = digits(fence_after(last_fence()))
        -- Before anybody is told: a server that refuses changes refuses here.
        drop(token)
        if not told then
          redis.pcall('PUBLISH', channel, message(fence))
        end
        grant(token, tonumber(ttl) < CLAIM_WINDOW and ttl or CLAIM_WINDOW)
        sleeper = nil
        if tonumber(ttl) < SHORT_CLAIM then
          find_sleeper(tonumber(ttl))
        end
        return token, 'string'
      end

      local limit = now_ms + UNHEARD_GRACE
      if place == PASSED_OVER then
        drop(token)
        dropped = true
      else
        if tonumber(seen_until) > limit then
          -- Before HSET, since it takes no memory: see `hold`.
          call('PEXPIRE', QUEUE, QUEUE_MEMORY)
          call('PEXPIRE', WAITERS, QUEUE_MEMORY)
          call('HSET', WAITERS, token, terms .. digits(limit))
        end
        place = place + 1
      end
    end
  end
  if foreign then
    return place
  end
  return false, 'none'
end

-- The first part of every step but a look: a free lock goes to who waits. Returns who holds it then, as `look` does.
local function advance(caller)
  local value, kind = look()
  if kind == 'none' then
    return serve(caller)
  end
  return value, kind
end

-- The client of a token of ours, false for any other value (core: Owner::parse). In host and note stands ASCII that can
-- be seen, without colons and '#'.
local function client_of(token)
  local id, client =
    string.match(token, '^lh1%.([0-9a-f]+)%.([0-9a-f]+)%.[!"$-9;-~]*:%d+:[!"$-9;-~]*$')
  return id and #id == 32 and #client == 16 and #token < VALUE_SHOWN and client
end

-- The holder as others see it: type, value, lease left (-1: for ever), its grant's fence or '', microseconds since or -1.
local function view(value, kind)
  if kind == 'none' then
    return { 'none', '', 0, '', -1 }
  end
  local known = client_of(value) and last_fence()
  local held_for = known and digits(math.max(time() - granted, 0)) or -1
  return { kind, value, call('PTTL', NAME), known and granted_text or '', held_for }
end

-- Takes the steps of a batch in their order. Each has four keys, in the order above, and `width` arguments. The locks
-- may be different ones or the same, and in a cluster of any slot (which a cluster refuses; there is none as yet).
-- The reply has one for each step. The error of a step is that step's only: {'error', what it says}.
local function each(width, step)
  local replies = {}
  for number = 1, #KEYS / 4 do
    local key, argument = number * 4 - 3, (number - 1) * width + 1
    NAME, FENCE, QUEUE, WAITERS = KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]
    last = nil
    local done, reply = pcall(step, unpack(ARGV, argument, argument + width - 1))
    if sleeper then
      redis.pcall('PUBLISH', sleeper_channel, 'first ' .. sleeper .. ' ' .. NAME)
      sleeper = nil
    end
    replies[number] = done and reply
      or { 'error', type(reply) == 'table' and reply.err or tostring(reply) }
  end
  return replies
end
