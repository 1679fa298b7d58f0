-- Releases the lock if it is still ours: compare-and-delete.
--
-- KEYS: lock, meta
-- ARGV: token, take id, now (wall clock of the holder, ms), hold (ms for which
--       others are still to be kept out, 0: none)
-- Returns {"released"}, {"gone"} or {"other"}

local lock, meta, token, id = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local value = redis.pcall('GET', lock)
if type(value) == 'table' and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {'other'}
end
local known = redis.pcall('HMGET', meta, 'owner', 'take', 'since', 'held_ms', 'last_take')
if known.err then known = {} end
-- Another run with the same --owner has the same token (see check.lua).
local ours = value == token and (known[1] ~= token or known[2] == id)
if not ours then
  -- A release whose reply was lost is sent again, when others may have the lock.
  if known[5] == id then return {'released'} end
  return {value and 'other' or 'gone'}
end
local hold = tonumber(ARGV[4])
if hold > 0 then
  local left = redis.call('PTTL', lock)
  if left < 0 or left > hold then redis.call('PEXPIRE', lock, hold) end
else
  redis.call('DEL', lock)
end
-- What meta says is for people, except the fence; if it cannot be written the
-- lock is released all the same.
if known[1] == token then
  local held = math.max(0, (tonumber(ARGV[3]) or 0) - (tonumber(known[3]) or 0)) + (tonumber(known[4]) or 0)
  redis.pcall('HSET', meta, 'last_owner', token, 'last_take', id, 'released', ARGV[3],
    'held_ms', string.format('%.0f', held))
end
return {'released'}
