#!/usr/bin/env bats
# Each option in the manual has the argument, the default, the variable and the key that it has in the program.
load ../lib/common
setup() {
    common_setup
    SRC=$TESTS/..
    export DLOCK_LOCK_DIR=$T/locks PAGE=$SRC/doc/dlock.1 HELP=$T/help
    dlock --help >"$HELP"
}

# with_options STATEMENTS: runs Python with `page`, the options in dlock(1), and `told`, those of --help: by
# name, each with its argument, text and default (None: not stated). Fails if `bad` is not empty.
with_options() {
    python3 - "$1" <<'PYTHON'
import os, re, sys
from types import SimpleNamespace
plain = lambda text: re.sub(r'\s+', ' ', text).strip()

page, last = {}, None
source = open(os.environ['PAGE'], encoding='utf-8').read()
for line in source[source.index('\n.Sh OPTIONS'):source.index('\n.Sh DURATIONS')].split('\n'):
    if line.startswith('.It '):
        last = [SimpleNamespace(name=name, argument=(re.search(r'Fl -%s Ns = Ns Ar (\S+)' % name, line) or [None, None])[1], text='')
                for name in re.findall(r'Fl -([a-z][a-z-]+)', line)[:1]]
        page.update((option.name, option) for option in last)
    elif line.startswith(('.El', '.Ss')):
        last = None
    elif last:
        last[0].text += ' ' + re.sub(r'^\.(Cm|Ql|Sq|Dv|Fl|Ev|Pa|Ar|Li) ', '', line)
for option in page.values():
    found = re.search(r'The default is (.*?)(?<=[^.])\.(?= [A-Z.]|$)', plain(option.text) + ' ')
    option.default = re.sub(r' \.(?=[A-Z][a-z] |$)', ' ', plain(found[1])).strip() if found else 'it' if 'This is the default.' in option.text else None
    option.variables = re.findall(r'\.Pq Ev (DLOCK_\w+)', option.text)

told, last = {}, None
for line in open(os.environ['HELP'], encoding='utf-8'):
    found = re.match(r'^ +(?:-\w, )?--([a-z-]+)(?:=(\S+))?(?: +(\S.*))?$', line)
    if found:
        last = told[found[1]] = SimpleNamespace(name=found[1], argument=found[2], text=found[3] or '')
    elif last and re.match(r'^ {30,}\S', line):
        last.text += ' ' + line.strip()
    else:
        last = None
for option in told.values():
    option.text = plain(option.text)
    found = re.search(r'\(default(?:: ([^()]*(?:\([^()]*\)[^()]*)*))?\)$', option.text)
    option.default = None if found is None else found[1] or 'it'

bad = []
assert len(told) > 45 and set(page) >= set(told), sorted(set(told) - set(page))
exec(sys.argv[1])
if bad:
    sys.exit('\n'.join(bad))
PYTHON
}

@test "each option takes the same value in the manual and in --help" {
    with_options '
for name, option in told.items():
    if name != "attach" and option.argument != page[name].argument: # [=PID], as its text says
        bad.append(f"--{name}: {option.argument} in --help, {page[name].argument} in the manual")'
}

@test "each option with a value has the same default in the manual and in --help" {
    with_options '
same = {  # a list and a page say the same in different words
    "fallback": "off", "lock-dir": "/run/lock/dlock", "cacert": "the system", "client-key": "in the file of --client-cert",
    "grace": "min(10s, ttl/10)", "hash": "none; hmac-sha256 with a secret",
}
in_page = {
    "fallback": "off : exit with status 69", "lock-dir": "in Sx FILES",
    "cacert": "those that OpenSSL trusts on this host", "client-key": "the file of -client-cert",
    "grace": "a tenth of the TTL, but at most 10s", "hash": "none , and hmac-sha256 if there is a secret",
}
without = ("pause", "slots", "owner-file", "exit-status", "ran-within", "command", "config")  # these request or need something
for name, option in told.items():
    listed, paged = option.default, page[name].default
    if name in same:
        if not (listed or "").startswith(same[name]) or not (paged or "").startswith(in_page[name]):
            bad.append(f"--{name}: {listed!r} in --help, {paged!r} in the manual")
    elif option.argument and name not in without:
        paged = (paged or "").split(": ")[0]
        if paged == "":
            bad.append(f"--{name}: the manual tells no default")
        elif listed is None and paged not in ("none", ):
            bad.append(f"--{name}: {paged!r} in the manual, nothing in --help")
        elif listed is not None and listed.strip(":") != paged.replace(" (version 4)", " v4").strip(":"):
            bad.append(f"--{name}: {listed!r} in --help, {paged!r} in the manual")'
}

