-- Takes the lock, or returns its holder.
--
-- KEYS: all (store/redis/scripts/keys.lua)
-- ARGV: token
--       TTL (ms)
--       take id
--       again ("1": an earlier attempt of this take got no reply)
--       record of the holder
--       mode
--       slots
--       hold (--hold-at-least, ms)
--       what a refusal means ("asks": the client asks again; "queues": the client asks again and
--         gets a place in the queue; "conflict" or "timeout": the client gives up)
--       how long the client has waited (ms)
--       when the client first came (server, us; 0: now)
--       whether the client will listen ("0": no; "1": yes; "try": yes, but it is not known on this
--         connection whether its user may notify waiters)
--       how long the run is remembered (ms)
--       minimum time since the start of the last success (ms; 0: any)
--       "1" if the client asks because no other waiter has reported a request for a long time
--       the fence that the client proposes (us; 0: none)
--       "1" if the client's lease already has that fence on other servers
-- Returns one of these:
--   {"taken", fence, rest of the lease (ms), slot (-1: none), when the lease ends (server, ms)}
--   {"held", rest of the lease (ms; -1: no expiry), when to ask again at the latest (ms from now;
--            -1: not known), mode in force, "1" if the lock is free but earlier waiters come first,
--            number of earlier waiters (-1: not known), when the client first came, why waiters
--            cannot be notified, rest of a pause (ms), by whom, why, slots in force and slots taken
--            ('' unless the mode in force is slots), history, record of the holder ('': not known)}
--   {"done", when the last success began (wall clock, ms), its host}
--   {"unusable", key, what is wrong with it}
--   {"newer", format}: the lock has a newer format than this script knows, and nothing was changed;
--            any script that gets the key meta may return this

-- include keys.lua

local token, ttl, id, again, wanted = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1', ARGV[5]
local mode, slots, hold, refusal, waited = ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10])
local came, listens, remember, once_per, unseen = number(ARGV[11]), ARGV[12], ARGV[13], tonumber(ARGV[14]), ARGV[15] == '1'
local proposed, joins = tonumber(ARGV[16]), ARGV[17] == '1'

local time = call('TIME')
local now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
local now = math.floor(now_us / 1000)

local is_new = came <= 0 -- the client has never been in the queue
if is_new or came > now_us then came = now_us end

-- A fence is the server's clock (us), or the last fence + 1 if that is higher. So fences rise even
-- if keys are lost, the server is emptied, or a clock steps back. Lua counts exactly up to 2^53,
-- which as a time in microseconds is in the year 2255.
--
-- In a quorum the client proposes a fence, so that all servers give the same one. A server uses the
-- proposal instead of its clock's time if the proposal is not later than that time and less than a
-- second earlier. A server that knows no fence ignores the proposal, so a server that was emptied
-- gives a higher fence than before. A lease that other servers have already granted (`joins`) keeps
-- its fence.
local function next_fence(last)
  local clock = now_us
  last = number(last)
  if not (last < 9007199254740991) then return nil, {'unusable', meta, 'its fence has reached its maximum'} end
  if joins then return whole(math.max(proposed, last)) end
  if last > 0 and proposed > now_us - 1000000 and proposed <= now_us then clock = proposed end
  return whole(math.max(clock, last + 1))
end

-- Writes what every take writes into meta. Meta must not expire before the clock has passed the
-- fence: otherwise, if the clock is far ahead at this take and is set back afterwards, a later
-- fence would be lower.
local function note_take(fence, takes, waits, run, ...)
  call('HSET', meta, 'format', FORMAT, 'fence', fence, 'mode', mode, 'slots', slots, 'takes', plus(takes, 1),
    'waited_ms', plus(waits, waited), 'kept', remember, ...)
  if remember == '0' and run then try('HDEL', meta, 'run', 'success', 'success_fence', 'failures', 'runs', 'history') end
  call('PEXPIRE', meta, whole(ttl + kept_ms(remember) + math.max(0, math.floor(tonumber(fence) / 1000) - now)))
end

local function new_record()
  return wanted .. 'format ' .. whole(FORMAT) .. '\n' .. (hold > 0 and 'hold ' .. whole(now + hold) .. '\n' or '')
end

-- The lock's key is written last, so that a failure before that leaves no lock behind.
local function take_exclusive(last, takes, waits, run)
  local fence, problem = next_fence(last)
  if problem then return problem end
  note_take(fence, takes, waits, run, 'owner', token, 'record', new_record(), 'unended', remember ~= '0' and '1' or '')
  call('SET', lock, token, 'PX', ARGV[2])
  value = token
  return {'taken', fence, ttl, -1, now + ttl}
end

