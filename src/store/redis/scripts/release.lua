-- Releases the lock if the client still holds it: compare-and-delete.
--
-- KEYS: all (store/redis/scripts/keys.lua)
-- ARGV: token
--       take id ("": only the token is compared)
--       now (wall clock of the holder, ms)
--       how much longer other clients must be kept out (ms; 0: not at all; "": as requested at the
--         take)
--       "lost" if the lease ended before its command did; "" if the take is given up, and may never
--         have happened; otherwise when the lease ends (server, ms)
--       "1" if an attempt of the take got no reply and may still arrive
--       when the run ended (wall clock, ms)
--       how the run ended ("": nothing has run)
--       when the run began (0: as in the record of the take, which is too early if the take was
--         delayed)
--       the fence of the run (0: as in the record; the two differ in a quorum)
--       id of the request, if another process acquired the lock
-- Returns {"released", "now"}, possibly followed by what could not be written; or {"released", ""}
--         if the lock had already been released; or {"gone" or "other", reason}. The reason is
--         "forced USER@HOST", "late" (the lease ended before the release arrived, but the lock was
--         not lost), "ended" or "".
--
-- A server that refuses writes because of its state (OOM, NOREPLICAS, MISCONF, READONLY) refuses
-- the first write of a script. So the first write of a release needs no memory, and ends the script
-- if it fails. Either everything is written, or nothing is written and the release is sent again. A
-- release after the end of the lease either records the run or fails.

-- include keys.lua meta.lua

local token, id, wall, hold, ends = ARGV[1], ARGV[2], number(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local may_come, ended, result, began, fence, outside = ARGV[6] == '1', ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local given_up = not outside and ends == ''

-- Except for the fence, the contents of meta are only shown to people. If they cannot be written,
-- the lock is still released, and the reply says why.
local unwritten
local function written(reply)
  if type(reply) == 'table' and reply.err then unwritten = unwritten or reply.err .. ' (HSET)' end
end

local function end_own_run(who, how)
  if began ~= '0' then who.since = began end
  end_run(who, ended, how, fence ~= '0' and fence or nil)
end

local function note_release(who)
  local held = who.since and math.max(0, wall - number(who.since)) or 0
  if result ~= '' and who.since then end_own_run(who, result) end
  written(write_meta('record', known.record or '', 'spent', past_with('spent', who.take or (id ~= '' and id) or '-', token, ARGV[3]),
    'held_ms', plus(known.held_ms, held), 'losses', plus(known.losses, ends == 'lost' and 1 or 0), memory()))
end

-- Most releases are of an exclusive lock. As in take.lua, this most common case is decided before
-- the server loads the rest of the script.
local function release_plainly()
  if value ~= token or outside or given_up or may_come then return nil end
  if known.owner ~= token or newer(known.format) then return nil end
  local holder = fields_in(known.record or '')
  if holder.take ~= id or holder.released or holder.slot or newer(holder.format) or (hold or number(holder.hold)) > 0 then return nil end
  call('DEL', lock)
  value, known.record = false, ''
  note_release(holder)
  return {'released', 'now', unwritten}
end

local plain = release_plainly()
local first = try('ZRANGE', queue, 0, 0)[1]
if plain and not first then return plain end

-- include queue.lua

if plain then
  hand_on(now_ms(), first)
  return plain
end

-- include common.lua holders.lua

local holder = known.owner == token and last_holder() or nil

-- Returns a shared holder's record if its run has not ended, and deletes the key of the record, so
-- that a holder that joins later does not find a run without an end. Such a release is late: the
-- lease has ended, but nothing suggests that the lock was lost before.
local function late_share()
  local share = own and read_record(own)
  return share and share.take == id and not share.released and call('DEL', own) and share
end

-- Records the end of the run even though the client no longer has the lock.
local function note_end(how, record, counted)
  local lost = how ~= 'released'
  local run = known.unended == '1' and holder and holder.take == id and holder
  if lost and (tonumber(ends) or 1e99) <= now_ms() and (record or 'ended') == 'ended' then
    lost, record = false, 'late'
    run = run or late_share()
  end
  if run and result ~= '' then
    end_own_run(run, (not lost or result == 'stopped') and result or 'lost')
    local write = lost and try or call
    write('HSET', meta, memory())
  end
  if not given_up then hand_on(now_ms(), first_waiter()) end
  if lost and not outside and not given_up and not counted then count('losses', 1) end
  return {how, record or ''}
end

local function keep_share(record)
  local now, left = now_ms(), lease_end(record)
  if left < 0 or left > hold then left = hold end
  record.released, record.message = true, nil
  call('PEXPIRE', own, whole(left))
  if record.take then write_record(record, now, left) end
  call('ZADD', holders, 'XX', whole(now + left), member_of(token, record.slot))
  local last, last_ends = last_to_end()
  if last then keep(now, last_ends, true) end
end

-- Removes the share from the set of holders. This comes after note_release(): if an ACL denies one
-- of these commands, the script ends here, and the list of releases shows that the share, whose own
-- key is gone, was released and not lost.
local function leave_set(record)
  if call('ZREM', holders, member_of(token, record.slot)) ~= 1 then return end
  local slot = tonumber(record.slot) or -1
  if slot >= 0 then call('SETBIT', taken, slot, 0) end
  settle(now_ms())
end

local function release_exclusive()
  if hold > 0 then
    local left = call('PTTL', lock)
    call('PEXPIRE', lock, whole(left < 0 and hold or math.min(left, hold)))
  else
    call('DEL', lock)
    value = false
  end
  if not holder then return end
  holder.released, holder.message = true, nil
  known.record = hold > 0 and stored(holder) or ''
end

local how, record = standing(token, id)
-- With --owner the next holder may have the same token, so the id of the request shows whether this
-- release has already been carried out.
if outside and past('requests', outside, '') then how, record = 'released', nil end
if given_up then
  -- The lock belongs to another take with the same token (--owner), unless a record shows that it
  -- belongs to this one.
  if how == 'ours' and (record or holder or {}).take ~= id then how, record = 'other', nil end
  leave(id, now_ms())
end

-- A take that is still on its way must not find the lock free, because no client would be left to
-- release it. Such a take is withdrawn: meta lists it, and take.lua refuses it. Meta also lists the
-- take of a lost lease. If the reply to this release is lost, the client sends the release again,
-- and the list shows that the loss has been counted.
local counted = past('withdrawn', id, '')
local withdraws = not no_meta and not counted and (may_come or how ~= 'ours' and how ~= 'released' and id ~= '')
if how ~= 'ours' then
  if withdraws then note('withdrawn', id, '-', '') end
  return note_end(how, record, counted)
end

local who = record or holder or {}
hold = hold or math.max(0, number(who.hold) - now_ms())
if not record then
  release_exclusive()
elseif hold > 0 then
  keep_share(record)
else
  call('DEL', own)
end
note_release(who)
if withdraws then written(note('withdrawn', id, '-', '')) end
-- The process that watches this lease must be able to learn how the lease ended, even if others
-- have held the lock many times since.
if outside then written(note('requests', outside, who.take or '-', '-')) end
if record and hold <= 0 then leave_set(record) end
if hold > 0 then tell_head(now_ms(), first_waiter()) else hand_on(now_ms(), first_waiter()) end
return {'released', 'now', unwritten}
