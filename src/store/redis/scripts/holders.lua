-- Functions about the holders of the lock, exclusive and shared.

-- The rest of a pause (ms); 0 if there is no pause.
local function pause_left(now)
  local ends = tonumber(known.pause_ends)
  if not ends or not (ends > now) then return 0 end
  learn('paused_by', 'pause_why')
  return math.min(ends, 9007199254740992) - now
end

-- Returns 'forced USER@HOST' if force.lua has removed this lease.
local function forced_by(take, token)
  local by = past('forced', take, token)
  return by and 'forced ' .. by
end

local function note(list, id, token, text)
  return write_meta(list, past_with(list, id, token, text))
end

local function holder_key(token)
  return meta:sub(1, -5) .. 'holder:' .. token
end

-- Returns the record of a current or former shared holder (nil if it cannot be read), and whether
-- the key exists.
local function read_record(key)
  local text = try('GET', key)
  if type(text) ~= 'string' then return nil, text end
  return record_in(text), true
end

local function shares(record, now)
  return record and record.round == value and number(record.ends) > now
end

local function share_of(key, now)
  local record = read_record(key)
  return shares(record, now) and record or nil
end

local function member_of(token, slot)
  slot = tonumber(slot) or -1
  return slot >= 0 and whole(slot) .. ' ' .. token or token
end

-- Returns the slot (nil if there is none) and the token of a member of the set of holders. A number
-- above 9999 is not a slot, because as a bit offset it could make the server allocate 512 MB.
local function read_member(member)
  local slot, token = member:match('^(%d%d?%d?%d?) (.+)$')
  return tonumber(slot), token or member
end

-- Returns a reply that the script cannot do without. If an ACL denies the command, the script ends
-- with that error.
local function allowed(reply, command)
  if type(reply) == 'table' and reply.err and not is_wrong_type(reply) then error(reply.err .. ' (' .. command .. ')', 0) end
  return reply
end

-- The end of a lease, limited to 2^53, because other clients may write "inf", which can be neither
-- used in arithmetic nor sent.
local function read_end(score)
  return math.min(tonumber(score), 9007199254740992)
end

-- Returns the member of the set whose lease ends last, and the end of that lease; nil if the set is
-- empty.
local function last_to_end()
  local found = try('ZRANGE', holders, -1, -1, 'WITHSCORES')
  -- While a Cluster moves the slot, the set cannot be read after its last member has been removed.
  if found.err and found.err:find('non local key', 1, true) then return nil end
  if allowed(found, 'ZRANGE').err or not found[1] then return nil end
  return found[1], read_end(found[2])
end

-- Returns whether the client with this token and take id ('': the take id is not compared) still
-- has the lock, as in the last column of this table. "Meta's" is the record in meta, and "own" is
-- the record at the key of this shared holder. "Released or X" means 'released' if this take was
-- released, and X otherwise.
--
--   lock's value    record                                      standing
--   the token       meta's, of another take                     released or other
--                   meta's, of a take that was released         released
--                   meta's, of this take; or no record          ours
--   shared          no record, and all leases have ended        gone
--                   own, of another take                        released or other
--                   own, released, but --hold-at-least runs     released
--                   own; or own is unreadable, but in the set   ours
--                   own, ended; or meta's, of this take         gone
--                   no record                                   released or other
--   another value   meta's, of this take, not released          other
--                   otherwise                                   released or other
--   no value        meta's, of this take, not released          gone
--                   otherwise                                   released or gone
--
-- With 'ours', the second result is the record of the shared holder, or nil if the lock is
-- exclusive. With 'other' and 'gone', it is 'forced USER@HOST' if the lease was removed by force,
-- 'ended' if this owner had the lock and did not release it, and nil otherwise.
local function standing(token, take)
  local record, share, own_record, all_ended
  if value == token then
    record = known.owner == token and last_holder() or {}
  elseif is_shared() and own then
    local now, found = now_ms()
    own_record, found = read_record(own)
    if shares(own_record, now) then
      record = own_record
    elseif found and not own_record then
      local score = allowed(try('ZSCORE', holders, token), 'ZSCORE')
      local ends = type(score) == 'string' and read_end(score)
      record = ends and ends > now and {ends = ends} or nil
    end
    share = record
    if not record then
      local last, ends = last_to_end()
      all_ended = last and ends <= now
    end
  end
  if record then
    if record.take and take ~= '' and record.take ~= take then
      return is_spent(take, token) and 'released' or 'other', forced_by(take, token)
    end
    if record.released then return 'released' end
    return 'ours', share
  end
  local exclusive = known.owner == token and last_holder()
  local last = exclusive and (take == '' or exclusive.take == take) and exclusive or own_record
  local ended = last and not last.released
  if not ended and is_spent(take, token) then return 'released' end
  return value and not (all_ended or ended and is_shared()) and 'other' or 'gone',
    forced_by(last and last.take or take, token) or ended and 'ended' or nil
