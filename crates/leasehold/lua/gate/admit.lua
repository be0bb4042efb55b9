-- Admit an access to a resource that lives in Redis, reads included.
--
-- KEYS[1]  the key with the highest fence that the resource has seen; in the resource's slot, without a TTL
-- ARGV[1]  the fence of the lease
-- Reply    1 admitted; 0 stale: the lease behind this fence is over, do not retry
--
-- Closes the race between a late holder and the next one. Run it in the same script or MULTI as the access itself.
local highest = tonumber(redis.call('GET', KEYS[1]) or 0)
local fence = tonumber(ARGV[1])
if fence < highest then
  return 0
end
if fence > highest then
  redis.call('SET', KEYS[1], ARGV[1])
end
return 1
