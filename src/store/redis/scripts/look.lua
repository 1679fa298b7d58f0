-- What is known of the lock. Writes nothing.
--
-- KEYS: all (store/redis/scripts/common.lua)
-- Returns state().

-- include state.lua

return state()
