#!/usr/bin/env bats
# A user who mistypes gets a hint in one
# line, with status 64, and nothing is run.
load ../lib/common
setup() { common_setup; export DLOCK_BACKEND=file DLOCK_LOCK_DIR=$T/locks; cd "$T" || return; }

# hint PATTERN WORDS...: prints this one-line hint, and nothing is run or made.
hint() {
    fails_with 64 "$@"
    equals "${#lines[@]}" 1
    [ ! -e "$T/ran" ] && [ ! -e "$T/locks" ]
}

@test "dlock without arguments prints a short usage and where to find help on stderr: exit 64" {
    run sh -c 'dlock 2>/dev/null'
    equals "$status $output" '64 '
    run dlock
    equals "$status ${#lines[@]}" '64 3'
    [[ ${lines[0]} == 'Usage: dlock [OPTIONS] NAME -- COMMAND'* && ${lines[2]} == *'dlock -h '*'--help'* ]]
}

# Which words are close to which is tested in tests/unit/test_hints.c.
@test "a mistyped option, a forgotten name or command gets a suggestion; a value, which may be a password, is not repeated" {
    hint '^dlock: --helpp: unknown option; did you mean --help\?$' dlock --helpp job touch ran
    hint 'no command given; did you mean dlock --status\?' dlock status
    hint "^dlock: ls: -al: unknown option; .*; if ls is the command, the lock's name is missing: dlock NAME -- ls, or dlock --lock-file=PATH ls$" dlock ls -al
    hint '--redsi: unknown option; did you mean --redis\?$' dlock --redsi=redis://bob:s3cret@host job touch ran
    # Words that are as close, and the command's own words, get no hint.
    run dlock help -- echo ran
    equals "$status $output" '0 ran'
    run dlock /var/lock/nosuch/foo -e -o -n -E 3 echo -n --helpp -shared
    equals "$status $output" '0 --helpp -shared'
}

@test "a command that cannot be run gets a suggestion" {
    fails_with 127 'did you mean dlock --status job\?' dlock status job
    fails_with 126 "if ls is the command, the lock's name is missing: dlock NAME -- ls" dlock ls /tmp
    fails_with 127 "cannot run touch ran: No such file or directory; the command is one word with spaces; use -c 'STRING'" dlock job 'touch ran'
    [ ! -e ran ]
    fails_with 127 'cannot run nosuchcommand: No such file or directory$' dlock job nosuchcommand
}

@test "a name that is the path of a file is warned about if it contains a slash, otherwise not" {
    touch "$T/file"
    cd "$T"
    fails_with 0 "this name is the path of a file.* use --lock-file=$T/file" dlock "$T/file" true
    fails_with 0 'this name is the path of a file.* use --lock-file=./file' dlock ./file true
    fails_with 0 '^$' dlock file true
    fails_with 0 '^$' dlock -q ./file true
    fails_with 0 '^$' dlock deploy/shop true
    run dlock -v --lock-file="$T/file" true
    [[ $output != *'this name is'* ]]
}

@test "with --json every failure is an object on stdout, wherever JSON was requested" {
    local case
    while read -r case; do
        # shellcheck disable=SC2086
        dlock --json $case >"$T/out" 2>"$T/err" && false
        python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["error"]["code"])' "$T/out" || { echo "$case"; false; }
        [ ! -s "$T/err" ]
    done <<'END'
help
--helpp job
-try=1 job
job
job /nosuch
--release --owner=x job
--extend
-t 1x job true
--status --release job
END
    DLOCK_JSON=yes DLOCK_TTL=x run sh -c 'dlock job true 2>/dev/null'
    [[ $status = 78 && $output == '{"error":{"code":"INVALID_CONFIG"'* ]]
    DLOCK_JSON=1 run sh -c 'dlock job 2>/dev/null'
    [[ $status = 64 && $output == '{"error":{"code":"INVALID_ARGUMENT"'* ]]
    # The command's own arguments do not count.
    run sh -c 'dlock --owner= job echo --json 2>/dev/null'
    equals "$status $output" '64 '
}

