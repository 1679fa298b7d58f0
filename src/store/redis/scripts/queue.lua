-- The queue of those who wait; store/redis/scripts/embed.sh puts it behind store/redis/scripts/common.lua for scripts
-- that use it.
--
-- queue    sorted set: take id of a waiter -> when it came (server, us)
-- waiters  hash: take id -> "ENDS LISTENS ASKED MODE SLOTS": until when it
--          counts without asking again (ms), whether it listens on its channel,
--          when it asked last (ms), for what; and
--          "turn" -> "ID ENDS MISSED HEARD": whose turn it is until when (ms),
--          how many before it have missed theirs, whether it was told
--
-- Whoever makes the lock free, or finds it free, calls the first in the queue on
-- a channel of its own; one that nobody listens on is that of a dead waiter, who
-- is dropped at once. From then on nobody else may take it, for a while: the one
-- behind stands by, and asks when the turn is over. Every order in which it can
-- happen:
--
--   The one called asks: it takes the lock, and the one behind is told to go on
--     waiting. Another client, who knows no queue, was faster: it is refused, its
--     turn is over, and it waits on in its place.
--   It is frozen, or cut off and its connection still stands: whoever stands by
--     drops it after TURN_MS, and half of that for each that misses its turn
--     after it. Back again, it asks, and has its place by when it came.
--   It listens again only after the call (a server may carry out a write that
--     the network has cut in two pieces with others in between): it has asked a
--     moment ago, and is called once more before it is dropped.
--   Whoever stands by is dead, too: the next one is told. Frozen: anybody who asks
--     finds the turn over; everybody does at some time.
--   It gives up: it hands the call on. It is killed: its channel is empty, which
--     the next who asks finds.
--   It may not listen: it counts until it should have asked again.
--   The queue is gone (FLUSHALL, another server): those in it ask at some time, at
--     once where their connection has ended, and have their places by when they
--     came.

local TURN_MS, TURN_LEAST_MS, CUT_MS, REST_MS = 2000, 100, 200, 1000
local LISTENER_MS, POLLER_MS = 45000, 10000

-- The first one, and the one behind it.
local function first_waiters()
  local found = redis.pcall('ZRANGE', queue, 0, 1)
  return found[1], found[2]
end

local function channel_of(id)
  return string.sub(queue, 1, -6) .. 'wake:' .. id
end

-- The first of those who go on waiting is to know until when.
local function tell_rest(id, left)
  if id then redis.pcall('PUBLISH', channel_of(id), 'held ' .. whole(math.max(0, left))) end
end

