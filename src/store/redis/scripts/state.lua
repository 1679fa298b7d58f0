-- Defines state(), which tells look.lua and force.lua what is known about the lock.

-- include common.lua holders.lua queue.lua

-- In these cases the lock must not be shown as free:
-- The lock's key does not exist, but the lock cannot be taken either.
if not value and no_meta then return {'unusable', meta, 'it is not a hash'} end
if not value and not (number(known.fence) < 9007199254740991) then return {'unusable', meta, 'its fence has reached its maximum'} end

local WAITERS_SHOWN = 20

-- Returns {token, rest of the lease (ms; -1: no expiry), rest of --hold-at-least (ms), record ('':
-- unknown)}.
local function owner_state(token, left, record, now)
  local hold = record and number(record.hold) or 0
  return {token, left, whole(math.max(0, hold - now)), record and said(record) or ''}
end

-- The record of a waiter. In format 1 the record was a list in JSON.
local function who_of(waiter)
  if waiter.format ~= '1' then return waiter.who end
  local decoded, who = pcall(cjson.decode, waiter.who)
  local record = {}
  for i, name in ipairs({'host', 'pid', 'user', 'message'}) do
    local text = decoded and type(who) == 'table' and who[i]
    if type(text) == 'string' then record[name] = encoded(text) end
  end
  return lines(record)
end

-- Returns the number of live waiters (-1: unknown), and for each of the first WAITERS_SHOWN of them
-- a text: when it came (server, ms), its mode, its slots and its record.
local function list_waiters(now)
  local ids, living, first = try('ZRANGE', queue, 0, -1, 'WITHSCORES'), 0, {}
  if ids.err then return -1, first end
  for i = 1, #ids, 2 do
    local waiter = waiter_of(ids[i])
    if lives(waiter, now) then
      living = living + 1
      if living <= WAITERS_SHOWN and not waiter.newer then
        local came = whole(math.floor(read_end(ids[i + 1]) / 1000))
        first[#first + 1] = 'came ' .. came .. '\nmode ' .. waiter.mode .. '\nslots ' .. waiter.slots .. '\n' .. who_of(waiter)
      end
    end
  end
  return living, first
end

-- Returns the token, end and record of each shared holder, in the order in which their leases end.
local function list_holders()
  local flat, list = allowed(try('ZRANGE', holders, 0, -1, 'WITHSCORES'), 'ZRANGE'), {}
  if flat.err then return list end
  for i = 1, #flat, 2 do
    local _, token = read_member(flat[i])
    list[#list + 1] = {token = token, ends = read_end(flat[i + 1]), record = read_record(holder_key(token))}
  end
  return list
end

-- Returns {"lock", mode in force ("" if the lock is free), slots, waiters (-1: unknown), last
-- fence, last owner, released (wall clock, ms), the rest of a pause (ms), by whom, why, takes,
-- conflicts, timeouts, losses, waited (ms), held (ms), failures in a row, runs since the success,
-- clients that have given up since the success, last run, last success, history, the first waiters,
-- owners}.
local function state(now)
  local paused = pause_left(now)
  local living, first = list_waiters(now)
  learn('removed')
  local last_owner, released = string.match(known.spent or '', '^%S+ (%S+) (%d*)')
  released = whole(math.max(number(released), number(known.removed)))
  local answer = {'lock', '', '0', living, known.fence or '', last_owner or '', released ~= '0' and released or '',
    whole(paused), known.paused_by or '', known.pause_why or ''}
  local COUNTED = {'takes', 'conflicts', 'timeouts', 'losses', 'waited_ms', 'held_ms'}
  local numbers = try('HMGET', counts, unpack(COUNTED))
  for i, field in ipairs(COUNTED) do answer[#answer + 1] = plus(known[field], number(not numbers.err and numbers[i])) end
  local list = known.mode and known.mode ~= 'exclusive' and list_holders() or {}
  -- A run whose lease ended without a release was lost. This is only reported here; the next client
  -- that takes the lock records it.
  if known.unended == '1' and value ~= known.owner and last_holder() then end_run(last_holder(), '0', 'lost') end
  for _, holder in ipairs(list) do
    local record = holder.record
    if record and not record.released and not shares(record, now) then end_run(record, '0', 'lost') end
  end
  for _, field in ipairs({known.failures or '', known.runs or '', skips_now(), known.run or '', known.success or '', known.history or '', first}) do
    answer[#answer + 1] = field
  end
  local owners = {}
  if is_shared() then
    answer[2], answer[3] = known.mode or 'shared', known.slots or '0'
    -- Another client has removed the set of holders. The lock's key still keeps other clients out
    -- until it expires.
    if #list == 0 then owners[1] = owner_state('', call('PTTL', lock), nil, now) end
    for _, holder in ipairs(list) do
      if holder.ends > now then owners[#owners + 1] = owner_state(holder.token, holder.ends - now, holder.record, now) end
    end
  elseif value then
    local who = known.owner == value and last_holder() or nil
    if who then who.fence = who.fence or known.fence end
    answer[2], owners[1] = 'exclusive', owner_state(value, call('PTTL', lock), who, now)
  end
  answer[#answer + 1] = owners
  return answer
end
