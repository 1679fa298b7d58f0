-- Returns what is known about the lock: the result of state() (state.lua). Writes nothing.
--
-- KEYS: all (store/redis/scripts/keys.lua)

-- include state.lua

return state(now_ms())
