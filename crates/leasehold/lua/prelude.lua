-- Shared by the long forms of the mutex's scripts: the parts of `leasehold-core` that its verbs need, rule for rule. The short
-- forms (take.lua, settle.lua) carry nothing of it, and answer before any change when a step needs it.
-- Comes after the `#!lua` line, then the verbs, then what calls them. It does nothing by being loaded.
--
-- Redis carries a script out from its first line each time, so each function here costs every step a little; one that few
-- steps need is defined inside of what they call. Arguments of commands are strings: a number of Lua's costs as much as
-- a whole command.
local call, match = redis.call, string.match
local KEYS, ARGV = KEYS, ARGV

-- COUNTER  string  the last fence drawn, for whichever lock
local COUNTER = KEYS[1]
-- The keys of the lock that a step is about, set by `each`:
-- NAME     string  '<token>#<fence>' of the holder, with the lease as its TTL; then '/<how many>' if more than one fence was
--                  drawn, and '!' once somebody waits
-- QUEUE    zset    waiters' tokens by arrival
-- WAITERS  hash    token -> "<mode> <ttl ms> <fences> <channel or -> <seen until, ms>"
local NAME, QUEUE, WAITERS

local CLAIM_WINDOW = 3000
local WAITER_GRACE = 15000
local UNHEARD_GRACE = 2000
local PASSED_OVER = 32
local SHORT_CLAIM = 1000
local SOON = 50
local FENCE_MAX = 9007199254740991
local BLOCK_MOST = 1024
-- No value of ours is as long. A longer one is cut wherever it is looked at (core: VALUE_SHOWN).
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

-- Who is to be told at the end of this step that a short claim has begun before it: its channel and its token.
local sleeper_channel, sleeper

-- Who holds NAME, if it is an owner of ours: its token, the first of its fences as it is written, how many were drawn, whether
-- others are known to wait, and all of that as it stands there. Set by `look` and `grant`.
local holder, fence, block, contended, written

-- The first of the fences of the next grant: above all that were drawn before, even if the counter was lost (core:
-- Counter::draw). Fails, before anything has changed, if COUNTER is something else.
local function next_fence()
  local last, first = call('GET', COUNTER), time()
  last = last and not string.find(last, '%D') and tonumber(last)
  return last and last >= first and last <= FENCE_MAX - BLOCK_MOST and last + 1 or first
end

-- The only place where anyone becomes a holder: its fences, its value and its lease in one step. NAME is free.
local function grant(token, ttl, first, wanted, others_wait)
  holder, fence, block, contended = token, digits(first), tonumber(wanted), others_wait
  -- Before the lock: if a server fails between the two, some numbers are not used.
  call('SET', COUNTER, digits(first + block - 1))
  written = token .. '#' .. fence .. (block > 1 and '/' .. wanted or '') .. (others_wait and '!' or '')
  call('SET', NAME, written, 'PX', ttl)
end

-- The reply to the holder, in one text: a table costs more for each of its fields. Its fence is the grant's, also when a
-- lost reply is asked for again.
local function held(queued)
  return 'held ' .. fence .. ' ' .. block .. ' ' .. queued
end

-- The owner holds NAME: a new deadline for it.
local function hold(ttl)
  -- First, since it fails if QUEUE is something else.
  local queued = call('ZCARD', QUEUE)
  call('PEXPIRE', NAME, ttl)
  if contended and queued == 0 then
    -- Its next steps may be short ones. A full server may refuse it.
    redis.pcall('SET', NAME, string.sub(written, 1, -2), 'KEEPTTL')
  end
  return held(queued)
end

-- The client of a token of ours, false for any other value (core: Owner::parse). In host and note stands ASCII that can
-- be seen, without colons and '#'.
local function client_of(token)
  local id, client = match(token, '^lh1%.([0-9a-f]+)%.([0-9a-f]+)%.[!"$-9;-~]*:%d+:[!"$-9;-~]*$')
  return id and #id == 32 and #client == 16 and client
