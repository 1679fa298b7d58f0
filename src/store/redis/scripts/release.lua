-- Releases the lock if it is still ours: compare-and-delete.
--
-- KEYS: all (store/redis/scripts/common.lua)
-- ARGV: token, take id ("": the token alone counts), now (wall clock of the holder, ms),
--       hold (ms for which others must still be kept out; 0: none; "": as asked for at the
--       take), "lost" if the lease was over before its command, otherwise when the lease ends
--       (server, ms; "": given up, and perhaps never taken), "1" if a try of the take had no
--       answer and may come yet, when its run ended (wall clock, ms), how ("": nothing has run),
--       when it began (0: as the take says, which may have been long on its way), its fence (0:
--       as the take says; in a quorum they differ), id of the request if another process took it
-- Returns {"released", "now"}, or with what could not be written of it, {"released", ""}: it
--         had been before, {"gone" or "other", "forced USER@HOST", "late" (not lost: it has
--         ended since), "ended" or ""}
--
-- A server that refuses writes for its state (OOM, NOREPLICAS, MISCONF, READONLY) refuses the
-- first one of a script. So the first one of a release is one that is not allowed to fail, and
-- that needs no memory: either all is written, or nothing, and the release is sent again. A late
-- one writes the run or fails.

-- include common.lua

local token, id, wall, hold = ARGV[1], ARGV[2], tonumber(ARGV[3]) or 0, tonumber(ARGV[4])
local outside = ARGV[11]
local given_up = not outside and ARGV[5] == ''

-- The contents of meta are for people, except the fence; if they cannot be written the
-- lock is still released, and the answer says why.
local unwritten
local function written(reply)
  if type(reply) == 'table' and reply.err then unwritten = unwritten or reply.err .. ' (HSET)' end
end

local function end_own_run(who, how)
  if ARGV[9] ~= '0' then who.since = ARGV[9] end
  end_run(who, ARGV[7], how, ARGV[10] ~= '0' and ARGV[10] or nil)
end

local function released()
  return {'released', 'now', unwritten}
end

local function note_release(who)
  local held = who.since and math.max(0, wall - (tonumber(who.since) or 0)) or 0
  if ARGV[8] ~= '' and who.since then end_own_run(who, ARGV[8]) end
  if who == known.holder then
    who.released, who.message = true, nil
    known.record = hold > 0 and cjson.encode(who) or ''
  end
  written(redis.pcall('HSET', meta, 'record', known.record or '', 'spent', past_with('spent', who.take or (id ~= '' and id) or '-', token, ARGV[3]),
    'held_ms', plus('held_ms', held), 'losses', plus('losses', ARGV[5] == 'lost' and 1 or 0), memory()))
  if not known.fence and not no_meta then redis.pcall('PEXPIRE', meta, whole(kept_ms())) end
end

-- Most releases are of an exclusive lock that nobody waits for, and need no more than this.
local holder, first = known.owner == token and last_holder() or nil
if holder and value == token and id == holder.take and not holder.released and not outside and not given_up and ARGV[6] ~= '1' and
  (hold or tonumber(holder.hold) or 0) == 0 then
  hold = 0
  redis.call('DEL', lock)
  value = false
  note_release(holder)
  first = redis.pcall('ZRANGE', queue, 0, 0)[1]
  if not first then return released() end
end

-- include holders.lua queue.lua

if first then
  hand_on(now_ms(), first)
  return released()
end

local how, record = standing(token, id)
-- With --owner the next holder may have the same token.
if outside and past('requests', outside, '') then how, record = 'released', nil end
if given_up then
  -- With --owner other takes have this token as well: unless something says that this
  -- take happened, the lock is theirs.
  if how == 'ours' and (record or holder or {}).take ~= id then how, record = 'other', nil end
  leave(id, now_ms())
end
-- A take that is still on its way must not find the lock free: no client is left to release
-- it. A lost take is withdrawn as well, so that the loss is counted once, though the answer to
-- this may be lost and the release come again.
local counted, lost = past('withdrawn', id, ''), how ~= 'ours' and how ~= 'released'
local withdraws = not no_meta and not counted and (ARGV[6] == '1' or lost and id ~= '')
if how ~= 'ours' then
  if withdraws then note('withdrawn', id, '-', '') end
  local run = known.unended == '1' and holder and holder.take == id and holder
  if lost and (tonumber(ARGV[5]) or 1e99) <= now_ms() and (record or 'ended') == 'ended' then
    lost, record = false, 'late'
    -- Otherwise those who come to share the lock later find the record of a run without an end.
    local share = not run and own and read_record(own)
    if share and share.take == id and not share.released and redis.call('DEL', own) then run = share end
  end
  if run and ARGV[8] ~= '' then
    end_own_run(run, (not lost or ARGV[8] == 'stopped') and ARGV[8] or 'lost')
    local write = lost and redis.pcall or redis.call
    write('HSET', meta, memory())
  end
  if not given_up then hand_on(now_ms(), first_waiter()) end
  if lost and not outside and not given_up and not counted then count('losses', 1) end
  return {how, record or ''}
end

local who = record or holder or {}
if not hold then
  hold = tonumber(who.hold) or 0
  if hold > 0 then hold = math.max(0, hold - now_ms()) end
end

if record then
  local now = now_ms()
  local member = member_of(token, record.slot)
  if hold > 0 then
    local left = lease_end(record)
    if left < 0 or left > hold then left = hold end
    record.released, record.message = true, nil
    redis.call('PEXPIRE', own, whole(left))
    if record.take then write_record(record, now, left) end
    redis.call('ZADD', holders, 'XX', whole(now + left), member)
    local last, ends = last_to_end()
    if last then keep(now, ends, true) end
  else
    redis.call('DEL', own)
    if redis.call('ZREM', holders, member) == 1 then
      if record.slot and record.slot >= 0 then redis.call('SETBIT', taken, record.slot, 0) end
      settle(now)
    end
  end
elseif hold > 0 then
  local left = redis.call('PTTL', lock)
  redis.call('PEXPIRE', lock, whole(left < 0 and hold or math.min(left, hold)))
else
  redis.call('DEL', lock)
  value = false
end

note_release(who)
if withdraws then written(note('withdrawn', id, '-', '')) end
-- The process that watches this lease must learn what became of it, however often others
-- have the lock meanwhile.
if outside then written(note('requests', outside, who.take or '-', '-')) end
if hold > 0 then tell_head(now_ms(), first_waiter()) else hand_on(now_ms(), first_waiter()) end
return released()
