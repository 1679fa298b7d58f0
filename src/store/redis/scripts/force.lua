-- Removes the lock, whoever holds it.
--
-- KEYS: all (store/redis/scripts/keys.lua)
-- ARGV: now (wall clock, ms), id of the request, USER@HOST of the user who removes the lock
-- Returns the result of state() (state.lua) from before the removal, or {"unusable", key, what is
--         wrong with it}

-- include state.lua

local answered, earlier = pcall(cjson.decode, past('requests', ARGV[2], '') or '')
if answered and type(earlier) == 'table' then return earlier end
-- A key that is not a string is not removed, because it may hold an application's data instead of
-- another client's lock.
local kind = value == '' and (try('TYPE', lock).ok or 'value of another type')
if kind and kind ~= 'string' then return {'unusable', lock, 'it is no lock, but a ' .. kind} end
local now = now_ms()
local was = state(now)
learn('forced')
was[#was - 1], was[#was - 2] = {}, '' -- waiters and history are neither returned nor remembered
local by = string.gsub(ARGV[3], '\n', ' ')

if value then
  local shared = is_shared()
  for _, holder in ipairs(shared and list_holders() or {{token = value, record = known.owner == value and last_holder()}}) do
    local record = holder.record
    -- state() has already recorded the runs whose leases have ended.
    if record and (not shared or shares(record, now)) then
      if shared and not record.released or not shared and known.unended == '1' then end_run(record, '0', 'lost') end
      known.forced = past_with('forced', record.take, holder.token, by)
    end
    if shared then try('DEL', holder_key(holder.token)) end
  end
  local answer = cjson.encode(was)
  call('DEL', lock, holders, taken)
  value = false
  -- The lock's key may have outlived the last lease. In that case no lease is removed, and
  -- `removed` keeps its value.
  try('HSET', meta, 'removed', #was[#was] > 0 and ARGV[1] or known.removed or '', 'forced', known.forced or '', memory())
  note('requests', ARGV[2], '-', answer)
  hand_on(now, first_waiter())
end
return was