-- Most takes find a lock that was released, and no waiter that comes before them. Such takes are
-- decided here, because the server would take longer to load the rest of the script than to run
-- this part. Returns nil if the rest must decide.
local first = try('ZRANGE', queue, 0, 0)[1]
local function take_plainly()
  if value ~= false or mode ~= 'exclusive' or once_per > 0 or (first or id) ~= id then return nil end
  local found = try('HMGET', meta, 'format', 'mode', 'unended', 'pause_ends', 'spent', 'withdrawn', 'fence', 'takes', 'waited_ms', 'run')
  if found.err then return nil end
  local format, last_mode, unended, pause_ends, spent, withdrawn, last, takes, waits, run = unpack(found)
  if newer(format) or (last_mode or mode) ~= mode or unended == '1' or pause_ends or
    (spent and spent:find(id, 1, true)) or (withdrawn and withdrawn:find(id, 1, true)) then return nil end
  return take_exclusive(last, takes, waits, run)
end

local plain = take_plainly()
if plain and not first then return plain end

-- include queue.lua

if plain then
  leave(id, now)
  return plain
end

-- include common.lua holders.lua

if no_meta then return {'unusable', meta, 'it is not a hash'} end
-- This take was delayed on its way, and the client has given it up in the meantime, so no process
-- is left to release the lock.
if past('spent', id, '') or past('withdrawn', id, '') then return {'unusable', lock, 'this take was given up'} end

-- --- refusals ---

-- Records that the client gives up and does not run its command.
local function skip()
  local skips, of = skips_now()
  if known.kept ~= '0' then try('HSET', counts, 'skips_of', of, 'skips', whole(number(skips) + 1)) end
  if waited > 0 then count('waited_ms', waited) end
  if not is_new then leave(id, now) end
end

-- Returns the reply if --once-per makes this run unnecessary: by the clocks of the hosts, the last
-- success began less than once_per ago.
local function done()
  local began = once_per > 0 and tonumber(string.match(known.success or '', '^%d+'))
  local since = tonumber(wanted:match('\nsince (%d+)')) or 0
  if not began or math.abs(since - began) >= once_per then return nil end
  local start, host = known.success:match('^(%d+)\t[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)')
  skip()
  try('PEXPIRE', counts, whole(kept_ms(known.kept)))
  return {'done', start or '0', host or ''}
end

-- Records the refusal. Returns how many waiters come before this client, and why waiters cannot be
-- notified.
local function note_refusal()
  if refusal == 'conflict' or refusal == 'timeout' then
    count(refusal .. 's', 1)
    skip()
  elseif refusal == 'queues' then
    local us = {id = id, mode = mode, slots = number(slots), who = wanted}
    local uncalled = enqueue(us, came, listens, unseen, now)
    local place = try('ZRANK', queue, id)
    return type(place) == 'number' and place or -1, uncalled
  end
  local all = try('ZCARD', queue)
  return type(all) == 'number' and all or -1, ''
end

local function refuse(left, ask, who, mode_in_force, reserved)
  local answer = done()
  if answer then return answer end
  local paused = pause_left(now)
  if paused > 0 and ask >= 0 then ask = math.max(ask, paused) end
  local place, uncalled = note_refusal()
  local of_slots = mode_in_force == 'slots'
  return {'held', left, ask, mode_in_force, reserved or '', place, whole(came), uncalled,
    whole(paused), known.paused_by or '', known.pause_why or '', of_slots and known.slots or '',
    of_slots and try('ZCOUNT', holders, '(' .. whole(now), '+inf') or '', known.history or '', who and said(who) or ''}
end

-- --- leftovers of earlier holders ---

local DROPPED_MOST = 20

-- Removes holders whose leases have ended, or whose lock another client has removed.
local function drop(members)
  local lost = false
  for _, member in ipairs(members) do
    local slot, holder = read_member(member)
    local record = read_record(holder_key(holder))
    if not shares(record, now) then
      if record and not record.released then
        end_run(record, '0', 'lost')
        lost = true
      end
      call('DEL', holder_key(holder))
    end
    if slot then call('SETBIT', taken, slot, 0) end
  end
  if #members > 0 then call('ZREM', holders, unpack(members)) end
  if lost then try('HSET', meta, memory()) end
end

-- Removes the shared holders that remain from before the lock became free. If there are many, only
-- the runs of the first DROPPED_MOST are remembered.
local function forget_old_holders()
  if mode == 'exclusive' and (known.mode or 'exclusive') == 'exclusive' then return end
  local old = allowed(try('ZRANGE', holders, 0, DROPPED_MOST - 1), 'ZRANGE')
  if not old.err then drop(old) end
  if old.err or #old > 0 then call('UNLINK', holders, taken) end
end

-- Called when the lock is free. If the last exclusive holder has not released it, that holder's run
-- is recorded as lost.
local function end_lost_run()
  if known.unended ~= '1' or not last_holder() then return end
  end_run(last_holder(), '0', 'lost')
  try('HSET', meta, memory())
end

-- If the take whose reply was lost did happen, but its record is gone (evicted), releases the lock,
-- so that it can be taken again. This is done only for a token that was not chosen by a user,
-- because no other client can have such a token.
local function release_unrecorded()
  if not again or token ~= id then return end
  if value == token and known.owner ~= token then
    call('DEL', lock)
    value = false
  elseif is_shared() and mode == 'shared' and not share_of(own, now) then
    if call('ZREM', holders, token) == 1 then settle(now) end
  end
end

-- --- takes ---

