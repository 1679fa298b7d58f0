-- What the scripts have in common; store/redis/scripts/embed.sh puts it before each of them.
--
-- KEYS: lock, meta, holders, counts, queue, waiters; a script is given as many of
-- them as it needs, from the left, since what it is given is what is watched
--
-- lock     the owner's token, or SHARED while several hold the lock
-- meta     hash: who holds it exclusively, or the mode in force and a field
--          "holder TOKEN" (JSON) for each who shares it; the last fence; the
--          last releases, takes that were withdrawn before they came, and what
--          was done on request; takes, losses, waited_ms, held_ms
-- holders  sorted set: token -> when its lease ends (server, ms)
-- counts   hash, for those who do not get it: conflicts, timeouts, losses,
--          waited_ms (a write to meta would wake the holder)
-- queue    sorted set: those who wait, in the order in which they came
-- waiters  hash: what is known of them (store/redis/scripts/queue.lua)

local lock, meta, holders, counts, queue, waiters = unpack(KEYS)
local SHARED = 'dlock:shared'
local LINES_KEPT, WITHDRAWN_BYTES = 8, 40000 -- a thousand of them
local META_KEPT_MS = 2592000000 -- 30 days beyond the lease

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.find(reply.err, 'WRONGTYPE', 1, true)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- "%d" would cut a time in milliseconds to 32 bits on a server that has no more.
local function whole(number)
  return string.format('%.0f', number)
end

-- Something else than a string at the key is another client's lock of some
-- kind, in the way until it is gone: '' is nobody's token.
local value = redis.pcall('GET', lock)
if type(value) == 'table' and value.err then
  if not is_wrong_type(value) then return {err = value.err .. ' (GET)'} end
  value = ''
end

-- What meta says: what any of the scripts needs, and the rest for those who look.
local known = {}
local function learn(...)
  local fields = {...}
  local found = redis.pcall('HMGET', meta, ...)
  if found.err then return found end
  for i, field in ipairs(fields) do known[field] = found[i] end
end
local no_meta = learn('owner', 'take', 'fence', 'mode', 'slots', 'since', 'hold', 'spent', 'returned', 'withdrawn', 'takes', 'losses',
  'waited_ms', 'held_ms')
if no_meta and not is_wrong_type(no_meta) then return {err = no_meta.err .. ' (HMGET)'} end

-- Who holds it exclusively.
local function learn_owner()
  learn('ttl', 'detached', 'space', 'host', 'boot', 'pid', 'start', 'user', 'command')
  return known
end

-- The last releases, newest first: lines of "TAKE TOKEN". A take has an id of
-- its own, since --owner lets many have the same token. Those by another process
-- than the taker are in "returned" as well.
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

local function is_withdrawn(take)
  return string.find(known.withdrawn or '', take .. '\n', 1, true) ~= nil
end

-- Whoever is gone cannot release what its take, still on its way, will find free. Those that were withdrawn are apart
-- from the releases: of a lock that is wanted much, eight are soon over, and a crowd may give up at once.
local function withdraw(take)
  if no_meta or is_withdrawn(take) then return end
  redis.pcall('HSET', meta, 'withdrawn', string.sub(take .. '\n' .. (known.withdrawn or ''), 1, WITHDRAWN_BYTES))
  if not known.fence then redis.pcall('PEXPIRE', meta, META_KEPT_MS) end
end

-- What was removed for somebody who has no take id is not removed once more where the
-- answer was lost and it is asked again: another may have the lock by then. Lines of
-- "ID ANSWER", by the id of the request, newest first.
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

-- What the fields of a record are, if they are there: text, unless it says otherwise.
local RECORD_TYPES = {slot = 'number', released = 'boolean'}

local function is_record(record)
  if type(record) ~= 'table' or not record.take then return false end
  for field, it in pairs(record) do
    if type(it) ~= (RECORD_TYPES[field] or 'string') then return false end
  end
  local slot = record.slot or -1
  return slot >= -1 and slot < 2147483648 and slot % 1 == 0
end

-- What meta knows of one who shares the lock; nil if that is nothing, or nothing that
-- we would write.
local function record_of(token)
  local text = redis.pcall('HGET', meta, 'holder ' .. token)
  if type(text) ~= 'string' then return nil end
  local decoded, record = pcall(cjson.decode, text)
  return decoded and is_record(record) and record or nil
end

