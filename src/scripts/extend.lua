-- Extends the lease if the lock is still ours. Never shortens it; a key whose
-- expiry somebody took away has one again.
--
-- KEYS: lock, meta
-- ARGV: token, take id, ttl from now (ms), ms that meta outlives the lease
-- Returns {"ours", left (ms)}, {"gone"} or {"other"}

local lock, meta, ttl = KEYS[1], KEYS[2], tonumber(ARGV[3])
local value = redis.pcall('GET', lock)
if type(value) == 'table' and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {'other'}
end
-- Another run with the same --owner has the same token (see check.lua).
local known = redis.pcall('HMGET', meta, 'owner', 'take')
local other_take = not known.err and known[1] == ARGV[1] and known[2] ~= ARGV[2]
if value ~= ARGV[1] or other_take then return {value and 'other' or 'gone'} end
local left = redis.call('PTTL', lock)
if left < ttl then
  redis.call('PEXPIRE', lock, ttl)
  left = ttl
  if not known.err and known[1] then redis.call('PEXPIRE', meta, ttl + ARGV[4]) end
end
-- Read last, so that the server tells of what comes after our own change.
redis.call('GET', lock)
return {'ours', left}
