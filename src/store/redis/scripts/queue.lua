-- The queue of waiters. To "ask" means to request the lock (take.lua). To "call" a waiter means to
-- send "turn" to its channel: it may take the lock now. For a while after that, which is the
-- waiter's turn, no other client may take the lock.
--
-- queue    sorted set: take id of a waiter -> when it came (server, us)
-- waiters  hash: take id -> "FORMAT LISTENS ASKED TURN MODE SLOTS WHO": the format of this text;
--          whether the waiter listens on its channel; when it last asked (ms); when its turn ends
--          (ms; 0: not called since it asked); the mode and slots that it requests; its record
--
-- A client that frees the lock, or finds it free, calls the first waiter. A waiter that listens
-- counts as alive as long as its channel has a subscriber. Clocks do not matter for this, because
-- the waiter joins the queue and subscribes in one transaction. When a waiter is called for the
-- first time, it asks without subscribing again, because it usually gets the lock then. Orders of
-- events:
--
--   The called waiter asks -> it takes the lock -> the new first waiter is notified ("held").
--   Another client ignores the queue and is faster -> the called waiter is refused, asks again at
--     once, and subscribes -> its turn is over, but it keeps its place.
--   The lock is released between these two requests of the called waiter -> that waiter is dropped
--     as if dead, and the next one is called -> the second request puts the waiter back in its
--     place; whichever waiter asks first gets the lock.
--   A waiter becomes the first -> within a second, unless it is called sooner, it asks and
--     subscribes to touches (any changes of the lock's key). If a client that ignores the queue is
--     faster than this request:
--       the client removes the lock -> the request takes the lock
--       the client shortens the lease -> the request learns the new end
--       the client takes the free lock -> the request is refused, and the waiter waits for the new
--         holder
--   The called waiter is frozen, or cut off with its connection still open -> after its turn, the
--     next client that asks drops this waiter, and at once calls all waiters (among the first NEAR)
--     that come before the client -> the first of these that is alive takes the lock; all of them
--     share one turn -> if the dropped waiter recovers and asks, it gets its old place, because the
--     queue is ordered by arrival.
--   The first waiter is dead (its channel has no subscriber) -> the next client that asks, or that
--     calls or notifies a waiter, drops it and goes on to the next waiter.
--   The first waiter leaves, or is dropped, while the lock is held -> the new first waiter is
--     notified, because it must listen for touches by clients that ignore the queue.
--   A waiter that asks leaves its channel for the moment before its transaction, and is called in
--     that moment -> it is dropped as if dead -> its transaction puts it back in its place -> the
--     next waiter, which was called in the meantime, asks, and thereby calls the first one again.
--   The called waiter gives up -> it calls the next one.
--   A waiter has a newer format than this script knows -> it counts as alive as long as it listens,
--     and is called -> a later waiter with an older dlock is refused once the lock is free.
--   A waiter has no right to listen -> it counts as alive until the time when it should have
--     asked again.
--   No client calls, or the queue is gone (a killed holder, FLUSHALL, another server) -> each of
--     the first NEAR waiters asks, unless "seen" has told it within 2.5 s that another one has
--     asked; waiters at the front ask first, so that usually only one asks -> that waiter calls all
--     waiters before it -> one live waiter among them is enough.
--   Other waiters leave, so that a waiter is now among the first NEAR -> it is notified with
--     "seen", too. If it is now among the first NEAR_BEFORE, it is notified with "near", after
--     which an older dlock asks every 3 s.

local TURN_MS, REST_MS = 1500, 1000
local POLLER_MS, KEPT_MS, NEAR, NEAR_BEFORE = 4500, 3600000, 65, 8

local function waiter_at(place)
  return try('ZRANGE', queue, place - 1, place - 1)[1]
end

local function first_waiter()
  return waiter_at(1)
end

local function channel_of(id)
  return queue:sub(1, -6) .. 'wake:' .. id
end

-- Sends a message to a waiter. Returns true if the server knows of no subscriber that received it.
local function tell(id, message)
  return try('PUBLISH', channel_of(id), message) == 0
end

-- Removes a waiter. Returns {head}, where `head` is now the first waiter. Returns nil if nothing
-- can be written (a replica, a full disk, an ACL). The waiter then stays, and a caller that loops
-- over the queue must stop there.
local function remove(id)
  if try('ZREM', queue, id) ~= 1 then return nil end
  try('HDEL', waiters, id)
  local near, near_before = waiter_at(NEAR), waiter_at(NEAR_BEFORE)
  if near then tell(near, 'seen') end
  if near_before then tell(near_before, 'near') end
  return {head = first_waiter()}
end

-- Tells the first waiter that it is now the first, and how much longer the lock is held.
local function tell_first(id)
  local left = try('PTTL', lock)
  return tell(id, 'held ' .. whole(type(left) == 'number' and left or -1))
end

local function waiter_of(id)
  local text = try('HGET', waiters, id)
  if type(text) ~= 'string' then return nil end
  local format, listens, asked, turn, mode, slots, who = text:match('^(%d+) ([01]) (%d+) (%d+) (%a+) (%d+) ?(.*)$')
  local answer = newer(text:match('^%d+'))
  if answer then return {id = id, newer = answer, listens = true} end
  return listens and {id = id, format = format, listens = listens == '1', asked = tonumber(asked), turn = tonumber(turn), mode = mode, slots = slots, who = who}
end

local function write_waiter(it)
  return try('HSET', waiters, it.id,
    table.concat({it.format, it.listens and 1 or 0, whole(it.asked), whole(it.turn), it.mode, it.slots, it.who}, ' '))
end

-- True if the waiter has sent a request in the last `within` ms. A time in the future is ignored,
-- because it was written before the server's clock was set back.
local function has_asked(waiter, now, within)
  return waiter.asked <= now and waiter.asked + within > now
end

-- True if the waiter is alive, or if the server does not say. PUBLISH would be no test, because it
-- also counts subscribers to a pattern.
local function lives(waiter, now)
  if not waiter then return false end
  if not waiter.listens then return has_asked(waiter, now, POLLER_MS) end
  return try('PUBSUB', 'NUMSUB', channel_of(waiter.id))[2] ~= 0
end

-- Returns the first live waiter, or {} if there is none, or if the asker (the client whose request
-- this is) comes first. Drops the dead waiters that come before.
local function first_alive(now, asker)
  local dropped = false
  while true do
    local id = first_waiter()
    if not id or id == asker then return {} end
    local waiter = waiter_of(id)
    if lives(waiter, now) then
      if dropped then tell_first(id) end
      return waiter
    end
    if not remove(id) then return {} end
    dropped = true
  end
end

-- True if the waiter's request is compatible with the current holders.
local function fits(waiter, now)
  if not value then return true end
  if waiter.mode ~= known.mode or waiter.slots ~= known.slots then return false end
  local held = try('ZCOUNT', holders, '(' .. whole(now), '+inf')
  return waiter.mode == 'shared' or number(held) < number(waiter.slots)
end

-- Tells the waiter that it may take the lock now, and sets the end of its turn. A waiter that does
-- not listen has until its next request is overdue.
local function call_waiter(waiter, now)
  waiter.turn = waiter.listens and now + TURN_MS or waiter.asked + POLLER_MS
  write_waiter(waiter)
  tell(waiter.id, 'turn')
  return {id = waiter.id, ends = waiter.turn}
end

-- Tells all waiters between the first one and the asker (the client that requests the lock) at once
-- that they may take the lock now. Each must then show that it is alive, so that the asker does not
-- have to wait for one after the other.
local function call_before(asker, now)
  for _, id in ipairs(try('ZRANGE', queue, 1, NEAR - 1)) do
    if id == asker then return end
    local waiter = waiter_of(id)
    if waiter and waiter.turn == 0 then call_waiter(waiter, now) end
  end
end

-- Sends "turn" to the first live waiter, unless it has got this message since its last request. If
-- that request is compatible with the current holders (fits()), the waiter may take the lock now.
-- If not, the waiter gets the message only to show that it is alive, and only if another client
-- (the asker) requests the lock when the waiter has sent no request for REST_MS. If the asker finds
-- that the first waiter has not got the message although its request is compatible, or has to drop
-- a waiter after its turn, other waiters may be frozen, too, so all waiters before the asker get
-- the message (call_before()).
--
-- Returns {id, ends, newer}: `id` is the waiter before the asker (nil: none, or unknown), `ends` is
-- when that waiter's turn ends (nil: it has no turn), and `newer` is the reply of the script if the
-- lock is free and the waiter's format is newer.
local function call_next(now, asker)
  local dropped = false
  while true do
    local waiter = first_alive(now, asker)
    if not waiter.id then return {} end
    if waiter.newer then
      if not value then tell(waiter.id, 'turn') end
      return {id = waiter.id, newer = not value and waiter.newer}
    end
    if waiter.turn > now and waiter.turn <= now + POLLER_MS then return {id = waiter.id, ends = waiter.turn} end
    if waiter.turn == 0 then
      local fitting = fits(waiter, now)
      if not fitting and (not asker or has_asked(waiter, now, REST_MS)) then return {id = waiter.id} end
      local called = call_waiter(waiter, now)
      if asker and (fitting or dropped) then call_before(asker, now) end
      return called
    end
    if not remove(waiter.id) then return {} end
    dropped = true
  end
end

local function tell_head(now, id)
  if id and tell_first(id) then first_alive(now) end
end

-- Runs when a client has released the lock, or the first waiter has left the queue. If an exclusive
-- lock is still held, tells the new first waiter, `id`, that it is the first. Otherwise sends
-- "turn" to the waiter that may take the lock now.
local function hand_on(now, id)
  if value and not is_shared() then
    tell_head(now, id)
  elseif id then
    call_next(now)
  end
end

local function leave(id, now)
  local first = first_waiter()
  local rest = remove(id)
  if rest and first == id then hand_on(now, rest.head) end
end

-- Returns the error if an ACL has denied the command, and false for any other reply. The words are
-- those of Redis before 7, of 7.0, and of 7.2 and later.
local function denial(reply, command)
  local err = type(reply) == 'table' and reply.err
  for _, words in ipairs({'NOPERM', 'user executing the script', 'ACL failure'}) do
    if err and err:find(words, 1, true) then return command .. ': ' .. err end
  end
  return false
end

-- Adds the waiter `it` to the queue, or shows that it is still waiting. `it` has the form that
-- waiter_of() returns, without the fields that are set here. With `seen`, tells the other waiters
-- among the first NEAR that this one has asked. Returns why waiters cannot be notified, or '' if
-- they can be, or if the reason is already known on the waiter's connection. A client that may not
-- notify waiters cannot be notified itself, because the clients that release its lock log in as the
-- same user. A client that may not join the queue cannot be notified either.
local function enqueue(it, came, listens, seen, now)
  local called = listens == 'try' and try('PUBLISH', channel_of(it.id), '')
  local queued = denial(try('ZADD', queue, whole(came), it.id), 'ZADD')
  local uncalled = type(called) == 'table' and called.err and 'PUBLISH: ' .. called.err or queued
  it.format, it.listens, it.asked, it.turn = FORMAT, listens ~= '0' and not uncalled, now, 0
  local written = denial(write_waiter(it), 'HSET')
  try('PEXPIRE', queue, KEPT_MS)
  try('PEXPIRE', waiters, KEPT_MS)
  first_alive(now, it.id)
  for _, id in ipairs(seen and try('ZRANGE', queue, 0, NEAR - 1) or {}) do
    if id ~= it.id then tell(id, 'seen') end
  end
  return uncalled or written or ''
end