-- What an ACL says no to, with the command; false for all else. Redis before 7, 7.0,
-- and since 7.2.
local function denial(reply, command)
  local err = type(reply) == 'table' and reply.err
  for _, words in ipairs({'NOPERM', 'user executing the script', 'ACL failure'}) do
    if err and string.find(err, words, 1, true) then return err .. ' (' .. command .. ')' end
  end
  return false
end

-- Of what must be known: where an ACL says no, there is no answer.
local function allowed(reply, command)
  if type(reply) == 'table' and reply.err and not is_wrong_type(reply) then error(reply.err .. ' (' .. command .. ')', 0) end
  return reply
end

-- The end of a lease: "inf", which others may write, can be neither counted with nor sent.
local function read_end(score)
  return math.min(tonumber(score), 9007199254740992)
end

local function score_of(token)
  local score = allowed(redis.pcall('ZSCORE', holders, token), 'ZSCORE')
  return type(score) == 'string' and read_end(score) or nil
end

-- How the lock stands to somebody with this token and take id ('': the token
-- alone counts): 'ours', for one who shares it with what is left (ms), the record,
-- and when it ends (server, ms); 'released', with that token; 'other'; 'gone', with 'ended'
-- where it was theirs.
local function standing(token, take)
  if value == token then
    -- Where meta is gone or another client's, the token is all that there is.
    if known.owner == token and take ~= '' and known.take ~= take then
      return is_spent(take, token) and 'released' or 'other'
    end
    if known.owner == token and is_spent(known.take, '') then return 'released' end
    return 'ours'
  end
  local record
  if value == SHARED then
    local score, now = score_of(token), now_ms()
    record = record_of(token)
    if score and score > now then
      if record and take ~= '' and record.take ~= take then
        return is_spent(take, token) and 'released' or 'other'
      end
      if record and record.released then return 'released' end
      return 'ours', score - now, record or {}, score
    end
  end
  local ended = known.owner == token and (take == '' or known.take == take) and known.take or record and record.take
  if ended and not is_spent(ended, '') then
    return value and value ~= SHARED and 'other' or 'gone', 'ended'
  end
  if is_spent(take, token) then return 'released' end
  return value and 'other' or 'gone'
end

-- Until when the lock's key lasts: ms that are left, and server, ms (-1: no expiry).
local function key_end()
  local now, left = now_ms(), redis.call('PTTL', lock)
  return left, left < 0 and -1 or now + left
end

-- {"ours", left (ms; -1: no expiry), mode, slots, slot, when it ends (server, ms; -1:
-- not)}, by what standing() has said.
local function say_ours(left, record, ends)
  if record then return {'ours', left, known.mode or 'shared', known.slots or '0', tostring(record.slot or -1), ends} end
  left, ends = key_end()
  return {'ours', left, 'exclusive', '0', '-1', ends}
end

-- Those who share the lock: {token, end}, the first to end first.
local function list_holders()
  local flat, list = allowed(redis.pcall('ZRANGE', holders, 0, -1, 'WITHSCORES'), 'ZRANGE'), {}
  if flat.err then return list end
  for i = 1, #flat, 2 do list[#list + 1] = {flat[i], read_end(flat[i + 1])} end
  return list
end

-- The key lasts as long as the last of them; nobody left, or nobody whose lease has
-- not ended: it goes at once, for who waits to be called now.
local function settle_shared(now)
  -- In a Cluster that is moving the slot, the set of which the last has just been
  -- removed cannot be read; where it cannot for another reason, somebody may be left.
  local last = redis.pcall('ZRANGE', holders, -1, -1, 'WITHSCORES')
  if last.err and not string.find(last.err, 'non local key', 1, true) then error(last.err .. ' (ZRANGE)', 0) end
  local ends = #last > 0 and read_end(last[2]) or 0
  if ends <= now then
    redis.call('DEL', lock)
    if #last > 0 then redis.call('DEL', holders) end
    value = false
    return
  end
  local left = whole(ends - now)
  redis.call('PEXPIRE', lock, left)
  redis.call('PEXPIRE', holders, left)
end

-- What a number in meta is with so much more.
local function plus(field, number)
  return whole((tonumber(known[field]) or 0) + number)
end

-- For people: where it cannot be written, what is done is done all the same.
local function count(field, number)
  redis.pcall('HINCRBY', counts, field, whole(number))
  redis.pcall('PEXPIRE', counts, META_KEPT_MS)
end
