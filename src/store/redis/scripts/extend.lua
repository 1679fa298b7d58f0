-- Extends the lease if the lock is still ours. A key whose expiry somebody took
-- away has one again.
--
-- KEYS: lock, meta, holders
-- ARGV: token, take id, ttl from now (ms), "1" where it may be shortened
-- Returns as store/redis/scripts/check.lua

local token, ttl, exactly = ARGV[1], tonumber(ARGV[3]), ARGV[4] == '1'
local how, left, record = standing(token, ARGV[2])
if how ~= 'ours' then return {how, left or ''} end
if not record then left = redis.call('PTTL', lock) end
if left < ttl or exactly then
  left = ttl
  if record then
    redis.call('ZADD', holders, whole(now_ms() + ttl), token)
    settle_shared(now_ms())
  else
    redis.call('PEXPIRE', lock, ARGV[3])
  end
  if known.fence and redis.call('PTTL', meta) < ttl + META_KEPT_MS then
    redis.call('PEXPIRE', meta, whole(ttl + META_KEPT_MS))
  end
end
-- Read last, so that the server tells of what comes after our own change.
redis.call('GET', lock)
if not record then return {how, left, 'exclusive', '0', '-1'} end
return {how, left, known.mode or 'shared', known.slots or '0', tostring(record.slot or -1)}
