-- The functions that the long forms of the mutex's scripts share. They implement the same rules as
-- `leasehold-core`. The short forms (take.lua, settle.lua) use none of them, and answer before any change when a
-- step needs one. Nor does hand_over.lua, which comes before this text.
-- This text follows the `#!lua` line; the verbs and their caller follow this text. Loading it changes nothing.
--
-- Redis runs a script from its first line each time, so each function costs every step a little. A function that few
-- steps need is defined inside its caller. Arguments of commands are strings, since converting a Lua number costs as
-- much as a whole command. A local that another function uses costs each step as well, so a number has its name where it
-- is used.
local call, match = redis.call, string.match
local KEYS, ARGV = KEYS, ARGV

-- COUNTER  string  the last fence drawn, for any lock; at a node of a quorum, for the locks of a bucket; in a cluster, of a slot
local COUNTER = KEYS[1]
-- In a cluster, a script publishes in the slot of its keys: a client's channel there has the hash tag of the counter.
local TAG, PUBLISH, NUMSUB = match(COUNTER, '^leasehold:fence:({%d+})$'), 'SPUBLISH', 'SHARDNUMSUB'
if TAG then
  TAG = TAG .. ':'
else
  TAG, PUBLISH, NUMSUB = '', 'PUBLISH', 'NUMSUB'
