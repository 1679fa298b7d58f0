-- Functions common to the scripts; store/redis/scripts/embed.sh puts it before each of
-- them, but store/redis/scripts/share.lua.
--
-- KEYS: lock, meta, own, holders, taken, counts, queue, waiters; a script is given as many
-- of them as it needs, from the left, because all keys given to it are watched
--
-- lock     the owner's token, or SHARED and the fence of the first of those who share it:
--          a lock that was lost and is shared anew has another value
-- meta     hash: the number of the format (lock/format.h), set by a take of the free lock,
--          which all of the lock's keys and holders have in common, but for waiters; the
--          exclusive holder; the mode in force; the last fence; the last
--          releases, leases taken away by force, takes that were withdrawn before they
--          came, and what was done on request; takes, losses, waited_ms, held_ms; the
--          runs: "run", the last one that ended, and "success" (lock/run_memory.h),
--          failures in a row, runs since the success, "unended" while the exclusive holder
--          has one, "kept" as remembered (ms); until when the lock is paused (server, ms), by
--          whom and why
-- own      the record (JSON) of one who shares the lock, with the end of its lease: the name
--          ends in its token, and no other client watches it
-- holders  sorted set: each who shares the lock (member_of()) -> when its lease ends
--          (server, ms)
-- taken    bitmap of the slots that are taken
-- counts   hash, for clients that are refused the lock: conflicts, timeouts, losses,
--          waited_ms, skips since the success that ended at skips_of (a write to meta would
--          wake the exclusive holder)
-- queue    sorted set: the waiters, in order of arrival
-- waiters  hash: what is known of them (store/redis/scripts/queue.lua)
--
-- Those who share a lock watch it and their own key. So a join or a leave touches neither,
-- unless the lock's expiry has to move, which it does by half of what is left (keep()).
-- No script goes through the holders, but for those that look at all of them. Orders of
-- events:
--
--   A holder joins or leaves -> holders, taken, meta and its own key change -> no other
--     holder is told.
--   Another client removes the lock -> all who share it are told, and have lost it. The
--     next one to share it begins with an empty set -> an own key from before it has
--     another value of the lock in it, and is worth nothing.
--   A lease ends -> it is not counted; its place in the set and its record stay until the
--     next one joins, a few at a time (drop_ended()), so that its run is remembered.
--   All leases end -> the lock's key stays for half a lease at most -> the next take
--     removes it.
--   Another client removes the set -> nobody joins until the lock's key is gone; those who
--     share it keep it, and none of them can tell that it is the last.

local lock, meta, own, holders, taken, counts, queue, waiters = unpack(KEYS)
local SHARED = 'dlock:shared:'
local LINES_KEPT, WITHDRAWN_BYTES = 8, 40000 -- a thousand of them
local FORCED_BYTES = 8000
local META_KEPT_MS = 2592000000 -- 30 days beyond the lease, at least

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- "%d" would cut a time in milliseconds to 32 bits on a 32-bit server.
local function whole(number)
  return string.format('%.0f', number)
end

-- A value at the key that is not a string is another client's lock of some kind, which
-- blocks ours until it is gone: no owner token is ''.
local value = redis.pcall('GET', lock)
if type(value) == 'table' and value.err then
  if not is_wrong_type(value) then return {err = value.err .. ' (GET)'} end
  value = ''
end

