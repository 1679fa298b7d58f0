-- What is known of the lock: state() of state.lua. Writes nothing. KEYS: all (common.lua)

-- include state.lua

return state(now_ms())
