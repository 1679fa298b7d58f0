-- Takes the lock, or tells who has it.
--
-- KEYS: all (common.lua)
-- ARGV: token, ttl (ms), take id, again ("1": an earlier take with this id got
--       no reply), then the holder: host, boot id, pid, its start time, user,
--       command, since (wall clock, ms); mode, slots, hold (ms), detached ("1"),
--       what a refusal means ("waits": it is asked for again; "conflict" or
--       "timeout": it is given up), ms waited
-- Returns {"taken", fence, left (ms), slot (-1: none)}
--      or {"held", left (ms; -1: no expiry), host, boot id, pid, start, user,
--          command, since, mode in force, "1" where others make way for us,
--          "1" where it is released and kept for its hold}, with empty strings
--          for another client's lock
--      or {"unusable", key, what is wrong with it}

local token, ttl, id, again = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'
local mode, slots, hold, refusal, waited = ARGV[12], ARGV[13], tonumber(ARGV[14]), ARGV[16], tonumber(ARGV[17])
local WAITER_MS, CLAIM_MS = 15000, 2000

if found.err then return {'unusable', meta, 'it is not a hash'} end
-- Held up on its way, and given up meanwhile: nobody is there to release it.
if is_spent(id, '') then return {'unusable', lock, 'this take was given up'} end

local time = redis.call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)

local function claimant()
  local waiter = redis.pcall('GET', claim)
  return type(waiter) == 'string' and waiter or nil
end

-- No more a waiter.
local function leave_queue()
  redis.pcall('ZREM', queue, token)
  if claimant() == token then redis.pcall('DEL', claim) end
end

-- A waiter of another mode waits until all have left, and would wait for ever
-- if others came meanwhile.
local function note_refusal(other_mode)
  if refusal ~= 'waits' then
    count(refusal == 'timeout' and 'timeouts' or 'conflicts', 1)
    if waited > 0 then count('waited_ms', waited) end
    leave_queue()
    return ''
  end
  redis.pcall('ZREMRANGEBYSCORE', queue, '-inf', now)
  redis.pcall('ZADD', queue, now + WAITER_MS, token)
  redis.pcall('PEXPIRE', queue, WAITER_MS)
  if not other_mode or (claimant() or token) ~= token then return '' end
  redis.pcall('SET', claim, token, 'PX', CLAIM_MS)
  return '1'
end

local function refuse(left, who, mode_in_force, other_mode)
  local claimed = note_refusal(other_mode)
  who = who or {}
  return {'held', left, who.host or '', who.boot or '', who.pid or '', who.start or '', who.user or '', who.command or '',
    who.since or '', mode_in_force, claimed, who.take and is_spent(who.take, '') and '1' or ''}
end

-- Fences rise over lost keys and emptied servers by the clock, and over a clock
-- that steps back by the last fence. Lua counts whole numbers exactly up to
-- 2^53, which microseconds reach in the year 2255.
local function next_fence()
  local last = known.fence and tonumber(known.fence) or 0
  if not (last < 9007199254740991) then return nil end
  return whole(math.max(now_us, last + 1))
end

-- Those who shared it until it ended, or until somebody removed the key, do not
-- hold it any more.
local function forget_old_holders()
  if mode == 'exclusive' and (known.mode or 'exclusive') == 'exclusive' then return end
  redis.pcall('DEL', holders)
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    if string.sub(field, 1, 7) == 'holder ' and field ~= 'holder ' .. token then redis.call('HDEL', meta, field) end
  end
end

-- What every take writes into meta. That goes with the clock only once the clock
-- has passed the fence, or a later fence would be lower: a server's clock may
-- have been far ahead.
local function note_take(fence, ...)
  redis.call('HSET', meta, 'fence', fence, 'mode', mode, 'slots', slots, 'takes', plus('takes', 1), ...)
  if not value then forget_old_holders() end
  redis.call('PEXPIRE', meta, whole(ttl + META_KEPT_MS + math.max(0, math.floor(tonumber(fence) / 1000) - now)))
  if waited > 0 then
    redis.call('HSET', meta, 'waited_ms', plus('waited_ms', waited))
    leave_queue()
  end
end