@test "the defaults in the manual are those of the program" {
    default() { with_options "print(page['$1'].default)"; }
    dlock --print-config --backend=file >"$T/settings"
    local option
    for option in ttl connect-timeout retry-for; do
        grep -qE "^$option = $(default "$option") +; default$" "$T/settings" ||
            { grep "$option " "$T/settings"; false; }
    done
    equals "$(default redis)" none
    grep -qE '^; redis +; not set$' "$T/settings"
    grep -qE '^wait = infinity +; default$' "$T/settings"
    dlock --backend=file --acquire --owner=other job >/dev/null
    fails_with "$(default conflict-exit-code)" '' dlock --backend=file -n job true
    # shellcheck disable=SC2016
    equals "$(dlock --on-degraded=proceed key -c 'echo $DLOCK_HELD_KEY $DLOCK_HELD_BACKEND')" "$(with_options 'print(re.sub(r"[.]Ql|:$", "", page["prefix"].default).strip())'):key file"
    fails_with 0 'dlock: key: no Redis' dlock key true # --on-degraded=warn
    # --stop-signal and --on-expire: the lease ends, and the signal shows what was set.
    printf '#!/bin/sh\ntrap "echo TERM; exit" TERM\ni=0\nwhile [ $((i += 1)) -lt 400 ]; do sleep 0.05; done\n' >"$T/told"
    chmod +x "$T/told"
    fails_with 124 "^$(default stop-signal)$" dlock --backend=file -t 3s stopped "$T/told"
    equals "$(default on-expire)" stop
}

@test "the manual names each option's variable, and dlock reads each variable" {
    with_options '
for name, option in page.items():
    wanted = "DLOCK_" + name.upper().replace("-", "_")
    if option.variables not in ([], [wanted]):
        bad.append(f"--{name}: {option.variables}")
for name in told:
    print(name, *(page[name].variables or ["-"]))' >"$T/variables"
    local name variable key
    mkdir -p "$HOME/.config/dlock"
    while read -r name variable; do
        [ "$name" != config ] || continue # names the file
        # A value that no option accepts, except one that takes any text.
        printf '%s = \001\n' "$name" >"$HOME/.config/dlock/dlock.conf"
        run dlock --doctor
        key=read
        [[ $output != *"$name: unknown key"* ]] || key=unknown
        [[ $variable == - && $key == unknown || $variable != - && $key == read ]] ||
            { echo "--$name: variable $variable in the manual, key $key in the program"; false; }
    done <"$T/variables"
    [ "$(wc -l <"$T/variables")" -ge 45 ]
}

@test "dlock.conf(5) names all keys and no others" {
    local text name
    text=$(mandoc -T ascii "$SRC/doc/dlock.conf.5" 2>/dev/null | col -bx | tr -s ' \n' ' ' | grep -o 'All options of dlock(1) are keys.*and so on)') ||
        skip 'no mandoc'
    mkdir -p "$HOME/.config/dlock"
    for name in $(grep -oE '^ +(-[A-Za-z], )?--[a-z-]+' "$HELP" | grep -oE '[a-z][a-z-]+$') nb nonblocking timeout; do
        printf '%s = \001\n' "$name" >"$HOME/.config/dlock/dlock.conf"
        run dlock --doctor
        [[ $output == *"$name: unknown key"* ]] || continue
        [[ $text == *"--$name"* ]] && continue
        # An action is in one of the first two groups of --help.
        sed -n '/^Used daily:/,/^Taking the lock:/p' "$HELP" | grep -qE -- "^ +--$name\b" || { echo "no key, and the manual does not say so: $name"; false; }
    done
    for name in $(grep -oE -- '--[a-z]+' <<<"$text" | tr -d - | sort -u); do
        printf '%s = \001\n' "$name" >"$HOME/.config/dlock/dlock.conf"
        fails_with 78 "$name: unknown key" dlock job true
    done
}

@test "every DURATION in the manual accepts each unit; anything else is refused with the option's name" {
    local options option time command status store
    options=$(with_options 'print(*[name for name, option in page.items() if option.argument == "DURATION"])')
    [ "$(wc -w <<<"$options")" -ge 10 ]
    for option in $options; do
        command=(true) status=0
        [ "$option" != pause ] || command=(--message=why)
        [ "$option" != ran-within ] || command=() status=1
        # These two have no effect on a lock in a file.
        store=--backend=file
        [[ $option != connect-timeout && $option != retry-for ]] || command=() store=--print-config
        for time in 9000ms 90s 9m 1.5h 2d 1w 1m30s 90; do
            # The longest lease, so that no other option is too long for it; and a name of its own, because of its hold.
            DLOCK_TTL=30d fails_with $status "" dlock "$store" "--$option=$time" "$option-$time" "${command[@]}"
        done
        fails_with 64 "^dlock: job: --$option: '3x': unknown unit" dlock "--$option=3x" job "${command[@]}"
    done
}
