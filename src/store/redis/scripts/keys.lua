-- The keys of a lock, and the functions that take_plainly() in take.lua needs.
-- Nearly all scripts include this file first (embed.sh).
--
-- KEYS: lock, meta, own, holders, taken, counts, queue, waiters. A script gets only as many of
-- these as it needs, from the left, because the server watches every key that a script gets. A
-- shared holder is a holder of the lock in mode shared or slots.
--
-- lock     the owner's token, or SHARED followed by the time (server, us) when the first shared
--          holder took the lock. If a shared lock is lost and is shared again, the value differs.
-- meta     hash:
--            format          the format (lock/format.h) of all the lock's keys and holders, but not
--                            of waiters; set when the free lock is taken
--            owner, record   of the last exclusive holder: its token, and what is known about it
--                            ('' after a release that freed the lock at once)
--            unended         "1" while that holder's run has not ended
--            mode, slots     the mode and number of slots in force
--            fence           the last fence
--            run             the last run that ended
--            success         the successful run that began last
--            success_fence   the fence of that run
--            failures        the number of failed runs in a row
--            runs            the number of runs since the success
--            kept            how long runs are remembered (ms)
--            history         the runs that ended last (lock/run_memory.h)
--            takes, losses, waited_ms, held_ms: totals
--            pause_ends (server, ms), paused_by, pause_why
--            removed         when the lock was last removed by force
--            past events     see past_with() in meta.lua
-- own      the record of a shared holder. It has the fields of an exclusive holder's record, and
--          also fence, slot, round (the value of the lock's key) and ends (server, ms). The name of
--          this key ends in the holder's token, and no other client watches the key.
-- holders  sorted set: each shared holder (member_of()) -> when its lease ends (server, ms)
-- taken    bitmap of the slots that are held
-- counts   hash, written for clients that are refused the lock or lose it: conflicts, timeouts,
--          losses, waited_ms, and skips: how many clients have given up since the success that
--          ended at skips_of. These counts are not in meta, because a write to meta would wake the
--          exclusive holder.
-- queue    sorted set: the waiters, in order of arrival
-- waiters  hash: what is known about each waiter (store/redis/scripts/queue.lua)
--
-- A shared holder watches the lock's key and its own key. When another holder joins or leaves,
-- neither of these keys changes, unless the expiry of the lock's key must change (keep()). Only
-- scripts that look at all holders iterate over the set.
--
-- Orders of events:
--   A holder joins or leaves -> the keys holders, taken and meta and its own key change -> no other
--     holder is notified.
--   Another client removes the lock -> all shared holders are notified, and have lost the lock ->
--     the next shared holder starts with an empty set -> an old record contains an older round,
--     and is ignored.
--   A lease ends -> it no longer counts -> its entry in the set and its record stay until another
--     holder joins, so that the lost run is remembered -> that holder removes a few such entries
--     (join()) -> if no holder joins for a day, they expire.
--   All leases end -> the lock's key stays for at most half a lease -> the next take removes it.
--   Another client removes the set -> no holder can join until the lock's key is gone -> the shared
--     holders keep the lock, but none of them can know whether it is the last one.

local lock, meta, own, holders, taken, counts, queue, waiters = unpack(KEYS)
local call, try = redis.call, redis.pcall -- call ends the script on an error; try returns the error
local known -- the contents of meta, as meta.lua has read them
local META_KEPT_MS = 2592000000 -- at least 30 days after the end of the lease
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

-- The value of the lock's key, false if there is none, or an error, which common.lua judges.
local value = try('GET', lock)

local function is_shared()
  return value and value:sub(1, #SHARED) == SHARED
end