end
-- At a node of a quorum, one argument follows all others: how its client counts ('<nodes> <longest TTL in ms>'), and the
-- server that it talks to (the begin of its run_id).
local TERMS, SERVER = match(ARGV[#ARGV] or '', '^(%d+ %d+) (%x+)$')
-- The mark of the node, '<nodes> <longest TTL in ms> <when it was made, in ms> <server>', then ' young' during its
-- quarantine; false without one. Read by `each`.
local mark
-- The keys of the current step's lock, set by `each`:
-- NAME     string  '<token>#<fence>' of the holder, with the lease as its TTL; then '/<how many>' if more than one fence was
--                  drawn, and '!' once another client waits. If several hold it: see several.lua
-- QUEUE    zset    waiters' tokens by arrival; before them several holders
-- WAITERS  hash    token -> "<mode> <ttl ms> <fences> <channel or -> <seen until, ms>"; holders of slots; votes of readers
local NAME, QUEUE, WAITERS

local WAITER_GRACE = 15000
local PASSED_OVER = 32
local FENCE_MAX = 9007199254740991
local BLOCK_MOST = 1024
-- Longer than the "seen until" of any waiter, so that an abandoned queue expires.
local QUEUE_MEMORY = '60000'

-- Only Redis' clock counts. The TTL of NAME decides expiry, TIME (in microseconds) everything else. It is read when
-- first needed: all steps of a script happen at one moment.
local now, now_text
local function time()
  if not now then
    local clock = call('TIME')
    now = clock[1] * 1000000 + clock[2]
    now_text = string.format('%.0f', now)
  end
  return now
end

-- Lua would write numbers beyond 2^31 as 1.76e+15. The time is the most frequent number.
local function digits(number)
  return number == now and now_text or string.format('%.0f', number)
end

-- The channel and the token of a waiter that must be told at the end of this step that a short claim has begun before
-- it.
local sleeper_channel, sleeper

-- The holder of NAME, if it is an owner of this protocol: its token, the first of its fences as text, how many fences
-- were drawn, whether others are known to wait, and the whole value. Set by `look` and `grant`.
local holder, fence, block, contended, written

-- If several hold NAME, see several.lua: `look` returns a table with what is known of them, and the kind 'several'. The
-- functions below get it as `these`. Then `holder` is the caller, once `find` has found it among them.
local several

-- Of the last semaphore whose slots were read: its name, its holders, and the numbers that are taken.
local slots

-- The last fence drawn, or nil if it was lost. Fails, before any change, if COUNTER has another type.
local function last_fence()
  local last = call('GET', COUNTER)
  last = last and not string.find(last, '%D') and tonumber(last)
  return last and last <= FENCE_MAX - BLOCK_MOST and last or nil
end

-- The first fence of the next grant: above all fences drawn before, even if the counter was lost (core: Counter::draw).
local function next_fence()
  local last, first = last_fence(), time()
  return last and last >= first and last + 1 or first
end

-- The only function that makes an owner the holder: it sets fences, value and lease in one step. NAME is free.
local function grant(token, ttl, first, wanted, others_wait)
  holder, fence, block, contended = token, digits(first), tonumber(wanted), others_wait
  -- Written before the lock: if the server fails in between, some fences stay unused.
  call('SET', COUNTER, digits(first + block - 1))
  written = token .. '#' .. fence .. (block > 1 and '/' .. wanted or '') .. (others_wait and '!' or '')
  call('SET', NAME, written, 'PX', ttl)
end

-- The reply to the holder as one text: a table costs more for each of its fields. Its fence is that of the grant, also
-- when the owner repeats an acquire after a lost reply.
local function held(queued)
  return 'held ' .. fence .. ' ' .. block .. ' ' .. queued
end

-- Gives NAME, held by the caller, a new deadline.
local function hold(ttl, these)
  -- This comes first, since it fails if QUEUE has another type.
  local queued = call('ZCARD', QUEUE)
  if these then
    these.renew(ttl)
    return held(these.rest(queued))
  end
  call('PEXPIRE', NAME, ttl)
  if contended and queued == 0 then
    -- The next steps of the holder may use the short forms. A full server may refuse this.
    redis.pcall('SET', NAME, string.sub(written, 1, -2), 'KEEPTTL')
  end
  return held(queued)
end

-- The client in a token of this protocol; false for any other value (core: Owner::parse). Host and note are printable
-- ASCII without colons and '#'.
local function client_of(token)
  local id, client = match(token, '^lh1%.([0-9a-f]+)%.([0-9a-f]+)%.[!"$-9;-~]*:%d+:[!"$-9;-~]*$')
  return id and #id == 32 and #client == 16 and client
end

-- Reads the holder of NAME: returns the beginning of its value and its type; false and 'none' if it is free.
-- Another program may store anything there. A value of many megabytes must not be copied for each request: that
-- would block the server, and such replies would break the connections of waiters. A key of another type (a hash of
-- Redisson, a zset of Symfony) counts as held, and is never an error.
local function look()
  -- Values of this protocol are shorter. A longer one is cut off wherever it is read (core: VALUE_SHOWN).
  local VALUE_SHOWN = 1024
  holder = nil
  local value = redis.pcall('GETRANGE', NAME, '0', '1023')
  if type(value) ~= 'table' then
    if value == '' then
      -- A missing key or an empty string.
      local kind = call('TYPE', NAME).ok
      return kind ~= 'none' and '', kind
    end
    local token, first, more, mark = match(value, '^([^#]+)#(%d+)(/?%d*)(!?)$')
    local drawn = more == '' and 1 or tonumber(match(more or '', '^/(%d+)$') or 0)
    local is_ours = token and #value < VALUE_SHOWN and client_of(token)
    if is_ours and drawn >= 1 and drawn <= BLOCK_MOST and tonumber(first) <= FENCE_MAX then
      holder, fence, block, contended, written = token, first, drawn, mark ~= '', value
    elseif string.sub(value, 1, 4) == 'lh1-' then
      return several(value)
    end
    return value, 'string'
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value)
  end
  return '', call('TYPE', NAME).ok
end

-- True if `token` holds NAME by the grant with the fence `believed`; with any fence if `believed` is false (core: C8).
local function holds(token, believed, these)
  if these then
    these.find(token)
  end
  local by = believed and believed - tonumber(holder and fence or 0)
  return token == holder and (not by or by >= 0 and by < block)
end

-- Looks for the first waiter that is alive and can be told; `caller` counts as both. A silent waiter is dropped. A
-- waiter that cannot be told is passed over, since its client may be reconnecting. It keeps its place for 2 s, or
-- longer if it asks again. At most 32 waiters are passed over, since each is checked again at each step; further ones
-- are dropped.
--
-- A free lock is granted to that waiter for the claim window, and the waiter is told. If the window is less than a
-- second, the next waiter is told too, unless it asks soon by itself. Returns the same as `look` afterwards.
-- Several may hold the lock together: it is granted to one waiter after the other while the holders admit them, at most
-- 64 in a step. Nobody passes a waiter that they do not admit.
--
-- If an owner of this protocol holds the lock (`held`), waiters that cannot be told keep their place: only silent
-- ones at the front are dropped (core: drop_dead).
--
-- If a foreign program holds the lock (`held` is 'foreign'), its end wakes no waiter, so the first waiter polls often.
-- A waiter that has just become the first is told: because one before it was dropped, or because the waiter at place
-- `left` has left. Returns how many were passed over.
local function serve(caller, held, left, these)
  if these and not held then
    these.expire()
  end
  local behind, place, dropped, foreign = call('ZCARD', QUEUE), 0, false, held == 'foreign'
  if these then
    behind = behind - these.holders
  end
  if behind == 0 then
    return these or false, these and 'several' or 'none'
  end
  local CLAIM_WINDOW, SHORT_CLAIM, SOON, UNHEARD_GRACE, GRANTS_MOST = 3000, 1000, 50, 2000, 64
  local now_ms, grants = math.floor(time() / 1000), 0

  local function drop(token)
    call('ZREM', QUEUE, token)
    call('HDEL', WAITERS, token)
    behind = behind - 1
  end

  -- Returns whether a waiter can be told, and whether it was told. Subscribers are counted before anything is
  -- published: PUBLISH also reaches subscribers of a replica, without counting them, and they must not hear of a grant
  -- that they do not get. Subscribers by pattern are not counted. If the user may not count, PUBLISH counts instead.
  -- Its message then has no fence, so that the waiter has to claim the grant. An error (no permission) proves nothing.
  local function hears(channel, blind)
    local heard = redis.pcall('PUBSUB', NUMSUB, channel)
    if not heard.err then
      return heard[2] ~= 0, false
    end
    return not blind or redis.pcall(PUBLISH, channel, blind) ~= 0, true
  end

  local function waiter(at)
    at = digits(these and at + these.holders or at)
    local token = call('ZRANGE', QUEUE, at, at)[1]
    local record = call('HGET', WAITERS, token) or ''
    return token, match(record, '^(%S+ (%d+) (%d+) (%S+) )(%d+)$')
  end

  while place < behind do
    local token, terms, ttl, wanted, channel, seen_until = waiter(place)
    -- Only a waiter for several holders, or behind them, has a mode here. Its first letter is not the 'e' of 'exclusive'.
    local mode = terms and (these or string.byte(terms) ~= 101) and match(terms, '^%S+')
    if mode and mode ~= 'exclusive' and mode ~= 'shared' and (TERMS or not match(mode, '^slot/[1-9]%d?%d?%d?$')) then
      ttl = nil
    end
    if not ttl and not these and tonumber(call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')[2]) < 0 then
      -- The first of holders whose lock was deleted or has expired.
      behind = behind - several().forget('-inf')
      if not held then
        -- A marker in its last millisecond.
        call('DEL', NAME)
      end
    elseif not ttl or token ~= caller and tonumber(seen_until) < now_ms then
      drop(token)
      dropped = true
    elseif held and not foreign then
      return 0
    else
      local others, news = behind - 1, not foreign or dropped or left and left <= place
      local is_admitted = not these or these.admits(mode)
      local function message(fences)
        if foreign then
          return 'first ' .. token .. ' ' .. NAME
        end
        local verb = these and these.number and fences ~= '-' and 'slot ' .. these.number or 'granted'
        return table.concat({ verb, fences, digits(time()), others, token, NAME }, ' ')
      end
      -- The caller receives a reply anyway. A waiter without a channel only polls, so its silence proves nothing.
      local able, told = true, token == caller or channel == '-'
      if not told then
        able, told = hears(channel, is_admitted and news and message('-'))
      end

      if able and foreign then
        if news and not told then
          redis.pcall(PUBLISH, channel, message())
        end
        return place
      elseif able and not is_admitted then
        these.blocked = true
        return these, 'several'
      elseif able then
        local first, is_alone = not (these and these.phase) and next_fence(), not mode or mode == 'exclusive'
        -- Done before the waiter is told: a server that refuses changes refuses here.
        drop(token)
        local window = tonumber(ttl) < CLAIM_WINDOW and ttl or CLAIM_WINDOW
        if is_alone then
          grant(token, window, first, wanted, others > 0)
        else
          these = these or several()
          these.join(token, window, mode, wanted)
        end
        grants = grants + 1
        local is_last = grants == GRANTS_MOST
        if not told then
          local fences = fence .. (block > 1 and '/' .. wanted or '')
          -- The last one claims at once, so that the others need not wait until a holder renews.
          redis.pcall(PUBLISH, channel, message(is_last and place < behind and '-' or fences))
        end
        sleeper = nil
        if tonumber(ttl) < SHORT_CLAIM then
          -- Finds the first waiter that can be told and would sleep past the end of the claim (core: sleeper).
          local due = now_ms + WAITER_GRACE
          for at = place, math.min(behind, place + PASSED_OVER) - 1 do
            local token, terms, _, _, channel, seen_until = waiter(at)
            seen_until = tonumber(terms and seen_until or 0)
            if token == caller or seen_until >= due and seen_until <= due + ttl + SOON then
              break
            end
            if seen_until >= now_ms and channel ~= '-' and hears(channel) then
              sleeper_channel, sleeper = channel, token
              break
            end
          end
        end
        if is_alone then
          return token, 'string'
        end
        if is_last then
          these.blocked = place < behind
          return these, 'several'
        end
      elseif place == PASSED_OVER then
        drop(token)
        dropped = true
      else
        local limit = now_ms + UNHEARD_GRACE
        if tonumber(seen_until) > limit then
          -- Before HSET, since PEXPIRE takes no memory (the first change of the script decides on a full server of
          -- Redis 6.2).
          call('PEXPIRE', QUEUE, these and these.memory or QUEUE_MEMORY)
          call('PEXPIRE', WAITERS, these and these.memory or QUEUE_MEMORY)
          call('HSET', WAITERS, token, terms .. digits(limit))
        end
        place = place + 1
      end
    end
  end
  if foreign then
    return place
  end
  return these or false, these and 'several' or 'none'
end

-- The first part of every step except inspect: grants a free lock to a waiter, or a lock that several hold. Then returns
-- the holder, as `look` does.
local function advance(caller)
  local value, kind = look()
  if kind == 'none' then
    return serve(caller)
  elseif kind == 'several' then
    return serve(caller, nil, nil, value)
  end
  return value, kind
end

-- The holder as others see it: type, token or foreign value, rest of the lease in ms (-1: without end), fence of the
-- grant or '', microseconds since the grant or -1. Of several, the last to end, with further elements.
local function view(value, kind)
  if kind == 'several' then
    return value.view(0)
  elseif kind == 'none' then
    return { 'none', '', 0, '', -1 }
  end
  local left = call('PTTL', NAME)
  if not holder then
    return { kind, value, left, '', -1 }
  end
  return { kind, holder, left, fence, digits(math.max(time() - tonumber(fence), 0)) }
end

-- Reads the mark. Returns the refusal of a client that counts another quorum than the mark: the two share no majority,
-- and they would count fences apart (core: World::apply_by).
local function other_terms()
  mark = redis.pcall('GET', KEYS[1])
  if type(mark) == 'table' then
    if not string.find(mark.err, 'WRONGTYPE', 1, true) then
      return { 'error', mark.err }
    end
    -- No mark either: propose_many.lua says so.
    mark = ''
  end
  local nodes, longest = match(mark or '', '^(%d+) (%d+) ')
  return nodes and nodes .. ' ' .. longest ~= TERMS and { 'other-terms', nodes, longest }
end

-- Executes the steps of a batch in order. Each has `width` arguments and three keys, in the order above; at a node of a
-- quorum its counter comes before them. The steps may concern one lock or several; in a cluster, of one
-- slot. The reply has one element for each step. The error of a step concerns
-- that step only: {'error', text}.
local function each(width, step)
  local replies, keys, refused = {}, TERMS and 4 or 3, TERMS and other_terms()
  for number = 1, (#KEYS - 1) / keys do
    local key, argument = number * keys - 1, (number - 1) * width + 1
    NAME, QUEUE, WAITERS = KEYS[key], KEYS[key + 1], KEYS[key + 2]
    if keys == 4 then
      COUNTER = KEYS[key - 1]
    end
    local done, reply = true, refused
    if not refused then
      done, reply = pcall(step, unpack(ARGV, argument, argument + width - 1))
    end
    if sleeper then
      redis.pcall(PUBLISH, sleeper_channel, 'first ' .. sleeper .. ' ' .. NAME)
      sleeper = nil
    end
    replies[number] = done and reply
      or { 'error', type(reply) == 'table' and reply.err or tostring(reply) }
  end
  return replies
end
