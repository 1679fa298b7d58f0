-- Reads and writes meta, the hash with what is known about the lock (keys.lua). This file and
-- keys.lua are all that release_plainly() in release.lua needs.

-- The fields that most scripts need. They are named one by one, because a loop would take longer
-- than the command itself. Scripts that need more fields call learn(). A history without a run is
-- ignored: an older dlock that was set to remember nothing left it behind.
local found = try('HMGET', meta, 'format', 'owner', 'record', 'unended', 'fence', 'mode', 'slots', 'kept', 'pause_ends', 'spent',
  'withdrawn', 'takes', 'losses', 'waited_ms', 'held_ms', 'run', 'success', 'success_fence', 'failures', 'runs', 'history')
local no_meta = found.err and found
known = no_meta and {} or {format = found[1], owner = found[2], record = found[3], unended = found[4], fence = found[5],
  mode = found[6], slots = found[7], kept = found[8], pause_ends = found[9], spent = found[10], withdrawn = found[11],
  takes = found[12], losses = found[13], waited_ms = found[14], held_ms = found[15], run = found[16], success = found[17],
  success_fence = found[18], failures = found[19], runs = found[20], history = found[16] and found[21]}

local function learn(...)
  local more = try('HMGET', meta, ...)
  for i, field in ipairs({...}) do known[field] = more[i] end
end

-- Returns the fields of a text whose lines have the form "NAME VALUE", with each value
-- percent-encoded (lock/fields.h).
local function fields_in(text)
  local fields, name, value, at = {}, nil, nil, 1
  while at do
    name, value, at = text:match('^(%S+) ([^\n]*)\n()', at)
    if at then fields[name] = value end
  end
  return fields
end

-- Past events, in lists of lines "ID TOKEN TEXT", newest first, and how many bytes of each list are
-- kept:
--   spent      the last releases: take id, token, time of the release (wall clock of the holder,
--              ms). With --owner many takes have the same token, but each has a different id.
--   requests   the requests of clients without a take id: request id, the take that the request
--              released ("-": none), the reply. Because of this list, a request that is sent again
--              after its reply was lost is not carried out twice.
--   withdrawn  takes that were given up but may still arrive. There is room for a few thousand,
--              because very many clients may give up at once.
--   forced     leases that were removed by force: take id, token, USER@HOST
local KEPT = {spent = 2500, requests = 40000, withdrawn = 40000, forced = 8000}

-- Returns the list with one more line, cut to its maximum length. A line that is cut in two is
-- ignored from then on.
local function past_with(list, id, token, text)
  if known[list] == nil then learn(list) end
  local line = id .. ' ' .. token .. ' ' .. text .. '\n'
  return string.sub(line .. (known[list] or ''), 1, math.max(KEPT[list], #line))
end

-- Writes fields of meta. If the lock has never been taken, meta has no expiry yet, so one is set.
local function write_meta(...)
  local reply = try('HSET', meta, ...)
  if known.fence == false then try('PEXPIRE', meta, whole(kept_ms(known.kept))) end
  return reply
end

-- Returns the history with one more run: the new row, in the form that history_add() of
-- lock/history.c writes, and as many of the older rows as fit. A host name that is cut must not end
-- within an escape.
local function history_with(who, ended, how)
  local began, history, kept = number(who.since), known.history or '', 0
  local length = began > 0 and how ~= 'lost' and ended - began or -1
  local host = string.sub(who.host or '', 1, 64):gsub('%%.?$', '')
  local row = table.concat({whole(began), length >= 0 and whole(length) or '', how, whole(number(who.ttl)), host}, '\t') .. '\n'
  for _ = 2, 32 do
    local stop = history:find('\n', kept + 1, true)
    if not stop or stop + #row >= 3840 then break end
    kept = stop
  end
  return row .. history:sub(1, kept)
end

-- Records in `known` that this run is the last one to have ended. If several holders share a lock,
-- the run that began last may end first. If that run was a success, it remains the last success:
-- when an older run succeeds later, that only resets the count of failures.
local function end_run(who, ended, how, fence)
  if known.kept == '0' then return end
  known.run = table.concat({who.since or '0', ended, how, who.pid or '0', who.user or '', who.host or '', who.command or ''}, '\t')
  known.history = history_with(who, ended, how)
  known.runs = plus(known.runs, 1)
  fence = fence or who.fence or known.fence
  if how == 'status 0' then
    known.failures = '0'
    if who.round and number(fence) < number(known.success_fence) then return end
    known.success, known.success_fence, known.runs = known.run, fence, '0'
  elseif how ~= 'ended' then
    known.failures = plus(known.failures, 1)
  end
end

-- Returns the fields of meta that store the result of end_run(), with their values, for HSET.
local function memory()
  if not known.run then return 'unended', '' end
  return 'unended', '', 'run', known.run, 'success', known.success or '', 'success_fence', known.success_fence or '',
    'failures', known.failures or '0', 'runs', known.runs or '0', 'history', known.history or ''
end
