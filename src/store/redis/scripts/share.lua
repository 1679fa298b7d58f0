-- Checks whether a share of the lock is still ours; reads nothing that other holders change
-- when they come and go, and stands without common.lua, which describes the keys.
--
-- KEYS: lock, own
-- ARGV: take id ("": the token alone, which is in the key's name, counts)
-- Returns {"ours", left (ms), when it ends (server, ms)} or {"unclear"}: check.lua knows why

local lock, own = unpack(KEYS)
local decoded, record = pcall(cjson.decode, redis.pcall('GET', own))
if not decoded or type(record) ~= 'table' or (tonumber(record.format) or 1) > FORMAT or record.released or record.round ~= redis.pcall('GET', lock) or
  (ARGV[1] ~= '' and record.take ~= ARGV[1]) then
  return {'unclear'}
end
local time, ends = redis.call('TIME'), tonumber(record.ends) or 0
local left = ends - tonumber(time[1]) * 1000 - math.floor(tonumber(time[2]) / 1000)
return left > 0 and {'ours', left, ends} or {'unclear'}
