-- Pauses the lock, or ends its pause.
--
-- KEYS: all (store/redis/scripts/keys.lua)
-- ARGV: for how long (ms; 0: end the pause), USER@HOST, why, id of the request
-- Returns {"done"}, {"none"} if there was no pause to end, or {"unusable", key, what is wrong with
--         it}

-- include common.lua holders.lua queue.lua

if no_meta then return {'unusable', meta, 'it is not a hash'} end
local left, now, answer = tonumber(ARGV[1]), now_ms(), past('requests', ARGV[4], '')
if answer then return {answer} end
answer = (left > 0 or pause_left(now) > 0) and 'done' or 'none'
if left > 0 then
  call('HSET', meta, 'pause_ends', whole(now + left), 'paused_by', ARGV[2], 'pause_why', ARGV[3])
  if call('PTTL', meta) < left + META_KEPT_MS then call('PEXPIRE', meta, whole(left + META_KEPT_MS)) end
else
  call('HDEL', meta, 'pause_ends', 'paused_by', 'pause_why')
end
note('requests', ARGV[4], '-', answer)
if left == 0 then hand_on(now, first_waiter()) end
return {answer}
