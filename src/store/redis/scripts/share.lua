-- Checks whether the client still has its share of the lock. This script reads nothing that changes
-- when other holders come and go, and includes no other file. keys.lua describes the keys.
--
-- KEYS: lock, own
-- ARGV: take id, or "" if only the token counts, which is part of the name of the key own
-- Returns {"ours", rest of the lease (ms), when the lease ends (server, ms)}, or {"unclear"} if
--         check.lua must decide

local lock, own = unpack(KEYS)
local found = redis.pcall('GET', own)
local record = type(found) == 'string' and '\n' .. found or ''

local function field(name)
  return record:match('\n' .. name .. ' ([^\n]*)')
end

if (tonumber(field('format')) or 1) > FORMAT or field('released') or field('round') ~= redis.pcall('GET', lock) or
  (ARGV[1] ~= '' and field('take') ~= ARGV[1]) then
  return {'unclear'}
end
local time, ends = redis.call('TIME'), tonumber(field('ends')) or 0
local left = ends - tonumber(time[1]) * 1000 - math.floor(tonumber(time[2]) / 1000)
return left > 0 and {'ours', left, ends} or {'unclear'}
