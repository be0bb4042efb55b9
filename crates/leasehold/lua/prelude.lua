-- Shared by every script of every family: the parts of `leasehold-core` that all verbs need, rule for rule.
-- Prepended to each verb's file after its `#!lua` line. It writes nothing by being loaded.
--
-- KEYS[1] NAME     string  the holder's token, with the lease as its TTL
-- KEYS[2] FENCE    string  the last fence
-- KEYS[3] QUEUE    zset    waiters' tokens by arrival
-- KEYS[4] WAITERS  hash    token -> "<mode> <ttl ms> <channel or -> <seen until, ms>"
local NAME, FENCE, QUEUE, WAITERS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local CLAIM_WINDOW = 3000
local WAITER_GRACE = 15000
local FENCE_MEMORY = 86400000
local FENCE_BLOCK = 64
local FENCE_MAX = 9007199254740991
-- Longer than any waiter's "seen until" reaches: what is left of a queue that everyone abandoned goes by itself.
local QUEUE_MEMORY = 60000

-- Redis' clock is the only one: expiry is judged by the TTL of NAME, all else by TIME.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now_us / 1000)

-- What is ours (core: Owner::parse): in host and note, ASCII that can be seen, without colons.
local OURS = '^lh1%.' .. ('[0-9a-f]'):rep(32) .. '%.' .. ('[0-9a-f]'):rep(16) .. '%.[!-9;-~]*:%d+:[!-9;-~]*$'

-- Numbers beyond 2^31 would be written as 1.76e+15.
local function digits(number)
  return string.format('%.0f', number)
end

-- Who holds NAME: its value and its type; false and 'none' when it is free.
-- Another program may keep any type there (Redisson a hash, Symfony a zset): held, and never an error.
local function look()
  local value = redis.pcall('GET', NAME)
  if type(value) ~= 'table' then
    return value, value and 'string' or 'none'
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value)
  end
  return '', redis.call('TYPE', NAME).ok
end

-- What nobody could have issued counts as lost (core: Fence::after).
local function last_fence()
  local text = redis.call('GET', FENCE)
  local last = text and string.match(text, '^%d+$') and tonumber(text)
  return last and last <= FENCE_MAX - FENCE_BLOCK and last or nil
end

-- Above every fence issued before, even if the last one was lost (core: Fence::after).
local function next_fence()
  local last = last_fence()
  return math.min(math.max(last and last + FENCE_BLOCK or 0, now_us), FENCE_MAX)
end

-- The only place where anyone becomes a holder: value, lease and fence in one step.
local function grant(owner, ttl, fence)
  redis.call('SET', NAME, owner, 'PX', ttl)
  redis.call('SET', FENCE, digits(fence), 'PX', FENCE_MEMORY)
end

-- The owner holds NAME: a new deadline for it and for the fence. A fence that was evicted is drawn anew.
local function hold(ttl)
  -- What may fail comes first: a step that answers with an error has changed nothing.
  local fence, queued = last_fence(), redis.call('ZCARD', QUEUE)
  redis.call('PEXPIRE', NAME, ttl)
  if fence then
    redis.call('PEXPIRE', FENCE, FENCE_MEMORY)
  else
    fence = next_fence()
    redis.call('SET', FENCE, digits(fence), 'PX', FENCE_MEMORY)
  end
  return { 'held', digits(fence), queued }
end

-- Tells a waiter, and whether it can have heard. PUBLISH says how many did: zero proves the waiter's client gone. More
-- than zero proves nothing while someone listens to every channel by a pattern, so those of this very channel are counted
-- as well. An error (no permission) proves nothing either.
local function hears(channel, wake)
  local heard = redis.pcall('PUBLISH', channel, wake)
  if heard == 0 then
    return false
  end
  local listening = redis.pcall('PUBSUB', 'NUMSUB', channel)
  return listening.err ~= nil or listening[2] ~= 0
end

-- Hands a free lock to the first living waiter, for the claim window, and tells it. `caller` is alive and needs no
-- telling. One that cannot hear is dropped, and the next one tried at once.
-- A waiter without a channel only polls, so nothing is proved. Returns what `look` returns, afterwards.
local function advance(caller)
  local value, kind = look()
  while kind == 'none' do
    local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not head then
      break
    end
    local record = redis.call('HGET', WAITERS, head) or ''
    local ttl, channel, seen_until = string.match(record, '^%S+ (%d+) (%S+) (%d+)$')
    local alive, fence = head == caller and ttl, next_fence()
    if not alive and ttl and tonumber(seen_until) >= now_ms then
      alive = channel == '-' or hears(channel, digits(fence) .. ' ' .. head .. ' ' .. NAME)
    end
    redis.call('ZREM', QUEUE, head)
    redis.call('HDEL', WAITERS, head)
    if alive then
      grant(head, math.min(tonumber(ttl), CLAIM_WINDOW), fence)
      value, kind = head, 'string'
    end
  end
  return value, kind
end

-- The holder as others see it: type, value, lease left (-1: for ever), fence or '', microseconds held or -1.
local function view(value, kind)
  if kind == 'none' then
    return { 'none', '', 0, '', -1 }
  end
  local fence = string.match(value, OURS) and last_fence()
  local held_for = fence and digits(math.max(now_us - fence, 0)) or -1
  return { kind, value, redis.call('PTTL', NAME), fence and digits(fence) or '', held_for }
end