@test "the failure codes in JSON are those in the manual" {
    local codes manual
    codes=$(sed -nE 's/^    \[FAIL_[A-Z_]+\] = \{"([A-Z_]+)".*/\1/p' "$TESTS/../src/ui/report.c" | sort)
    manual=$(sed -n '/^\.Sh JSON/,/^\.Sh REPORTS/p' "$TESTS/../doc/dlock-json.5" | sed -nE 's/^\.It Cm ([A-Z_]+)$/\1/p' | sort)
    [ "$(wc -l <<<"$codes")" -ge 11 ]
    equals "$manual" "$codes"
    # Each code is used.
    local failure
    for failure in $(sed -nE 's/^    (FAIL_[A-Z_]+),.*/\1/p' "$TESTS/../src/ui/report.h"); do
        grep -q "\[$failure\]" "$TESTS/../src/ui/report.c"
        grep -qlE "(return|fail\(|fail_json\(|[?:]) ?.*$failure" -r "$TESTS/../src" --include=*.c || { echo "not used: $failure"; false; }
    done
}

@test "--print-config shows each setting and its source, but no secret" {
    mkdir -p "$T/home/.config/dlock"
    printf '%s\n' 'ttl = 6h' 'retry-for = 4s' '[lock cron:*]' 'hold-at-least = 45s' >"$T/home/.config/dlock/dlock.conf"
    local file=$T/home/.config/dlock/dlock.conf
    DLOCK_PREFIX=team: run dlock --print-config -t 7h --owner=s3cret -r 'rediss://bob:s3cret@host:7/2' cron:x
    equals "$status" 0
    [[ $output != *s3cret* ]]
    [[ $output == *"; $file: read"* ]]
    grep -qxE 'ttl = 7h +; --ttl' <<<"$output"
    grep -qxE "retry-for = 4s +; $file:2: retry-for" <<<"$output"
    grep -qxE "hold-at-least = 45s +; $file:4: hold-at-least" <<<"$output"
    grep -qxE 'prefix = team: +; DLOCK_PREFIX' <<<"$output"
    grep -qxE 'conflict-exit-code = 75 +; default' <<<"$output"
    grep -qxE 'redis = rediss://host:7/2 +; --redis' <<<"$output"
    grep -qxE '; owner +; --owner' <<<"$output"
    grep -qxE '; slots +; not set' <<<"$output"
    DLOCK_REDIS=s3cret run dlock --print-config job
    [[ $output == *'; redis  '*'; DLOCK_REDIS'* && $output != *s3cret* ]]
    dlock --print-config --json -t 7h cron:x | python3 -c '
import json, sys
settings = {s["name"]: s for s in json.load(sys.stdin)["settings"]}
assert settings["ttl"] == {"name": "ttl", "value": "7h", "origin": "--ttl", "note": None}
assert settings["slots"] == {"name": "slots", "value": None, "origin": "not set", "note": None}
assert settings["retry-for"]["origin"].endswith("dlock.conf:2: retry-for")'
    fails_with 64 '--print-config runs no command' dlock --print-config job true
    DLOCK_TTL=x fails_with 78 'DLOCK_TTL' dlock --print-config job
    [ ! -e "$T/locks" ]
}

@test "--print-config says which actions ignore a conflict-exit-code of 0" {
    DLOCK_CONFLICT_EXIT_CODE=0 run dlock --print-config job
    grep -qxE 'conflict-exit-code = 0 +; DLOCK_CONFLICT_EXIT_CODE; 75 with --acquire, --attach and --wait-until-free' <<<"$output"
    DLOCK_CONFLICT_EXIT_CODE=0 dlock --print-config --json job | python3 -c '
import json, sys
settings = {s["name"]: s for s in json.load(sys.stdin)["settings"]}
assert settings["conflict-exit-code"]["note"] == "75 with --acquire, --attach and --wait-until-free"'
    run dlock --print-config -E 3 job
    grep -qxE 'conflict-exit-code = 3 +; --conflict-exit-code' <<<"$output"
}

@test "--print-config shows every setting, and its output is a valid dlock.conf" {
    mkdir -p "$T/home/.config/dlock"
    run dlock --print-config -t 3m --shared --prefix=x: --grace=2s --on-expire=warn --tree --stop-signal=INT -w 3 job
    printf '%s\n' "$output" >"$T/home/.config/dlock/dlock.conf"
    env -u DLOCK_BACKEND -u DLOCK_LOCK_DIR dlock --print-config job | sed 's/ *;.*//; /^$/d' >"$T/again"
    sed 's/ *;.*//; /^$/d' <<<"$output" >"$T/before"
    diff "$T/before" "$T/again"
    equals "$(grep -cE '^;? ?[a-z-]+( =| )' <<<"$output")" \
        "$(dlock --print-config --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["settings"]))')"
}

