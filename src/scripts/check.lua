-- Whether the lock is still ours, and for how long.
--
-- KEYS: lock, meta
-- ARGV: token, take id ("": the token alone counts)
-- Returns {"ours", left (ms; -1: no expiry)}, {"gone"} or {"other"}

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {'other'}
end
if value ~= ARGV[1] then return {value and 'other' or 'gone'} end
-- Another run with the same --owner has the same token, but not the same id.
-- Where meta is gone or another client's, the token is all that there is.
local known = redis.pcall('HMGET', KEYS[2], 'owner', 'take', 'last_take')
if ARGV[2] ~= '' and not known.err and known[1] == ARGV[1] and known[2] ~= ARGV[2] then return {'other'} end
-- Released, and kept for --hold-at-least.
if not known.err and known[1] == ARGV[1] and known[2] and known[2] == known[3] then return {'gone'} end
return {'ours', redis.call('PTTL', KEYS[1])}