end

-- Who holds NAME: the beginning of its value and its type; false and 'none' when it is free.
-- Another program may keep anything there. A value of many megabytes must not be copied for each who asks: that would keep
-- the server from all others, and what is answered would cut the connections of those who wait. Another type (Redisson has
-- a hash, Symfony a zset) is held, and never an error.
local function look()
  holder = nil
  local value = redis.pcall('GETRANGE', NAME, '0', '1023')
  if type(value) ~= 'table' then
    if value == '' then
      -- Nothing, or an empty string.
      local kind = call('TYPE', NAME).ok
      return kind ~= 'none' and '', kind
    end
    local token, first, more, mark = match(value, '^([^#]+)#(%d+)(/?%d*)(!?)$')
    local drawn = more == '' and 1 or tonumber(match(more or '', '^/(%d+)$') or 0)
    local is_ours = token and #value < VALUE_SHOWN and client_of(token)
    if is_ours and drawn >= 1 and drawn <= BLOCK_MOST and tonumber(first) <= FENCE_MAX then
      holder, fence, block, contended, written = token, first, drawn, mark ~= '', value
    end
    return value, 'string'
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value)
  end
  return '', call('TYPE', NAME).ok
end

-- Whether `token` holds NAME, by the grant of the fence under which it believes to hold; false if it knows none (core: C8).
local function holds(token, believed)
  local by = believed and believed - tonumber(holder and fence or 0)
  return token == holder and (not by or by >= 0 and by < block)
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
    return token, match(record, '^(%S+ (%d+) (%d+) (%S+) )(%d+)$')
  end

  -- The first of those from `place` on who can be told and would sleep past the end of a claim (core: sleeper).
  local function find_sleeper(window)
    local due = now_ms + WAITER_GRACE
    for at = place, math.min(behind, place + PASSED_OVER) - 1 do
      local token, terms, _, _, channel, seen_until = waiter(at)
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
    local token, terms, ttl, wanted, channel, seen_until = waiter(place)
    if not ttl or token ~= caller and tonumber(seen_until) < now_ms then
      drop(token)
      dropped = true
    elseif held and not foreign then
      return 0
    else
      local others, news = behind - 1, not foreign or dropped or left and left <= place
      local function message(fences)
        if foreign then
          return 'first ' .. token .. ' ' .. NAME
        end
        return table.concat({ 'granted', fences, digits(time()), others, token, NAME }, ' ')
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
        local first = next_fence()
        -- Before anybody is told: a server that refuses changes refuses here.
        drop(token)
        grant(token, tonumber(ttl) < CLAIM_WINDOW and ttl or CLAIM_WINDOW, first, wanted, others > 0)
        if not told then
          redis.pcall('PUBLISH', channel, message(fence .. (block > 1 and '/' .. wanted or '')))
        end
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

-- The holder as others see it: type, token or foreign value, lease left (-1: for ever), its grant's fence or '', microseconds
-- since or -1.
local function view(value, kind)
  if kind == 'none' then
    return { 'none', '', 0, '', -1 }
  end
  local left = call('PTTL', NAME)
  if not holder then
    return { kind, value, left, '', -1 }
  end
  return { kind, holder, left, fence, digits(math.max(time() - tonumber(fence), 0)) }
end

-- Takes the steps of a batch in their order. Each has three keys, in the order above, and `width` arguments. The locks
-- may be different ones or the same, and in a cluster of any slot (which a cluster refuses; there is none as yet).
-- The reply has one for each step. The error of a step is that step's only: {'error', what it says}.
local function each(width, step)
  local replies = {}
  for number = 1, (#KEYS - 1) / 3 do
    local key, argument = number * 3 - 1, (number - 1) * width + 1
    NAME, QUEUE, WAITERS = KEYS[key], KEYS[key + 1], KEYS[key + 2]
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
