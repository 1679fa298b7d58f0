-- The keys of a lock, and what a plain take needs. Nearly all scripts include this file first
-- (embed.sh).
--
-- KEYS: lock, meta, own, holders, taken, counts, queue, waiters. A script gets only as many as it
-- needs, from the left, because the server watches all keys that a script is given. A shared holder
-- is one that shares the lock, in mode shared or slots.
--
-- lock     the owner's token, or SHARED and the time (server, us) of the first shared holder's
--          take: a lock that was lost and is shared again has another value
-- meta     hash:
--            format          lock/format.h: of all the lock's keys and holders, but not of waiters;
--                            set when the free lock is taken
--            owner, record   of the last exclusive holder: its token, and what is known about it
--                            ('' once it has released the lock for others)
--            unended         "1" while that holder's run has not ended
--            mode, slots     those in force
--            fence           the last one
--            run             the last run that ended
--            success         the successful run that began last; success_fence
--            failures        in a row
--            runs            since the success
--            kept            how long runs are remembered (ms)
--            history         the runs that ended last (lock/run_memory.h)
--            takes, losses, waited_ms, held_ms
--            pause_ends (server, ms), paused_by, pause_why
--            removed         when the lock was last removed by force
--            past events     see past_with() in meta.lua
-- own      the record of a shared holder, like an exclusive holder's, with its fence, slot, round
--          (the value of the lock's key) and ends (server, ms). The key's name ends in the holder's
--          token, and no other client watches the key
-- holders  sorted set: each shared holder (member_of()) -> when its lease ends (server, ms)
-- taken    bitmap of the slots that are held
-- counts   hash, for clients that are refused the lock or lose it: conflicts, timeouts, losses,
--          waited_ms, skips since the success that ended at skips_of (a write to meta would wake
--          the exclusive holder)
-- queue    sorted set: the waiters, in order of arrival
-- waiters  hash: what is known about them (store/redis/scripts/queue.lua)
--
-- Shared holders watch the lock's key and their own. So a holder that joins or leaves changes
-- neither, unless the lock's expiry must move (keep()). Only scripts that look at all holders
-- iterate over them.
-- Orders of events:
--
--   A holder joins or leaves -> holders, taken, meta and its own key change -> no other holder is
--     notified.
--   Another client removes the lock -> all shared holders are notified, and have lost it -> the
--     next holder to share the lock starts with an empty set -> an own key from before contains
--     the previous round, and is ignored.
--   A lease ends -> it no longer counts -> its place in the set and its record stay until another
--     holder joins, which removes a few at a time (join()), so that its run is remembered -> if no
--     holder joins for a day, they expire.
--   All leases end -> the lock's key stays for at most half a lease -> the next take removes it.
--   Another client removes the set -> no holder can join until the lock's key is gone -> the
--     shared holders keep the lock, and none of them can know that it is the last.

local lock, meta, own, holders, taken, counts, queue, waiters = unpack(KEYS)
local call, try = redis.call, redis.pcall -- on an error, call ends the script, try returns it
local known -- the contents of meta, as meta.lua has read them
local META_KEPT_MS = 2592000000 -- 30 days beyond the lease, at least
local SHARED = 'dlock:shared:'

local function now_ms()
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- "%d" would cut a time in milliseconds to 32 bits on a 32-bit server.
local function whole(value)
  return string.format('%.0f', value)
end

local function number(text)
  return tonumber(text) or 0
end

-- How long meta stays beyond the last lease, to keep the fence and the memory of runs.
local function kept_ms(kept)
  return math.max(META_KEPT_MS, number(kept))
end

-- The sum of `was`, a number stored as text, and `more`.
local function plus(was, more)
  return whole(number(was) + more)
end

local function newer(format)
  format = tonumber(format) or 1
  return format > FORMAT and {'newer', format}
end

-- A value, false, or an error, which common.lua judges.
local value = try('GET', lock)

local function is_shared()
  return value and value:sub(1, #SHARED) == SHARED
end
