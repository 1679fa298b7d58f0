-- Extends the lease if the lock is still ours. A key whose expiry another client removed
-- gets one again.
--
-- KEYS: lock, meta, holders
-- ARGV: token, take id, ttl from now (ms), "1" if it may be shortened
-- Returns as store/redis/scripts/check.lua

local token, ttl, exactly = ARGV[1], tonumber(ARGV[3]), ARGV[4] == '1'
local how, left, record, ends = standing(token, ARGV[2])
if how ~= 'ours' then return {how, left or ''} end
if not record then left = redis.call('PTTL', lock) end
if left < ttl or exactly then
  if record then
    left, ends = ttl, now_ms() + ttl
    redis.call('ZADD', holders, whole(ends), token)
    settle_shared(now_ms())
  else
    redis.call('PEXPIRE', lock, ARGV[3])
  end
  if known.fence and redis.call('PTTL', meta) < ttl + kept_ms() then
    redis.call('PEXPIRE', meta, whole(ttl + kept_ms()))
  end
end
-- Read last, so that the server reports what comes after our own change.
redis.call('GET', lock)
return say_ours(left, record, ends)
