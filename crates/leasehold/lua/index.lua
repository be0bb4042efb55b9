#!lua
-- Add a name to the index for operators, and remove names that were not added for a day.
--
-- KEYS[1]  the index: names by when they were last named, in ms of the server's clock
-- ARGV[1]  the name
-- Reply    nothing
--
-- Closes no race: the index holds hints. Names that are used once must not make it grow.
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local memory = 86400000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now_ms - memory))
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms), ARGV[1])
redis.call('PEXPIRE', KEYS[1], memory)