-- If `record` belongs to the take whose reply was lost, that take succeeded, so its reply is
-- returned. Meta is written again for WAIT, because WAIT counts only replicas that have the last
-- write of the same connection, and the take was written on another connection. If meta is gone
-- (evicted), the mode of this request is written.
local function taken_before(record)
  if not again or not record or record.take ~= id or record.released then return nil end
  local fence = record.fence or known.fence
  if known.fence then call('HSET', meta, 'fence', known.fence) else note_take(fence, known.takes, known.waited_ms, known.run) end
  local left, ends = lease_end(record)
  return {'taken', fence, left, record.slot or -1, ends}
end

local function take_share(slot, last)
  local fence, problem = next_fence(known.fence)
  if problem then return problem end
  if known.owner == token then call('HDEL', meta, 'owner', 'record') end -- that exclusive take is over
  note_take(fence, known.takes, known.waited_ms, known.run)
  local is_first, ends = not value, now + ttl
  value = value or SHARED .. whole(now_us)
  local record = record_in(new_record())
  record.fence, record.slot, record.round = fence, slot, value
  if not is_first then keep(now, math.max(last, ends)) end
  write_record(record, now, ttl)
  call('ZADD', holders, whole(ends), member_of(token, slot))
  if slot >= 0 then call('SETBIT', taken, slot, 1) end
  if is_first then
    keep_holders(ttl)
    call('SET', lock, value, 'PX', whole(ttl * 1.5))
  end
  known.mode, known.slots = mode, slots
  return {'taken', fence, ttl, slot, ends}
end

local function take(slot, last)
  local answer = done()
  if answer then return answer end
  if not value then
    forget_old_holders()
    end_lost_run()
  end
  known.kept = remember
  answer = mode == 'exclusive' and take_exclusive(known.fence, known.takes, known.waited_ms, known.run) or take_share(slot, last)
  if not is_new then leave(id, now) end
  return answer
end

-- Returns {ours, ends, newer}: `ours` is true if it is this client's turn. Otherwise `ends` is when
-- another waiter's turn ends, and `newer` is the reply if that waiter's format is newer.
local function may_go()
  local first = first_waiter()
  if not first or first == id then return {ours = true} end
  local called = call_next(now, id)
  return {ours = not called.id, ends = called.ends, newer = called.newer}
end

-- --- the states of the lock ---

-- Returns the lowest free slot, or nil if none is free, or if the bitmap and the set of holders
-- disagree.
local function free_slot()
  if call('BITCOUNT', taken) ~= call('ZCARD', holders) then return nil end
  local slot = call('BITPOS', taken, 0)
  return slot < tonumber(slots) and slot or nil
end

-- Joins the shared holders. The request has the mode and number of slots that are in force. Each
-- holder counts for as long as its lease lasts. Holders whose leases have ended leave the set, at
-- most DROPPED_MOST in one call.
local function join(last)
  local record = share_of(own, now)
  drop(call('ZRANGEBYSCORE', holders, '-inf', whole(now), 'LIMIT', 0, DROPPED_MOST))
  if record then
    local left = lease_end(record)
    return refuse(left, left, record, mode)
  end
  local slot = -1
  if mode == 'slots' then slot = free_slot() end
  local turn = not slot and {} or pause_left(now) > 0 and {ends = now} or may_go()
  if turn.ours then return take(slot, last) end
  local found = call('ZRANGEBYSCORE', holders, '(' .. whole(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local left, _, holder = found[2] and read_end(found[2]) - now or 0, read_member(found[1] or '')
  return refuse(left, turn.ends and turn.ends - now or left, read_record(holder_key(holder)), mode)
end

-- Returns the reply while the lock is shared, or nil if all leases have ended, because the lock is
-- free then.
local function ask_sharers()
  local last, ends = last_to_end()
  local answer = again and last and taken_before(share_of(own, now))
  if answer then return answer end
  if last and ends <= now then
    call('DEL', lock)
    value = false
    return nil
  end
  -- The records of all holders of a lock must have the same format, so a client that writes another
  -- format has to wait.
  local same = tonumber(known.format or 1) == FORMAT
  if last and same and mode == known.mode and slots == known.slots then return join(ends) end
  -- Without the set of holders, only the expiry of the lock's key is known.
  local left = last and ends - now or call('PTTL', lock)
  local _, holder = read_member(last or '')
  return refuse(left, left, last and read_record(holder_key(holder)), known.mode or 'shared')
end

local function ask_holder()
  local holder = value == known.owner and last_holder()
  local answer = value == token and taken_before(holder)
  if answer then return answer end
  local left = call('PTTL', lock)
  return refuse(left, left, holder, 'exclusive')
end

local function take_free()
  if pause_left(now) > 0 then return refuse(-1, 0, nil, 'exclusive') end
  local turn = may_go()
  if turn.newer then return turn.newer end
  if not turn.ours then return refuse(-1, turn.ends - now, nil, 'exclusive', '1') end
  return take(mode == 'slots' and 0 or -1)
end

release_unrecorded()
local answer = is_shared() and ask_sharers()
if answer then return answer end
return value and ask_holder() or take_free()
