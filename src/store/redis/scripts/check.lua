-- Checks whether the client still holds the lock, and for how long.
--
-- KEYS: lock, meta; also own and holders, unless the client checks its own exclusive lock
-- ARGV: token, take id ("": only the token is compared), and optionally a fence: if the lock's
--       fence is lower, it is raised to this one
-- Returns the result of say_ours(), or {"released", ""}, or {"gone" or "other", reason}; the reason
--         is "forced USER@HOST", "ended" or ""

-- include common.lua holders.lua

local how, record = standing(ARGV[1], ARGV[2])
if how ~= 'ours' then return {how, record or ''} end
if ARGV[3] and not no_meta and number(known.fence) < tonumber(ARGV[3]) then
  call('HSET', meta, 'fence', ARGV[3])
  if record and record.take then
    record.fence = ARGV[3]
    write_record(record, now_ms(), (lease_end(record)))
  end
  -- A fence is a time. As in take.lua, meta must not expire before this server's clock has passed
  -- that time, because a later fence could then be lower.
  local kept = kept_ms(known.kept) + math.max(0, math.floor(tonumber(ARGV[3]) / 1000) - now_ms())
  if call('PTTL', meta) < kept then call('PEXPIRE', meta, whole(kept)) end
end
return say_ours(record)
