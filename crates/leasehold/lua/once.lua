#!lua flags=allow-oom
-- Look at a firing of a lock, begin a run of it, or finish one. The rules are those of `leasehold-core` (once.rs).
--
-- KEYS  1 the lock's name  2 the firing: a string with its own expiry,
--         'lho1 <begun or finished> <fence> <number of the run> <us since 1970> <token>'
-- ARGV  1 the token of the holder, or '' for a look  2 its fence  3 how many runs may begin, or '' to finish one
--       4 ms to keep the firing
-- Reply {word, now in us}, then the number of the run, its fence, its time and its token:
--         begun: the last run goes on, failed, or lost its lease
--         finished: by this run
--         spent: as many runs have begun as may
--       {'new', now in us}: no run is known
--       {'not-held', now in us}: the owner does not hold the lock by this fence, and nothing was changed
--
-- Closes the race between checking the holder and marking the work as done: a run whose lease was lost leaves no mark.
local call, match = redis.call, string.match
local NAME, FIRING, token, fence, tries = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local clock = call('TIME')
local now = string.format('%.0f', clock[1] * 1000000 + clock[2])

local kept = call('GET', FIRING)
local state, by, number, at, who = match(kept or '', '^lho1 (%l+) (%d+) (%d+) (%d+) (%S+)$')
if kept and state ~= 'begun' and state ~= 'finished' then
  return redis.error_reply('ERR the key ' .. FIRING .. ' holds something else than a firing')
end
local function run(word)
  return { word, now, number, by, at, who }
end
if state == 'finished' then
  return run('finished')
elseif token == '' then
  return state and run('begun') or { 'new', now }
end

-- The value of the lock begins with its holder's token and the first fence of its grant; see prelude.lua. It may be of
-- another program, of any type and length.
local held = redis.pcall('GETRANGE', NAME, '0', '1023')
if type(held) == 'table' then
  if not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
  end
  held = ''
end
local first, more = match(held, '^[^#]+#(%d+)(/?%d*)!?$')
local drawn = more == '' and 1 or tonumber(match(more or '', '^/(%d+)$') or 0)
local place = first and fence - first
if not first or #held > 1023 or tonumber(first) > 9007199254740991 or drawn > 1024
    or string.sub(held, 1, #token + 1) ~= token .. '#' or place < 0 or place >= drawn
    -- A later lease of the same grant has begun a run.
    or by and by - fence > 0 then
  return { 'not-held', now }
end

local is_mine = by == fence
if tries ~= '' and is_mine then
  return run('begun')
elseif tries ~= '' and state and tonumber(number) >= tonumber(tries) then
  return run('spent')
elseif not is_mine then
  number = string.format('%.0f', (number or 0) + 1)
end
state, by, at, who = tries == '' and 'finished' or 'begun', fence, now, token
-- A full server of Redis 6.2, which does not know the flag, lets a script finish once it has made a change.
call('PEXPIRE', FIRING, ARGV[4])
call('SET', FIRING, table.concat({ 'lho1', state, by, number, at, who }, ' '), 'PX', ARGV[4])
return run(state)
