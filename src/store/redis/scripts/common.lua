-- The keys of a lock, and what nearly all scripts need: they include this file first (embed.sh).
--
-- KEYS: lock, meta, own, holders, taken, counts, queue, waiters. A script gets only as many as it
-- needs, from the left, because the server watches all keys that a script is given. A shared holder
-- is one that shares the lock, in mode shared or slots.
--
-- lock     the owner's token, or SHARED and the fence of the first shared holder: a lock that was
--          lost and is shared again has another value
-- meta     hash: format (lock/format.h) of all keys and holders of the lock, but not of waiters,
--          set by a take of the free lock; owner and record of the last exclusive holder: its
--          token, and what is known of it ('' once it has released the lock for others); unended:
--          "1" while that holder has a run that has not ended; mode, slots: those in force; fence:
--          the last one; run: the last that ended; success: the one that began last, and
--          success_fence; failures in a row; runs since the success; kept: how long runs are
--          remembered (ms); takes, losses, waited_ms, held_ms; pause_ends (server, ms), paused_by,
--          pause_why; removed: when the lock was last removed by force; past events: past().
--          Reserved: history, typical
-- own      the record of a shared holder, like an exclusive holder's, with its fence, slot, round
--          (the value of the lock's key) and ends (server, ms). The key's name ends in the holder's
--          token, and no other client watches the key
-- holders  sorted set: each shared holder (member_of()) -> when its lease ends (server, ms)
-- taken    bitmap of the slots that are held
-- counts   hash, for clients that are refused the lock or lose it: conflicts, timeouts, losses,
--          waited_ms, skips since the success that ended at skips_of (a write to meta would wake
--          the exclusive holder)
-- queue    sorted set: the waiters, in order of arrival
-- waiters  hash: what is known of them (store/redis/scripts/queue.lua)
--
-- Shared holders watch the lock's key and their own. So a join or a leave touches neither, unless
-- the lock's expiry must move (keep()). Only scripts that look at all holders go through them.
-- Orders of events:
--
--   A holder joins or leaves -> holders, taken, meta and its own key change -> no other holder is
--     notified.
--   Another client removes the lock -> all shared holders are notified, and have lost it -> the
--     next holder that shares the lock begins with an empty set -> an own key from before contains
--     another round, and is worth nothing.
--   A lease ends -> it no longer counts -> its place in the set and its record stay until another
--     holder joins, which removes a few at a time (join()), so that its run is remembered -> if no
--     holder joins for a day, they expire.
--   All leases end -> the lock's key stays for half a lease at most -> the next take removes it.
--   Another client removes the set -> no holder can join until the lock's key is gone -> the
--     shared holders keep the lock, and none of them can tell that it is the last.

local lock, meta, own, holders, taken, counts, queue, waiters = unpack(KEYS)
local call, try = redis.call, redis.pcall -- an error ends the script; an error is the reply
local SHARED = 'dlock:shared:'
local META_KEPT_MS = 2592000000 -- 30 days beyond the lease, at least

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and reply.err:find('WRONGTYPE', 1, true)
end

local function now_ms()
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- "%d" would cut a time in milliseconds to 32 bits on a 32-bit server.
local function whole(number)
  return string.format('%.0f', number)
end

-- A key of another type is another client's lock of some kind. It counts as '', which is no owner's
-- token, and blocks dlock until it is gone.
local value = try('GET', lock)
if type(value) == 'table' and value.err then
  if not is_wrong_type(value) then return {err = value.err .. ' (GET)'} end
  value = ''
end

local function is_shared()
  return value and value:sub(1, #SHARED) == SHARED
end

-- The contents of meta: what all scripts need, and more for scripts that call learn() again.
local known = {}
local function learn(...)
  local found = try('HMGET', meta, ...)
  if found.err then return found end
  for i, field in ipairs({...}) do known[field] = found[i] end
end
local no_meta = learn('owner', 'record', 'fence', 'mode', 'slots', 'spent', 'withdrawn', 'takes', 'losses', 'waited_ms', 'held_ms',
  'run', 'success', 'success_fence', 'failures', 'runs', 'unended', 'kept', 'pause_ends', 'format')
if no_meta and not is_wrong_type(no_meta) then return {err = no_meta.err .. ' (HMGET)'} end

local function newer(format)
  format = tonumber(format) or 1
  return format > FORMAT and {'newer', format}
end
if newer(known.format) then return newer(known.format) end

-- A text of format 1, as a value in a line.
local function encoded(text)
  return (text:gsub('%%', '%%25'):gsub('%c', '?'))
end

-- Reads the record of a holder; nil: it cannot be read, or its format is newer. A record has lines
-- "NAME VALUE", each value percent-encoded (lock/fields.h); in format 1 it was JSON.
local function record_in(text)
  local record, name, value, at = {}, nil, nil, 1
  while at do
    name, value, at = text:match('^(%S+) ([^\n]*)\n()', at)
    if at then record[name] = value end
  end
  if text:sub(1, 1) == '{' then
    local decoded, found = pcall(cjson.decode, text)
    record = decoded and found or {}
    record.format = record.format or '1'
    for name, value in pairs(record) do
      if type(value) == 'table' or type(value) == 'userdata' then return nil end
      record[name] = type(value) == 'string' and encoded(value) or value
    end
  end
  local slot = tonumber(record.slot or -1)
  local is_known = record.take and not newer(record.format) and slot and slot >= -1 and slot < 2147483648 and slot % 1 == 0
  return is_known and record or nil
end

-- The text of a record.
local function lines(record)
  local text = {}
  for name, value in pairs(record) do
    text[#text + 1] = name .. ' ' .. tostring(value == true and 1 or value or '') .. '\n'
  end
  return table.concat(text)
end

-- The text of a record, for replies. Format 1 has another name for the pid namespace.
local function said(record)
  record.pid_space = record.pid_space or record.space
  return lines(record)
end

-- The text of a record, to be stored in the format in which it was found.
local function stored(record)
  return record.format == '1' and cjson.encode(record):gsub('%%25', '%%') or lines(record)
end

-- The record of the last exclusive holder.
local function last_holder()
  if known.record and not known.holder then known.holder = record_in(known.record) end
  return known.holder
end

-- Past events, in lists of lines "ID TOKEN TEXT", newest first, and how many bytes of each list are
-- kept:
--   spent      the last releases: the take, its token, when (wall clock of the holder, ms).
--              With --owner many takes have the same token, but each has its own id.
--   requests   the requests of clients without a take id, so that none is carried out twice if
--              its answer was lost: the request, the take that it released ("-": none), the answer
--   withdrawn  takes that were given up, but may still arrive: some thousand, because a crowd may
--              give up
--   forced     leases that were removed by force: the take, its token, USER@HOST
local KEPT = {spent = 2500, requests = 40000, withdrawn = 40000, forced = 8000}

-- The text of the newest line with this id and this token, if given ('': any).
local function past(list, id, token)
  if known[list] == nil then learn(list) end
  local lines = known[list]
  if not lines or not lines:find(id ~= '' and id or token, 1, true) then return nil end
  -- One line at a time. A pattern on the whole list would try each byte of a line that was cut in
  -- two as a start, and each way to divide the rest.
  local from, stop = 1, lines:find('\n', 1, true)
  while stop do
    local line_id, line_token, text = string.match(lines:sub(from, stop - 1), '^(%S+) (%S+) ?(.*)$')
    if line_id and (id == '' or line_id == id) and (token == '' or line_token == token) then return text end
    from, stop = stop + 1, lines:find('\n', stop + 1, true)
  end
end

-- The list with one more line. A line that is cut in two no longer counts.
local function past_with(list, id, token, text)
  if known[list] == nil then learn(list) end
  local line = id .. ' ' .. token .. ' ' .. text .. '\n'
  return string.sub(line .. (known[list] or ''), 1, math.max(KEPT[list], #line))
end

local function is_spent(take, token)
  if take == '' then return past('spent', '', token) end
  return past('spent', take, '') or past('requests', '', take)
end

-- How long meta stays beyond the last lease: for the fence, and for the memory of runs.
local function kept_ms()
  return math.max(META_KEPT_MS, tonumber(known.kept) or 0)
end

-- The sum of a number in meta and `number`.
local function plus(field, number)
  return whole((tonumber(known[field]) or 0) + number)
end

-- Makes the run that has ended the last one in `known`. If several holders share a lock, the run
-- that began last may end first. Its success counts; the success of an older run then only ends a
-- row of failures.
local function end_run(who, ended, how, fence)
  if known.kept == '0' then return end
  known.run = table.concat({who.since or '0', ended, how, who.pid or '0', who.user or '', who.host or '', who.command or ''}, '\t')
  known.runs = plus('runs', 1)
  fence = fence or who.fence or known.fence
  if how == 'status 0' then
    known.failures = '0'
    if who.round and (tonumber(fence) or 0) < (tonumber(known.success_fence) or 0) then return end
    known.success, known.success_fence, known.runs = known.run, fence, '0'
  elseif how ~= 'ended' then
    known.failures = plus('failures', 1)
  end
end

-- The fields of meta that store this, for HSET.
local function memory()
  if not known.run then return 'unended', '' end
  return 'unended', '', 'run', known.run, 'success', known.success or '', 'success_fence', known.success_fence or '',
    'failures', known.failures or '0', 'runs', known.runs or '0'
end
