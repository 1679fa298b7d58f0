-- Removes the lock, regardless of its holder.
--
-- KEYS: all (store/redis/scripts/common.lua)
-- ARGV: now (wall clock, ms), id of the request
-- Returns state() as it was before this request.

local answered, earlier = pcall(cjson.decode, answer_to(ARGV[2]) or '')
if answered and type(earlier) == 'table' then return earlier end
local was = state()
if value then
  local answer = cjson.encode(was)
  redis.call('DEL', lock, holders)
  value = false
  for _, field in ipairs(redis.pcall('HKEYS', meta)) do
    if string.sub(field, 1, 7) == 'holder ' then redis.pcall('HDEL', meta, field) end
  end
  redis.pcall('HSET', meta, 'released', ARGV[1])
  remember(ARGV[2], answer)
  hand_on(now_ms())
end
return was
