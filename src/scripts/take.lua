-- Takes the exclusive lock, or tells who has it.
--
-- KEYS: lock, meta
-- ARGV: token, ttl (ms), take id, again ("1": an earlier take with this id got
--       no reply), ms that meta outlives the lease, then the holder: host, boot
--       id, pid, its start time, user, command, since (wall clock, ms)
-- Returns {"taken", fence, left (ms)}
--      or {"held", left (ms; -1: no expiry), host, boot id, pid, start, user,
--          command, since}, with empty strings for another client's lock
--      or {"unusable", key, what is wrong with it}

local lock, meta = KEYS[1], KEYS[2]
local token, ttl, id, again, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]

-- Something else than a string at the key is another client's lock of some
-- kind. It is in the way until it is gone.
local value = redis.pcall('GET', lock)
if type(value) == 'table' and value.err then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  return {'held', redis.call('PTTL', lock), '', '', '', '', '', '', ''}
end

local known = redis.pcall('HMGET', meta, 'owner', 'fence', 'host', 'boot', 'pid', 'start', 'user', 'command',
  'since', 'takes', 'take', 'last_take')
if known.err then
  if not string.find(known.err, 'WRONGTYPE', 1, true) then return known end
  return {'unusable', meta, 'it is not a hash'}
end

-- The take whose reply was lost did happen. The token alone would not prove
-- it, since --owner lets two processes have the same one.
local mine = again and value == token and known[1] == token and known[11] == id

if value and not mine then
  local answer = {'held', redis.call('PTTL', lock)}
  for i = 3, 9 do
    answer[i] = known[1] == value and known[i] or ''
  end
  return answer
end

if mine then
  return {'taken', known[2], redis.call('PTTL', lock)}
end

-- The fence rises over lost keys and emptied servers by the clock, and over a
-- clock that steps back by the last fence. Lua counts whole numbers exactly
-- up to 2^53, which microseconds reach in the year 2255.
local time = redis.call('TIME')
local fence = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = known[2] and tonumber(known[2]) or 0
if not (last < 9007199254740991) then
  return {'unusable', meta, 'its fence is at the end of what can be counted'}
end
if last + 1 > fence then fence = last + 1 end
fence = string.format('%.0f', fence)

-- The lock itself comes last: whatever fails before it leaves no lock behind.
redis.call('HSET', meta, 'owner', token, 'take', id, 'fence', fence, 'host', ARGV[6], 'boot', ARGV[7],
  'pid', ARGV[8], 'start', ARGV[9], 'user', ARGV[10], 'command', ARGV[11], 'since', ARGV[12],
  'takes', string.format('%.0f', (tonumber(known[10]) or 0) + 1))
-- An earlier take with this id came too late and was given back; that release
-- is not to be taken for the one at the end of this take.
if known[12] == id then redis.call('HSET', meta, 'last_take', '') end
redis.call('PEXPIRE', meta, keep + ttl)
redis.call('SET', lock, token, 'PX', ttl)
return {'taken', fence, tonumber(ttl)}