local function is_shared()
  return value and string.sub(value, 1, #SHARED) == SHARED
end

-- The contents of meta: what all scripts need, and the rest for those that ask for it.
local known = {}
local function learn(...)
  local fields = {...}
  local found = redis.pcall('HMGET', meta, ...)
  if found.err then return found end
  for i, field in ipairs(fields) do known[field] = found[i] end
end
local no_meta = learn('owner', 'take', 'fence', 'mode', 'slots', 'since', 'hold', 'spent', 'returned', 'withdrawn', 'takes', 'losses',
  'waited_ms', 'held_ms', 'host', 'pid', 'user', 'command', 'run', 'success', 'failures', 'runs', 'unended', 'kept',
  'pause_ends', 'format')
if no_meta and not is_wrong_type(no_meta) then return {err = no_meta.err .. ' (HMGET)'} end

-- embed.sh puts a number in place of FORMAT.
local function newer(format)
  format = tonumber(format) or 1
  return format > FORMAT and {'newer', format}
end
if newer(known.format) then return newer(known.format) end

-- What is left of a pause (ms); 0: there is none.
local function pause_left(now)
  local ends = tonumber(known.pause_ends)
  if not ends or not (ends > now) then return 0 end
  learn('paused_by', 'pause_why')
  return math.min(ends, 9007199254740992) - now
end

-- The exclusive holder.
local function learn_owner()
  learn('ttl', 'detached', 'space', 'boot', 'start', 'message')
  return known
end

-- The last releases, newest first: lines of "TAKE TOKEN". A take has an id of its own,
-- since with --owner many takes have the same token. Releases by a process other than the
-- taker are in "returned" as well.
local function has_line(field, take, token)
  local lines = known[field]
  if not lines or not take or not string.find(lines, take ~= '' and take or token, 1, true) then return false end
  for id, owner in string.gmatch(lines, '(%S+) (%S+)\n') do
    if take == id or (take == '' and token == owner) then return true end
  end
  return false
end

local function is_spent(take, token)
  return has_line('spent', take, token) or (take ~= '' and has_line('returned', take, token))
end

local function line_before(field, take, token)
  local all = take .. ' ' .. token .. '\n' .. (known[field] or '')
  return string.match(all, '^' .. string.rep('[^\n]*\n', LINES_KEPT)) or all
end

-- Who took a lease away: lines of "TAKE TOKEN USER@HOST" by store/redis/scripts/force.lua, newest first.
local function forced_by(take, token)
  learn('forced')
  for id, owner, by in string.gmatch(known.forced or '', '(%S+) (%S+) ([^\n]*)\n') do
    if owner == token and (take == '' or take == id) then return 'forced ' .. by end
  end
end

local function is_withdrawn(take)
  return string.find(known.withdrawn or '', take .. '\n', 1, true) ~= nil
end

-- A client that has gone cannot release a lock that its take, still on its way, will find
-- free. Withdrawn takes are kept apart from the releases: a contended lock soon has more
-- than eight of those, and a crowd may give up at once.
local function withdraw(take)
  if no_meta or is_withdrawn(take) then return end
  redis.pcall('HSET', meta, 'withdrawn', string.sub(take .. '\n' .. (known.withdrawn or ''), 1, WITHDRAWN_BYTES))
  if not known.fence then redis.pcall('PEXPIRE', meta, META_KEPT_MS) end
end

-- If a removal's answer was lost and it is requested again, for a client that has no take
-- id, it must not be done twice: another client may have the lock by then. Lines of "ID
-- ANSWER", by the id of the request, newest first.
local function answer_to(request)
  learn('requests')
  for id, answer in string.gmatch(known.requests or '', '(%S+) ([^\n]*)\n') do
    if id == request then return answer end
  end
end

local function remember(request, answer)
  redis.pcall('HSET', meta, 'requests', line_before('requests', request, answer))
  if not known.fence and not no_meta then redis.pcall('PEXPIRE', meta, META_KEPT_MS) end
end

-- The types of a record's fields, if present: text, unless listed here.
local RECORD_TYPES = {slot = 'number', released = 'boolean'}

local function is_record(record)
  if type(record) ~= 'table' or not record.take or newer(record.format) then return false end
  for field, it in pairs(record) do
    if type(it) ~= (RECORD_TYPES[field] or 'string') then return false end
  end
  local slot = record.slot or -1
  return slot >= -1 and slot < 2147483648 and slot % 1 == 0
end

local function holder_key(token)
  return string.sub(meta, 1, -5) .. 'holder:' .. token
end

-- What is known of one who shares the lock, or has; nil if that is nothing, or not what we
-- would write. And whether there is anything.
local function read_record(key)
  local text = redis.pcall('GET', key)
  if type(text) ~= 'string' then return nil, text end
  local decoded, record = pcall(cjson.decode, text)
  return decoded and is_record(record) and record or nil, true
end

local function record_of(token)
  return (read_record(holder_key(token)))
end

local function shares(record, now)
  return record and record.round == value and (tonumber(record.ends) or 0) > now
end

local function share_of(key, now)
  local record = read_record(key)
  return shares(record, now) and record or nil
end


local function member_of(token, slot)
  return (slot or -1) >= 0 and whole(slot) .. ' ' .. token or token
end

-- The slot (nil: none) and the token of a member.
local function read_member(member)
  local slot, token = string.match(member, '^(%d+) (.+)$')
  return tonumber(slot), token or member
end

-- The ACL's error, with the command; false for any other reply. Redis before 7, 7.0, and
-- since 7.2.
local function denial(reply, command)
  local err = type(reply) == 'table' and reply.err
  for _, words in ipairs({'NOPERM', 'user executing the script', 'ACL failure'}) do
    if err and string.find(err, words, 1, true) then return err .. ' (' .. command .. ')' end
  end
  return false
end

-- For replies that must be known: if an ACL denies the command, there is no answer.
local function allowed(reply, command)
  if type(reply) == 'table' and reply.err and not is_wrong_type(reply) then error(reply.err .. ' (' .. command .. ')', 0) end
  return reply
end

-- The end of a lease: "inf", which other clients may write, can be neither used in
-- arithmetic nor sent.
local function read_end(score)
  return math.min(tonumber(score), 9007199254740992)
end

-- The first or the last of the set: its member, and when its lease ends; nil if there is none.
local function holder_at(place)
  local found = redis.pcall('ZRANGE', holders, place, place, 'WITHSCORES')
  -- In a Cluster that is moving the slot, the set cannot be read once its last member has
  -- just been removed.
  if found.err and string.find(found.err, 'non local key', 1, true) then return nil end
  if allowed(found, 'ZRANGE').err or not found[1] then return nil end
  return found[1], read_end(found[2])
end

-- The standing of the lock for this token and take id ('': the token alone counts).
--
--   lock            record that goes with the token         standing
--   the token       meta's, of another take                 released if this take was; other
--                   meta's, of a take that was released     released
--                   meta's, or none: the token is all       ours
--   shared          none, and all leases have ended         gone
--                   own, of another take                    released if this take was; other
--                   own, released and kept                  released
--                   own, or unreadable and in the set       ours
--                   own, ended; or meta's is this take's    gone
--                   none                                    released if this take was; other
--   another value   meta's is this take's, not released     other
--                   otherwise                               released if this take was; other
--   none            meta's is this take's, not released     gone
--                   otherwise                               released if this take was; gone
--
-- With 'ours' comes the record of one who shares the lock; with 'other' and 'gone',
-- 'forced USER@HOST' if it was taken away by force, or 'ended' if it was that owner's.
local function standing(token, take)
  local record, share, past, all_ended
  if value == token then
    record = known.owner == token and known or {}
  elseif is_shared() then
    local now, found = now_ms()
    past, found = read_record(own)
    if shares(past, now) then
      record = past
    elseif found and not past then
      local score = allowed(redis.pcall('ZSCORE', holders, token), 'ZSCORE')
      local ends = type(score) == 'string' and read_end(score)
      record = ends and ends > now and {ends = ends} or nil
    end
    share = record
    if not record then
      local last, ends = holder_at(-1)
      all_ended = last and ends <= now
    end
  end
  if record then
    if record.take and take ~= '' and record.take ~= take then
      return is_spent(take, token) and 'released' or 'other', forced_by(take, token)
    end
    local released = record.take and is_spent(record.take, '')
    if share then released = share.released end
    if released then return 'released' end
    return 'ours', share
  end
  local last = known.owner == token and (take == '' or known.take == take) and known.take or past and past.take
  local ended = last and not is_spent(last, '')
  if not ended and is_spent(take, token) then return 'released' end
  return value and not (all_ended or ended and is_shared()) and 'other' or 'gone', forced_by(last or take, token) or ended and 'ended' or nil
end

-- What is left of a lease of ours (ms; -1: no expiry), and its end as server time, ms (-1:
-- never).
local function lease_end(record)
  local now = now_ms()
  local left = record and tonumber(record.ends) - now or redis.call('PTTL', lock)
  return left, left < 0 and -1 or now + left
end

-- {"ours", left (ms; -1: no expiry), mode, slots, slot, when it ends (server, ms; -1:
-- never)}
local function say_ours(record)
  local left, ends = lease_end(record)
  if not record then return {'ours', left, 'exclusive', '0', '-1', ends} end
  return {'ours', left, known.mode or 'shared', known.slots or '0', tostring(record.slot or -1), ends}
end

-- How long meta stays beyond the last lease: for the fence, and for the memory of runs.
local function kept_ms()
  return math.max(META_KEPT_MS, tonumber(known.kept) or 0)
end

local function write_record(record, now, left)
  record.ends = whole(now + left)
  redis.call('SET', own, cjson.encode(record), 'PX', whole(left + (known.kept == '0' and 0 or kept_ms())))
end

-- The set outlives the lock: what is in it then did not release.
local function keep_holders(left)
  for _, key in ipairs({holders, taken}) do redis.call('PEXPIRE', key, whole(left + kept_ms())) end
end

-- The lock's key lasts as long as the last lease, and up to half as long again, so that it
-- seldom changes: all who share it are told of that. With `exactly` it is also shortened,
-- if it would outlast the last lease by far.
local function keep(now, last, exactly)
  local left, need = redis.call('PTTL', lock), last - now
  if left >= need and not (exactly and left > 3 * need + 1000) then return end
  redis.call('PEXPIRE', lock, whole(need * 1.5))
  keep_holders(need)
end

-- Some holder has left. If none with an unexpired lease is left, the lock goes at once, so
-- that the waiters can be called now.
local function settle(now)
  local last, ends = holder_at(-1)
  if last and ends > now then return keep(now, ends, true) end
  redis.call('DEL', lock)
  if not last then redis.pcall('UNLINK', taken) end
  value = false
end

-- The sum of a number in meta and `number`.
local function plus(field, number)
  return whole((tonumber(known[field]) or 0) + number)
end

-- A run has ended: `known` has it as the last one.
local function end_run(who, ended, how)
  if known.kept == '0' then return end
  local pid, user, host = who.pid or '', string.gsub(who.user or '', '\t', ' '), string.gsub(who.host or '', '\t', ' ')
  known.run = table.concat({who.since or '0', ended, how, pid ~= '' and pid or '0', user, host, who.command or ''}, '\t')
  known.runs = plus('runs', 1)
  if how == 'status 0' then
    known.success, known.failures, known.runs = known.run, '0', '0'
  elseif how ~= 'ended' then
    known.failures = plus('failures', 1)
  end
end

local function memory()
  if not known.run then return 'unended', '' end
  return 'unended', '', 'run', known.run, 'success', known.success or '', 'failures', known.failures or '0', 'runs', known.runs or '0'
end

-- Skips since the last success.
local function skips_now()
  local of = string.match(known.success or '', '^%d+\t(%d+)') or ''
  local was = redis.pcall('HMGET', counts, 'skips_of', 'skips')
  return not was.err and was[1] == of and was[2] or '0', of
end

-- A holder that never released: its lease has ended, or the lock was removed.
local function lose_run(who)
  end_run(who, '0', 'lost')
  redis.pcall('HSET', meta, memory())
end

-- For people: if it cannot be written, the operation still goes on.
local function count(field, number)
  redis.pcall('HINCRBY', counts, field, whole(number))
  redis.pcall('PEXPIRE', counts, whole(kept_ms()))
end