@test "messages name only options that exist, and have no capital and no full stop" {
    dlock --help >"$T/help"
    run python3 - "$TESTS/../src" "$T/help" <<'END'
import glob, re, sys
known = set(re.findall(r"--[a-z][a-z-]+", open(sys.argv[2]).read()))
# Words that are no options, or are named because they do not exist.
known |= {"--fcntl", "--enable-static-binary"}
text = r'"((?:[^"\\\n]|\\.)*)"'
calls = re.compile(r'\b(?:fail|refuse|disagree|say_\w+|why_set|add)\((?:[^;{}"]|"(?:[^"\\]|\\.)*")*?;')
names = ("Redis", "OpenSSL", "Sentinel")
for file in sorted(glob.glob(sys.argv[1] + "/**/*.c", recursive=True)):
    source = open(file).read()
    for literal in re.findall(text, source):
        for option in re.findall(r"(?<![a-z-])--[a-z][a-z-]+", literal):
            if option not in known:
                print(file, "no such option:", option)
    for call in calls.findall(source):
        for literal in re.findall(text, call):
            if re.search(r"[^.]\.$|!", literal) or (re.match("[A-Z][a-z]", literal) and not literal.startswith(names)):
                print(file, "capital or full stop:", literal)
END
    equals "$status $output" '0 '
}

# Values that must never reach a terminal.
hostile=$'a\e[31m\x9b\nb\xff\u202e\u009b\u2066\x7f\rc'

# clean: $T/said, the output so far, consists of lines of valid UTF-8 without control
# characters, and those on stderr come from dlock.
clean() {
    python3 - "$T/said" "$@" <<'END'
import sys, unicodedata
data = open(sys.argv[1], "rb").read()
text = data.decode("utf-8")
bad = [c for c in text if c != "\n" and (unicodedata.category(c) == "Cc" or c in "\u202e\u2066")]
assert not bad, (sys.argv[2:], bad, [line for line in text.splitlines() if set(bad) & set(line)])
assert all(line.startswith(("dlock: ", "{")) for line in text.split("\n")[:-1]), (sys.argv[2:], data)
END
}

@test "no message disturbs a terminal, whatever the value of an option, a variable or a name" {
    local option variable
    : >"$T/said"
    for option in $(dlock --help | grep -oE '^ +(-[A-Za-z], )?--[a-z-]+=' | grep -oE -- '--[a-z-]+'); do
        [ "$option" != --command ] || continue
        dlock -v --retry-for=0 "$option=$hostile" job true >>"$T/said" 2>&1 || true
        variable=DLOCK_$(tr a-z- A-Z_ <<<"${option#--}")
        env "$variable=$hostile" dlock -v --retry-for=0 job true >>"$T/said" 2>&1 || true
    done
    for option in "--$hostile" "-$hostile" "--ttl$hostile" "--attach=$hostile"; do
        dlock "$option" job true >>"$T/said" 2>&1 || true
    done
    dlock "$hostile" >>"$T/said" 2>&1 || true
    dlock "$hostile" true >>"$T/said" 2>&1 || true
    dlock -v job "$hostile" >>"$T/said" 2>&1 || true
    dlock -v job "./$hostile" -x >>"$T/said" 2>&1 || true
    dlock --json job "$hostile" >>"$T/said" 2>&1 || true
    dlock -v -c true "$hostile" >>"$T/said" 2>&1 || true
    (export SHELL=$hostile; dlock -v job -c true) >>"$T/said" 2>&1 || true
    [ "$(wc -l <"$T/said")" -gt 60 ]
    clean options
    mkdir -p "$T/home/.config/dlock"
    for variable in "tt$hostile = 1" "ttl = ${hostile//$'\n'/}" "[lo${hostile//$'\n'/}]" "$hostile"; do
        printf '%s\n' "$variable" >"$T/home/.config/dlock/dlock.conf"
        dlock job true >>"$T/said" 2>&1 || true
    done
    clean files
    # Output that was requested is escaped as well.
    rm "$T/home/.config/dlock/dlock.conf"
    dlock --print-config --report="$hostile" --owner-file="$hostile" --lock-dir="/$hostile" job >"$T/out" 2>&1
    sed 's/^/dlock: /' "$T/out" >"$T/said"
    clean print-config
    dlock --doctor --lock-dir="$T/$hostile" "${hostile:0:1}" 2>&1 | sed 's/^/dlock: /' >"$T/said"
    clean doctor
}