local AT_THE_END = {'unusable', meta, 'its fence is at the end of what can be counted'}

-- The lock itself comes last: whatever fails before it leaves no lock behind.
local function take_exclusive()
  local fence = next_fence()
  if not fence then return AT_THE_END end
  note_take(fence, 'owner', token, 'take', id, 'host', ARGV[5], 'boot', ARGV[6], 'pid', ARGV[7], 'start', ARGV[8],
    'user', ARGV[9], 'command', ARGV[10], 'since', ARGV[11], 'ttl', ARGV[2], 'hold', hold > 0 and whole(now + hold) or '0',
    'detached', ARGV[15])
  redis.call('SET', lock, token, 'PX', ARGV[2])
  return {'taken', fence, ttl, -1}
end

local function take_share(slot)
  local fence = next_fence()
  if not fence then return AT_THE_END end
  if known.owner == token then redis.call('HDEL', meta, 'owner', 'take') end -- that take is history
  note_take(fence, 'holder ' .. token, cjson.encode({take = id, fence = fence, slot = slot,
    host = ARGV[5], boot = ARGV[6], pid = ARGV[7], start = ARGV[8], user = ARGV[9], command = ARGV[10],
    since = ARGV[11], ttl = ARGV[2], hold = hold > 0 and whole(now + hold) or '0', detached = ARGV[15]}))
  redis.call('ZADD', holders, whole(now + ttl), token)
  if not value then redis.call('SET', lock, SHARED, 'PX', ARGV[2]) end
  settle_shared(now)
  return {'taken', fence, ttl, slot}
end

local function forget_holder(holder)
  redis.pcall('HDEL', meta, 'holder ' .. holder)
  redis.pcall('ZREM', holders, holder)
end

-- Slots: the lowest that is free. Where somebody's is not known, none is free.
local function free_slot(list)
  local taken = {}
  for _, holder in ipairs(list) do
    local record = record_of(holder[1])
    if not record or not tonumber(record.slot) then return nil end
    taken[tonumber(record.slot)] = true
  end
  for slot = 0, tonumber(slots) - 1 do
    if not taken[slot] then return slot end
  end
end

-- Everybody who shares the lock is alive as long as its own lease. The mode in
-- force, and the number of slots, is that of those who hold it.
local function join()
  local list = {}
  for _, holder in ipairs(list_holders()) do
    if holder[2] <= now then forget_holder(holder[1]) else list[#list + 1] = holder end
  end
  local left, first, last = redis.call('PTTL', lock), list[1], list[#list]
  if not last then return refuse(left, nil, 'shared', true) end -- somebody has removed the set
  local mine = score_of(token)
  local record = mine and record_of(token)
  if mine and again and record and record.take == id and not record.released then
    return {'taken', record.fence, mine - now, tonumber(record.slot) or -1}
  end
  if mode ~= known.mode or slots ~= known.slots then
    return refuse(left, record_of(last[1]), known.mode or 'shared', true)
  end
  if mine then return refuse(mine - now, record, mode, false) end
  if (claimant() or token) ~= token then
    return refuse(math.max(1, redis.call('PTTL', claim)), record_of(last[1]), mode, false)
  end
  local slot = -1
  if mode == 'slots' then slot = #list < tonumber(slots) and free_slot(list) or nil end
  if not slot then return refuse(first[2] - now, record_of(first[1]), mode, false) end
  return take_share(slot)
end

if value == SHARED then
  if mode ~= 'exclusive' then return join() end
  local list = list_holders()
  return refuse(redis.call('PTTL', lock), list[1] and record_of(list[#list][1]), known.mode or 'shared', true)
end

if value then
  -- The take whose reply was lost did happen.
  if again and value == token and known.owner == token and known.take == id and not is_spent(id, '') then
    return {'taken', known.fence, redis.call('PTTL', lock), -1}
  end
  return refuse(redis.call('PTTL', lock), known.owner == value and known, 'exclusive', false)
end

-- Free.
if mode == 'exclusive' then return take_exclusive() end
if (claimant() or token) ~= token then return refuse(math.max(1, redis.call('PTTL', claim)), nil, mode, false) end
return take_share(mode == 'slots' and 0 or -1)
