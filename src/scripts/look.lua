-- What is known of the lock. Writes nothing.
--
-- KEYS: all (common.lua)
-- Returns state().

return state()
