-- Extends the lease if the client still holds the lock. A key that has lost its expiry gets a new
-- one.
--
-- KEYS: lock, meta; and own, holders, except for an exclusive lock of the client itself
-- ARGV: token, take id, ttl from now (ms), "1" if it may be shortened
-- Returns what check.lua returns

-- include common.lua holders.lua

local token, ttl, exactly = ARGV[1], tonumber(ARGV[3]), ARGV[4] == '1'
local how, record = standing(token, ARGV[2])
if how ~= 'ours' then return {how, record or ''} end
local left = record and lease_end(record) or call('PTTL', lock)
if left < ttl or exactly then
  if record then
    local now = now_ms()
    call('ZADD', holders, 'XX', whole(now + ttl), member_of(token, record.slot))
    if record.take then write_record(record, now, ttl) else record.ends = now + ttl end
    keep(now, now + ttl)
  else
    call('PEXPIRE', lock, ARGV[3])
  end
  if known.fence and call('PTTL', meta) < ttl + kept_ms(known.kept) then
    call('PEXPIRE', meta, whole(ttl + kept_ms(known.kept)))
  end
end
-- Read last, so that the server reports only what happens after this script's own change.
call('GET', lock)
if record then call('GET', own) end
return say_ours(record)
