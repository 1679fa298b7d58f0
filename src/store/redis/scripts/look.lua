-- What is known about the lock: state() of state.lua. Writes nothing. KEYS: all (keys.lua)

-- include state.lua

return state(now_ms())
