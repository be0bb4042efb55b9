#!lua
-- Take the mutex, find that this owner has it already, or join the queue.
--
-- KEYS  see prelude.lua
-- ARGV  1 owner token  2 TTL in ms  3 mode  4 '' ask once, '-' queue and poll, else queue and be told on this channel
-- Reply {'held', fence, queued}
--       {'busy', ahead, poll_after in ms, view}
--
-- Closes the race between taking a lock and knowing it: value, lease and fence are set in one step, and a retry after
-- a lost reply by the same owner finds its own token and answers 'held' again.
-- Not declared allow-oom: a full server refuses it before it has written anything.
local owner, ttl, mode, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local value, kind = advance(owner)
if value == owner then
  return hold(ttl)
end
if kind == 'none' then
  -- After `advance`, a free lock has no waiter.
  local fence = next_fence()
  grant(owner, ttl, fence)
  return { 'held', digits(fence), 0 }
end

local rank = redis.call('ZRANK', QUEUE, owner)
local ahead = rank or redis.call('ZCARD', QUEUE)
local seen = view(value, kind)

-- 250 ms for each place in line; the first also asks when the lease ends (one millisecond after its last), and every
-- 50 ms if the holder is foreign and will wake nobody (core: poll_after).
local poll_after = math.min(250 * (ahead + 1), 15000)
if ahead == 0 then
  if seen[4] == '' and not string.match(value, OURS) then
    poll_after = 50
  end
  if seen[3] >= 0 then
    poll_after = math.min(poll_after, seen[3] + 1)
  end
end

if channel ~= '' then
  local last = redis.call('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
  local seen_until = digits(now_ms + poll_after + WAITER_GRACE)
  -- Fails if WAITERS is something else; from here on nothing does.
  redis.call('HSET', WAITERS, owner, mode .. ' ' .. ttl .. ' ' .. channel .. ' ' .. seen_until)
  redis.call('PEXPIRE', WAITERS, QUEUE_MEMORY)
  if not rank then
    redis.call('ZADD', QUEUE, digits(math.max(last and last + 1 or 0, now_us)), owner)
  end
  redis.call('PEXPIRE', QUEUE, QUEUE_MEMORY)
end
return { 'busy', ahead, poll_after, seen }
