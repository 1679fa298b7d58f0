-- What is known of the lock. Writes nothing.
--
-- KEYS: all (store/redis/scripts/common.lua)
-- Returns state() (state.lua).

-- include state.lua

return state()
