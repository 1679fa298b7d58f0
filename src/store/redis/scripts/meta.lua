-- The contents of meta: together with keys.lua, all that a plain release needs.

-- The fields that most scripts need, named one by one, because a loop takes longer than the
-- command. Scripts that need more call learn(). A history without a run is a leftover: an older
-- dlock was set to remember nothing.
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

-- The fields of a text with lines "NAME VALUE", each value percent-encoded (lock/fields.h).
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
--   spent      the last releases: the take, its token, when (wall clock of the holder, ms).
--              With --owner many takes have the same token, but each has its own id.
--   requests   the requests of clients without a take id, so that none is carried out twice if
--              its answer was lost: the request, the take that it released ("-": none), the answer
--   withdrawn  takes that were given up but may still arrive; there is room for some thousands,
--              because a whole crowd may give up
--   forced     leases that were removed by force: the take, its token, USER@HOST
local KEPT = {spent = 2500, requests = 40000, withdrawn = 40000, forced = 8000}

-- The list with one more line. A line that is cut in two is ignored from then on.
local function past_with(list, id, token, text)
  if known[list] == nil then learn(list) end
  local line = id .. ' ' .. token .. ' ' .. text .. '\n'
  return string.sub(line .. (known[list] or ''), 1, math.max(KEPT[list], #line))
end

-- Writes fields of meta. If no take has given meta an expiry, sets one.
local function write_meta(...)
  local reply = try('HSET', meta, ...)
  if known.fence == false then try('PEXPIRE', meta, whole(kept_ms(known.kept))) end
  return reply
end

-- The history with one more run: the new row as history_add() of lock/history.c writes it, and as
-- many of the older rows as fit. A host name that is cut must not end within an escape.
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

-- Records the run that has ended as the last one in `known`. If several holders share a lock, the
-- run that began last may end first: then its success counts, and a later success of an older run
-- only resets the count of failures.
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

-- The fields of meta that hold the result of end_run(), for HSET.
local function memory()
  if not known.run then return 'unended', '' end
  return 'unended', '', 'run', known.run, 'success', known.success or '', 'success_fence', known.success_fence or '',
    'failures', known.failures or '0', 'runs', known.runs or '0', 'history', known.history or ''
end
