-- Releases the lock if it is still ours: compare-and-delete.
--
-- KEYS: lock, meta
-- ARGV: token, now (wall clock of the holder, ms)
-- Returns {"released"}, {"gone"} or {"other"}. A release whose reply was lost
-- may be sent again: it finds its own token as that of the last owner.

local lock, meta, token = KEYS[1], KEYS[2], ARGV[1]
local value = redis.pcall('GET', lock)
if type(value) == 'table' and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {'other'}
end
if value ~= token then
  if not value and redis.pcall('HGET', meta, 'last_owner') == token then return {'released'} end
  return {value and 'other' or 'gone'}
end
redis.call('DEL', lock)
-- What meta says is for people, except the fence; if it cannot be written the
-- lock is released all the same.
local known = redis.pcall('HMGET', meta, 'owner', 'since', 'held_ms')
if not known.err and known[1] == token then
  local held = math.max(0, (tonumber(ARGV[2]) or 0) - (tonumber(known[2]) or 0)) + (tonumber(known[3]) or 0)
  redis.pcall('HSET', meta, 'last_owner', token, 'released', ARGV[2], 'held_ms', string.format('%.0f', held))
end
return {'released'}
