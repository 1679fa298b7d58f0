-- Checks and functions that nearly all scripts need.

-- include keys.lua meta.lua

local function is_wrong_type(reply)
  return type(reply) == 'table' and reply.err and reply.err:find('WRONGTYPE', 1, true)
end

-- If the lock's key is not a string, another client uses it as some kind of lock. Its value then
-- counts as '', which is never an owner's token, so dlock cannot take the lock until the key is
-- gone.
if type(value) == 'table' and value.err then
  if not is_wrong_type(value) then return {err = value.err .. ' (GET)'} end
  value = ''
end

if no_meta and not is_wrong_type(no_meta) then return {err = no_meta.err .. ' (HMGET)'} end
if newer(known.format) then return newer(known.format) end

-- Encodes a text from a record of format 1 as a value on one line.
local function encoded(text)
  return (text:gsub('%%', '%%25'):gsub('%c', '?'))
end

-- Reads the record of a holder. Returns nil if the record cannot be read or has a newer format. In
-- format 1 a record was JSON.
local function record_in(text)
  local record = fields_in(text)
  if text:sub(1, 1) == '{' then
    local decoded, found = pcall(cjson.decode, text)
    record = decoded and found or {}
    record.format = record.format or '1'
    for name, value in pairs(record) do
      if type(value) == 'table' or type(value) == 'userdata' then return nil end
      record[name] = type(value) == 'string' and encoded(value) or value
    end
  end
  local slot = tonumber(record.slot or -1)
  local is_known = record.take and not newer(record.format) and slot and slot >= -1 and slot < 2147483648 and slot % 1 == 0
  return is_known and record or nil
end

local function lines(record)
  local text = {}
  for name, value in pairs(record) do
    text[#text + 1] = name .. ' ' .. tostring(value == true and 1 or value or '') .. '\n'
  end
  return table.concat(text)
end

-- Returns the text of a record for a reply. A record of format 1 has another name for the pid
-- namespace.
local function said(record)
  record.pid_space = record.pid_space or record.space
  return lines(record)
end

-- The text of a record, to be stored in the format in which it was found.
local function stored(record)
  return record.format == '1' and cjson.encode(record):gsub('%%25', '%%') or lines(record)
end

-- The record of the last exclusive holder.
local function last_holder()
  if known.record and not known.holder then known.holder = record_in(known.record) end
  return known.holder
end

-- Returns the text of the newest line with this id and this token in a list of past events
-- (past_with() in meta.lua). An id or token '' matches any.
local function past(list, id, token)
  if known[list] == nil then learn(list) end
  local lines = known[list]
  if not lines or not lines:find(id ~= '' and id or token, 1, true) then return nil end
  -- The lines are read one at a time, and a truncated last line is ignored. One pattern for the
  -- whole list would be slow, because it would try each byte as a start, and each way to split the
  -- rest.
  for line in (lines:match('^.*\n') or ''):gmatch('[^\n]+') do
    local line_id, line_token, text = line:match('^(%S+) (%S+) ?(.*)$')
    if line_id and (id == '' or line_id == id) and (token == '' or line_token == token) then return text end
  end
end

local function is_spent(take, token)
  if take == '' then return past('spent', '', token) end
  return past('spent', take, '') or past('requests', '', take)
end
