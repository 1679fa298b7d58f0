-- Whether the lock is still ours, and for how long.
--
-- KEYS: lock
-- ARGV: token
-- Returns {"ours", left (ms; -1: no expiry)}, {"gone"} or {"other"}

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {'other'}
end
if value == ARGV[1] then return {'ours', redis.call('PTTL', KEYS[1])} end
return {value and 'other' or 'gone'}
