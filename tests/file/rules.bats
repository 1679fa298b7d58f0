#!/usr/bin/env bats
# One set of rules: the rows for the Lua scripts hold for lock files as well.
load ../lib/common

@test "file locks follow the rules of the Lua scripts: who may acquire, what became of a lease, which runs are remembered" {
    PYTHONDONTWRITEBYTECODE=1 run python3 "$TESTS/file/rules.py" "$HELPERS/file_rules"
    [[ $output =~ ^[0-9]{3}' rows, 0 wrong'$ ]]
}