-- The rest of it, for those who find a queue; most runs of a script find none,
-- and making the functions takes longer than what they do.
local function open_queue()
  local function read_waiter(text)
    if type(text) ~= 'string' then return nil end
    local ends, listens, asked, mode, slots = string.match(text, '^(%d+) ([01]) (%d+) (%a+) (%d+)$')
    return ends and {ends = tonumber(ends), listens = listens == '1', asked = tonumber(asked), mode = mode, slots = slots} or nil
  end

  local function write_waiter(id, ends, listens, now, mode, slots)
    return redis.pcall('HSET', waiters, id, table.concat({whole(ends), listens and 1 or 0, whole(now), mode, slots}, ' '))
  end

  local function waiter_of(id)
    return read_waiter(redis.pcall('HGET', waiters, id))
  end

  -- What is known of this one, and of whose turn it is.
  local function look_at(id)
    local found = redis.pcall('HMGET', waiters, id, 'turn')
    local turn = {}
    if type(found[2]) == 'string' then
      local whose, ends, missed, heard = string.match(found[2], '^(%S+) (%d+) (%d+) ([01])$')
      turn = {id = whose, ends = tonumber(ends), missed = tonumber(missed), heard = heard == '1'}
    end
    return read_waiter(found[1]), turn
  end

  -- Whether it is gone: where nothing can be written (a replica, a full disk, an
  -- ACL) it stays, and whoever goes through the queue has to stop there.
  local function drop(id)
    redis.pcall('HDEL', waiters, id)
    return redis.pcall('ZREM', queue, id) == 1
  end

  local function end_turn_of(id)
    local _, turn = look_at(id)
    if turn.id == id then redis.pcall('HDEL', waiters, 'turn') end
  end

  -- Times that are too far ahead are from before the server's clock was set back.
  local function counts_still(waiter, now)
    return waiter and waiter.ends > now and (waiter.listens or waiter.ends <= now + POLLER_MS)
  end

  local function has_asked(waiter, now, within)
    return waiter.asked <= now and waiter.asked + within > now
  end

  local function is_turn_of(id, turn, now)
    return turn.id == id and turn.ends > now and turn.ends <= now + POLLER_MS
  end

  -- Whether somebody listens there; true where that cannot be known.
  local function is_heard(id, waiter)
    if not waiter.listens then return true end
    local found = redis.pcall('PUBSUB', 'NUMSUB', channel_of(id))
    return type(found[2]) ~= 'number' or found[2] > 0
  end

  -- Whether it lives, as far as can be known: one whose channel is empty may be
  -- about to listen again.
  local function seems_alive(id, waiter, now)
    return counts_still(waiter, now) and (has_asked(waiter, now, CUT_MS) or is_heard(id, waiter))
  end

  -- How many heard it; where that cannot be known, somebody has.
  local function tell(id, message)
    return redis.pcall('PUBLISH', channel_of(id), message) ~= 0
  end

  -- Whoever comes behind the one whose turn it is.
  local function tell_second(id, asker, now, message)
    while id and id ~= asker and not tell(id, message) do
      local waiter = waiter_of(id)
      if counts_still(waiter, now) and (not waiter.listens or has_asked(waiter, now, CUT_MS)) then return end
      if not drop(id) then return end
      local _, second = first_waiters()
      id = second
    end
  end

  -- Dead ones before it, who would only be found when it is their turn.
  local function drop_dead_before(id, now)
    while true do
      local first = first_waiters()
      if not first or first == id or seems_alive(first, waiter_of(first), now) or not drop(first) then return end
    end
  end

  -- Comes, or shows that it still waits. Why nobody can be called: who may not call
  -- cannot be called either, since the same user releases the lock; nor who may
  -- not stand in the queue.
  local function join(id, came, listens, now, mode, slots)
    local called = redis.pcall('PUBLISH', channel_of(id), '')
    local mute = type(called) == 'table' and called.err and 'PUBLISH: ' .. called.err
    local queued = redis.pcall('ZADD', queue, whole(came), id)
    mute = mute or denial(queued, 'ZADD') and 'ZADD: ' .. queued.err
    listens = listens and not mute
    local written = write_waiter(id, now + (listens and LISTENER_MS or POLLER_MS), listens, now, mode, slots)
    mute = mute or denial(written, 'HSET') and 'HSET: ' .. written.err
    redis.pcall('PEXPIRE', queue, 2 * LISTENER_MS)
    redis.pcall('PEXPIRE', waiters, 2 * LISTENER_MS)
    end_turn_of(id)
    drop_dead_before(id, now)
    return mute or ''
  end

  -- Gives up. Behind the one whose turn it is somebody else stands by then. Whether
  -- it was in the queue.
  local function leave(id, now)
    if not drop(id) then return false end
    end_turn_of(id)
    local first, second = first_waiters()
    local _, turn = look_at(first or '')
    if first and is_turn_of(first, turn, now) then tell_second(second, nil, now, 'stand-by ' .. turn.ends - now) end
    return true
  end

  local function begin_turn(id, waiter, heard, missed, now)
    local ends = now + math.max(TURN_LEAST_MS, math.floor(TURN_MS / 2 ^ missed))
    if not waiter.listens then ends = waiter.ends end
    if not heard then ends = waiter.asked + CUT_MS end
    redis.pcall('HSET', waiters, 'turn', table.concat({id, whole(ends), missed, heard and 1 or 0}, ' '))
    return ends
  end

  -- Calls the first waiter that lives, if what it wants fits. Returns its id, and
  -- until when it is its turn; the asker's (nil: there is none) without a call.
  -- One that has to wait for something else has to show that it lives, if it has
  -- not for long and somebody else asks. `again`: even where it was called before.
  local function call_next(now, asker, missed, fits, again)
    while true do
      local id, second = first_waiters()
      if not id or id == asker then return id end
      local waiter, turn = look_at(id)
      if not again and is_turn_of(id, turn, now) then return id, turn.ends end
      local lives, heard = counts_still(waiter, now), true
      if lives and not fits(waiter) and (not asker or has_asked(waiter, now, REST_MS)) and is_heard(id, waiter) then return id end
      if lives and waiter.listens then
        heard = tell(id, 'turn')
        lives = heard or has_asked(waiter, now, CUT_MS)
      end
      if lives then
        local ends = begin_turn(id, waiter, heard, missed, now)
        tell_second(second, asker, now, 'stand-by ' .. ends - now)
        return id, ends
      end
      if not drop(id) then return nil end
    end
  end

  -- Whether it is the asker's turn, who is not the first in the queue, and whether
  -- it is in the queue, and who is behind it; else until when it is somebody else's
  -- (nil: who has to wait for something else).
  local function may_go(first, now, asker, fits)
    local missed, waiter, turn = 0, look_at(first)
    if is_turn_of(first, turn, now) then
      if seems_alive(first, waiter, now) then return false, turn.ends end
      drop(first)
    elseif turn.id == first and turn.heard then
      drop(first)
      missed = turn.missed + 1
    end
    local called, ends = call_next(now, asker, missed, fits, true)
    if not called then return true, false end
    if called ~= asker then return false, ends end
    local _, second = first_waiters()
    return true, true, second
  end

  local function anybody()
    return true
  end

  -- Whoever wants the same as those `held` many who share the lock.
  local function alike(mode, slots, held)
    return function(waiter)
      return waiter.mode == mode and waiter.slots == slots and (mode == 'shared' or held < (tonumber(slots) or 0))
    end
  end

  -- Somebody has left the lock or the queue: calls whoever may have the lock now,
  -- unless that has happened already.
  local function hand_on(now)
    if not value then
      call_next(now, nil, 0, anybody)
    elseif value == SHARED then
      local held = redis.pcall('ZCOUNT', holders, '(' .. whole(now), '+inf')
      call_next(now, nil, 0, alike(known.mode, known.slots, tonumber(held) or 0))
    end
  end

  return {join = join, leave = leave, may_go = may_go, call_next = call_next, hand_on = hand_on, anybody = anybody, alike = alike,
    waiter_of = waiter_of, counts_still = counts_still}
end
