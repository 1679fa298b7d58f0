-- Whether the lock is still ours, and for how long.
--
-- KEYS: lock, meta, holders
-- ARGV: token, take id ("": the token alone counts)
-- Returns {"ours", left (ms; -1: no expiry), mode, slots, slot}, {"gone",
--         "ended" or ""}, {"other", ...} or {"released", ""}

local how, left, record = standing(ARGV[1], ARGV[2])
if how ~= 'ours' then return {how, left or ''} end
if not record then return {how, redis.call('PTTL', lock), 'exclusive', '0', '-1'} end
return {how, left, known.mode or 'shared', known.slots or '0', tostring(record.slot or -1)}
