-- Releases the lock if it is still ours: compare-and-delete.
--
-- KEYS: all (store/redis/scripts/common.lua)
-- ARGV: token, take id ("": the token alone counts), now (wall clock of the holder, ms),
--       hold (ms for which others must still be kept out, 0: none, "": what was asked for at
--       the take), "lost" if the lease was over before its command, "held" if it was not; "":
--       given up, and not even known whether it was taken; "1" if a try of the take had no
--       answer, and may come yet, when its run ended (wall clock, ms), how ("": nothing has run),
--       id of the request if another process took it
-- Returns {"released", "now"}, {"released", ""}: it had been before, {"gone" or "other",
--         "forced USER@HOST", "ended" or ""}

-- include common.lua holders.lua queue.lua

local token, id, wall, hold = ARGV[1], ARGV[2], tonumber(ARGV[3]) or 0, tonumber(ARGV[4])
local outside = ARGV[9]
local how, record = standing(token, id)
-- With --owner the next holder may have the same token.
if outside and answer_to(outside) then how, record = 'released', nil end
local given_up = not outside and ARGV[5] == ''
if given_up then
  -- With --owner other takes have this token as well: unless something says that this
  -- take happened, the lock is theirs.
  if how == 'ours' and (record or known).take ~= id then how, record = 'other', nil end
  leave(id, now_ms())
end
if ARGV[6] == '1' then withdraw(id) end
if how ~= 'ours' then
  if ARGV[8] ~= '' and known.unended == '1' and known.owner == token and known.take == id then
    end_run(known, ARGV[7], ARGV[8] == 'stopped' and 'stopped' or 'lost')
    redis.pcall('HSET', meta, memory())
  end
  if not given_up then hand_on(now_ms(), waiter_at(0)) end
  if not outside and not given_up and how ~= 'released' then count('losses', 1) end
  return {how, record or ''}
end

local who = record or (known.owner == token and known) or {}
local take = who.take or (id ~= '' and id) or '-'
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
    if record.take then write_record(record, now, left) end
    redis.call('ZADD', holders, 'XX', whole(now + left), member)
    local last, ends = holder_at(-1)
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
  if left < 0 or left > hold then redis.call('PEXPIRE', lock, whole(hold)) end
else
  redis.call('DEL', lock)
  value = false
end

-- The contents of meta are for people, except the fence; if they cannot be written the
-- lock is still released.
local held = who.since and math.max(0, wall - (tonumber(who.since) or 0)) or 0
if ARGV[8] ~= '' and who.since then end_run(who, ARGV[7], ARGV[8]) end
redis.pcall('HSET', meta, 'message', '', 'last_owner', token, 'released', ARGV[3], 'spent', line_before('spent', take, token),
  'held_ms', plus('held_ms', held), 'losses', plus('losses', ARGV[5] == 'lost' and 1 or 0), memory())
if known.kept == '0' and hold == 0 then redis.pcall('HDEL', meta, 'host', 'boot', 'pid', 'start', 'user', 'command') end
-- The process that watches this lease must learn what became of it, however often others
-- have the lock meanwhile.
if outside then
  redis.pcall('HSET', meta, 'returned', line_before('returned', take, token))
  remember(outside, '-')
end
if not known.fence and not no_meta then redis.pcall('PEXPIRE', meta, whole(kept_ms())) end
if hold > 0 then tell_head(now_ms(), waiter_at(0)) else hand_on(now_ms(), waiter_at(0)) end
return {'released', 'now'}