end

-- Returns the time left of the client's lease (ms; -1: no expiry), and the time at which the lease
-- ends (ms, by the server's clock; -1: never). Only a shared holder's record contains that time.
local function lease_end(record)
  local now = now_ms()
  local left = record and record.ends and tonumber(record.ends) - now or call('PTTL', lock)
  return left, left < 0 and -1 or now + left
end

-- Returns {"ours", rest of the lease (ms; -1: no expiry), when the lease ends (server, ms; -1:
-- never), mode, slots, slot}.
local function say_ours(record)
  local left, ends = lease_end(record)
  if not record then return {'ours', left, ends, 'exclusive', '0', '-1'} end
  return {'ours', left, ends, known.mode or 'shared', known.slots or '0', tostring(record.slot or -1)}
end

-- How long a shared holder's record outlives its lease: if the holder dies, the record shows
-- the lost run. It must expire, because every record has its own key and old records would pile up.
local LOST_KEPT_MS = 86400000

local function write_record(record, now, left)
  record.ends = whole(now + left)
  call('SET', own, stored(record), 'PX', whole(left + math.min(LOST_KEPT_MS, tonumber(known.kept) or LOST_KEPT_MS)))
end

-- Keeps the set of holders for longer than the lock, so that the next take can find holders that
-- did not release the lock.
local function keep_holders(left)
  local ms = whole(left + math.max(LOST_KEPT_MS, left))
  call('PEXPIRE', holders, ms)
  -- The name is formed here instead of read from KEYS, because a script that only extends the lease
  -- does not get this key: the server would watch it.
  try('PEXPIRE', meta:sub(1, -5) .. 'slots', ms)
end

-- Makes the lock's key last at least until all leases have ended, and up to half as long again. The
-- margin keeps changes of the expiry rare, because the server notifies all shared holders of each
-- change. With `exactly`, an expiry that is far too late is made earlier.
local function keep(now, last, exactly)
  local left, need = call('PTTL', lock), last - now
  if left >= need and not (exactly and left > 3 * need + 1000) then return end
  call('PEXPIRE', lock, whole(need * 1.5))
  keep_holders(need)
end

-- Called when a shared holder has left. If no unexpired lease remains, the lock is deleted at once,
-- so that waiters can be notified now.
local function settle(now)
  local last, ends = last_to_end()
  if last and ends > now then return keep(now, ends, true) end
  call('DEL', lock)
  if not last then try('UNLINK', taken) end
  value = false
end

-- Returns how many clients have given up (skip() in take.lua) since the last successful run, and
-- when that run ended.
local function skips_now()
  local of = string.match(known.success or '', '^%d+\t(%d+)') or ''
  local was = try('HMGET', counts, 'skips_of', 'skips')
  return not was.err and was[1] == of and was[2] or '0', of
end

-- Adds `more` to a count. The counts are only shown to people, so the script continues even if a
-- count cannot be written.
local function count(field, more)
  try('HINCRBY', counts, field, whole(more))
  try('PEXPIRE', counts, whole(kept_ms(known.kept)))
end
