#!lua
-- Remember a name that is worth showing to an operator, and forget those that nobody has named for a day.
--
-- KEYS[1]  the index: names by when they were last named, in ms of the server's clock
-- ARGV[1]  the name
-- Reply    nothing
--
-- Closes no race: the index holds hints. It must not grow by names that are used once.
local clock = redis.call('TIME')
local now_ms = clock[1] * 1000 + math.floor(clock[2] / 1000)
local memory = 86400000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now_ms - memory))
redis.call('ZADD', KEYS[1], string.format('%.0f', now_ms), ARGV[1])
redis.call('PEXPIRE', KEYS[1], memory)
