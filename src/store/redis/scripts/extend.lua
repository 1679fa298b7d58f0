-- Extends the lease if the client still holds the lock. A key that has lost its expiry gets a new
-- expiry.
--
-- KEYS: lock, meta; also own and holders, unless the client extends its own exclusive lock
-- ARGV: token, take id, TTL from now (ms), "1" if the lease may also be shortened
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
-- The keys are read last, so that the server reports only changes after those of this script.
call('GET', lock)
if record then call('GET', own) end
return say_ours(record)
