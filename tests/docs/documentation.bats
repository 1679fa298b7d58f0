#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; SRC=$TESTS/..; }

# Prints the long options that --help shows, one a line.
shown_options() { dlock --help | grep -oE '^ +(-[A-Za-z], )?--[a-z-]+' | grep -oE '[a-z][a-z-]+$'; }

@test "--help fits 80 columns, aligns its texts in one column, starts with daily use, and says that the TTL kills" {
    local help first
    dlock --help >"$T/help"
    equals "$(awk 'length > 80' "$T/help")" ''
    # Every text has enough room, and a long option has a line of its own.
    grep -E '^ ' "$T/help" | grep -v '^       dlock' >"$T/texts"
    run grep -vE '^( {30}[^ ]|  (-[A-Za-z],|   ) --[a-z-]+(=[^ ]+)?$|.{28}  [^ ])' "$T/texts"
    equals "$output" ''
    [ "$(grep -cE '^ {30}[^ ]' "$T/texts")" -lt "$(shown_options | wc -l)" ]
    help=$(cat "$T/help")
    first=$(sed -n '/^Used daily:$/,/^$/p' <<<"$help")
    equals "$(grep -oE '^  -[a-zA-Z]' <<<"$first" | tr -d ' \n')" '-n-w-t-E-s-c-m'
    [[ $(tr -s ' \n' ' ' <<<"$first") == *'the command is killed at its end'* ]]
    [[ ${help%%Without a command:*} == *'Used daily:'* ]]
    # Options that few need are at the end.
    equals "$(grep -E '^[A-Z][a-z ]+:$' <<<"$help" | tail -1)" 'Rarely needed:'
}

# A row without a help text is an option of flock(1) that dlock refuses.
@test "every option in the table is in --help exactly once, except refused ones" {
    local option times
    dlock --help >"$T/help"
    sed -nE 's/^(OPTION|ACTION)\([A-Z_]+, "([a-z-]+)".*/\2/p' "$SRC/src/config/option_rows.h" >"$T/rows"
    equals "$(wc -l <"$T/rows")" "$(grep -cE '^(OPTION|ACTION)\(' "$SRC/src/config/option_rows.h")"
    while read -r option; do
        times=$(grep -cE -- "^  (-[A-Za-z],|   ) --$option( |=|\$)" "$T/help") || true
        case $option in
            no-fork | unlock)
                equals "$option $times" "$option 0"
                run dlock --backend=file "--$option" job true
                equals "$status" 64
                ;;
            *) equals "$option $times" "$option 1" ;;
        esac
    done <"$T/rows"
    equals "$(grep -cE '^  (-[A-Za-z],|   ) --' "$T/help")" "$(($(wc -l <"$T/rows") - 2))"
    [[ $(tr -s ' \n' ' ' <"$T/help") == *'--version print the version; with -v, the licences as well'* ]]
}

@test "-h shows what is used daily on a screen of 24 lines and 80 columns, as --help does, and its examples work" {
    local line
    dlock -h >"$T/screen" 2>"$T/errors"
    equals "$(cat "$T/errors")" ''
    # The shell's prompt needs the last line.
    [ "$(wc -l <"$T/screen")" -le 23 ]
    equals "$(awk 'length > 80' "$T/screen")" ''
    equals "$(sed -n '/^Used daily:$/,/^$/p' "$T/screen")" "$(dlock --help | sed -n '/^Used daily:$/,/^$/p')"
    equals "$(grep -oE '^ +(-[A-Za-z], )?--[a-z-]+' "$T/screen" | grep -oE '[a-z][a-z-]+$' | tr '\n' ' ')" \
        'nonblock wait ttl conflict-exit-code shared command message tree status list history '
    [[ $(tr -s ' \n' ' ' <"$T/screen") == *'exit status 0: held, 1: free (of several: one is), 69: unknown'* ]]
    [[ $(tail -1 "$T/screen") == *'dlock --help lists all options'*'dlock(1)'* ]]
    equals "$(dlock --usage)" "$(cat "$T/screen")"
    # The example for cron, and that for Redis.
    start_redis
    printf '#!/bin/sh\necho "$DLOCK_NAME $DLOCK_HELD_BACKEND" >>"%s/ran"\n' "$T" | tee "$T/bin/rollup" >"$T/deploy"
    chmod +x "$T/bin/rollup" "$T/deploy"
    cd "$T" || return
    line=$(grep -oE 'dlock -n .*rollup$' "$T/screen")
    DLOCK_REDIS=unix://$T/redis.sock sh -c "$line"
    DLOCK_REDIS=unix://$T/redis.sock sh -c "$line" # another host, whose clock is behind
    sh -c "$(sed -n "s,.*\(dlock -r \)redis://locks.example,\1unix://$T/redis.sock,p" "$T/screen")"
    equals "$(cat "$T/ran")" $'nightly redis\ndeploy redis'
}

@test "the manual describes every option of --help and no other" {
    command -v mandoc >/dev/null || skip 'no mandoc'
    mandoc -T ascii "$SRC/doc/dlock.1" | col -b >"$T/manual"
    sed -n '/^OPTIONS/,/^[A-Z]/p' "$T/manual" >"$T/options"
    local option
    for option in $(shown_options); do
        grep -qE -- "--$option\\b" "$T/options" || { echo "not in the manual: --$option"; false; }
    done
    for option in $(grep -oE -- "--[a-z][a-z-]+" "$T/options" | sort -u); do
        run dlock "$option=x" --version
        [[ $output != *'unknown option'* ]] || { echo "in the manual alone: $option"; false; }
    done
}

@test "the manual pages have no errors, print as intended, and have at most 400 lines of 80 columns, dlock(1) 450 and 2,900 words" {
    # Words at the end of a macro line would be printed as --its -name.
    run grep -nE '^\.[A-Z][a-z] (.* )?[).,;:]+ (.* )?[a-z]+[,:;]? [a-z]+' <(sed 's/ No .*//' "$SRC"/doc/*.[157])
    equals "$output" ''
    command -v mandoc >/dev/null || skip 'no mandoc'
    run mandoc -T lint -W warning "$SRC"/doc/*.[157]
    equals "$status $output" '0 '
    run sh -c "mandoc -T ascii -O width=200 '$SRC/doc/dlock.1' | col -b | sed -n '/^SYNOPSIS/,/^DESCRIPTION/s/^ *dlock/dlock/p'"
    equals "$output" 'dlock [options] name [options] [--] command [arg ...]
dlock [options] name [options] -c string
dlock [options] --lock-file=PATH [--] command [arg ...]
dlock --acquire | --attach[=PID] | --extend | --release [options] name
dlock --force-release | --history | --ran-within=DURATION | --wait-until-free [options] name
dlock --status [options] name ...
dlock --pause=DURATION --message=TEXT | --resume [options] name
dlock --extend | --release | --current [options]
dlock --list [options] [glob]
dlock --doctor | --print-config [options] [name]
dlock -h | --help | --version'
    local page lines most
    for page in "$SRC"/doc/*.[157]; do
        lines=$(mandoc -T ascii -O width=80 "$page" | wc -l)
        most=400
        [ "${page##*/}" != dlock.1 ] || most=450
        [ "$lines" -le "$most" ] || { echo "$page: $lines lines"; false; }
    done
    [ "$(mandoc -T ascii -O width=80 "$SRC/doc/dlock.1" | col -b | wc -w)" -le 2900 ]
}

@test "the manual refers only to sections and pages that exist, and the README names all pages" {
    local page name section
    for page in "$SRC"/doc/*.[157]; do
        sed -nE 's/^\.S[hs] (.*[^\\&]).*/\1/p' "$page" | sort -u >"$T/sections"
        while read -r section; do
            grep -qxF -- "$section" "$T/sections" || { echo "$page: no section: $section"; false; }
        done < <(sed -nE 's/^\.(Pq |Po )?Sx (.*)$/\2/p' "$page" | sed -E 's/( [).,;:]| , .*)+$//' | sort -u)
    done
    for page in "$SRC"/doc/*.[157]; do
        while read -r name section; do
            [ -e "$SRC/doc/$name.$section" ] || { echo "$page: no page: $name($section)"; false; }
        done < <(grep -ohE 'Xr dlock[a-z.-]* [0-9]' "$page" | sed 's/^Xr //' | sort -u)
    done
    equals "$(grep -E '^- Manual: ' "$SRC/README.md" | grep -oE 'dlock[a-z.-]*' | sort)" \
        "$(cd "$SRC/doc" && ls ./*.[157] | sed -E 's,^\./,,; s/\.[157]$//' | sort)"
}

@test "make html makes a page of each manual page, and their links work" {
    command -v mandoc >/dev/null || skip 'no mandoc'
    [ -e "$(dirname "$DLOCK")/../Makefile" ] || skip 'not built here'
    local build
    build=$(realpath "$(dirname "$DLOCK")/..")
    make -s -C "$build" html
    equals "$(cd "$build/doc/html" && ls)" "$(cd "$SRC/doc" && ls ./*.[1-7] | sed 's,^\./,,; s/$/.html/')"
    grep -q 'href="dlock-redis.7.html"' "$build/doc/html/dlock.1.html"
}

@test "the manual describes every exit status, and every variable that dlock reads or sets" {
    local status variable variables
    for status in 1 2 64 69 70 71 73 75 77 78 124 126 127; do
        grep -qE "^\.It (Cm |Li |Sy )?$status" "$SRC/doc/dlock.1" || { echo "not in the manual: $status"; false; }
    done
    variables=$(grep -ohE '"(DLOCK_[A-Z_]*[A-Z]|REDISCLI_AUTH|[A-Z]+_DIRECTORY)"' -r "$SRC/src" --include=*.c | tr -d '"' | sort -u)
    [[ $variables == *DLOCK_CONFIG*REDISCLI_AUTH* ]]
    for variable in $variables; do
        grep -qhE "^\.(It )?(Pq )?Ev .*\b$variable\b" "$SRC"/doc/*.[157] || { echo "not in the manual: $variable"; false; }
    done
}

@test "the README has at most 700 words, and links to help with a stuck lock" {
    [ "$(wc -w <"$SRC/README.md")" -le 700 ]
    grep -qF '(doc/cookbook.md#when-a-lock-is-stuck)' "$SRC/README.md"
}

@test "the README's first command lines are the two that build and test dlock" {
    run sh -c "grep -nE '^ +\./bootstrap' '$SRC/README.md' | head -2"
    [[ ${lines[0]} == *'./bootstrap && src/dlock hello -- echo "I hold the lock"' ]]
    [[ ${lines[1]} == *'./bootstrap --tests && make check' ]]
    # These two lines are what must pass before a change lands.
    [ ! -e "$SRC/.ci/run" ] || for line in "${lines[@]}"; do grep -qF "${line#*    }" "$SRC/.ci/run"; done
}

# workflow_runs WORKFLOW: prints each command of its jobs, one a line: the image, the user, the command.
# It also prints each action without a pinned commit, each job without a time limit, and further permissions.
workflow_runs() {
    "$python" - "$1" <<'END'
import itertools, json, re, sys, yaml
flow = yaml.safe_load(open(sys.argv[1]))
if flow.get("permissions") != {"contents": "read"}:
    print("permissions", flow.get("permissions"))
for name, job in flow["jobs"].items():
    if "timeout-minutes" not in job or "permissions" in job:
        print(name, "has no timeout, or permissions of its own")
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        text = json.dumps(job)
        for key, value in zip(matrix, values):
            text = text.replace("${{ matrix.%s }}" % key, value)
        here = json.loads(text)
        default = here.get("defaults", {}).get("run", {})
        for step in here["steps"]:
            if "uses" in step and not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]):
                print("not pinned:", step["uses"])
            user = re.match(r"sudo -H -u (\S+) bash -e \{0\}$", step.get("shell", default.get("shell", "")))
            print(here["container"], user[1] if user else "-", step.get("run", ""), sep="|")
END
}

@test "GitHub's CI runs the README's two lines on each system, as root and as a user" {
    local python=python3 system user workflow=$SRC/.github/workflows/ci.yml
    [ -e "$workflow" ] || skip 'the tarball has no workflows'
    "$python" -c 'import yaml' 2>/dev/null || python=/usr/bin/python3
    "$python" -c 'import yaml' 2>/dev/null || skip 'no python3-yaml'
    . "$SRC/packaging/root.bash"
    workflow_runs "$workflow" >"$T/runs"
    for system in debian:12 debian:13 ubuntu:latest; do
        for user in root contributor; do printf "$system|$user|%s\n" "$(first_line "$SRC")" "$(second_line "$SRC")"; done
    done >"$T/wanted"
    equals "$(grep -F ./bootstrap "$T/runs" | grep -v '^alpine')" "$(cat "$T/wanted")"
    equals "$(grep -F ./bootstrap "$T/runs" | grep '^alpine')" "alpine:latest|-|$(first_line "$SRC")"
    equals "$(grep -E '^(permissions|not pinned)|has no timeout' "$T/runs")" ''
}

@test "the version is the same everywhere" {
    local version page
    version=$(dlock --version | sed 's/^dlock \([^ ]*\).*/\1/')
    grep -q "AC_INIT(\[dlock\], \[$version\])" "$SRC/configure.ac"
    for page in "$SRC"/doc/*.[1-7]; do grep -qx "\.Os \"dlock $version\"" "$page" || { echo "$page"; false; }; done
    head -1 "$SRC/NEWS" | grep -q "^dlock $version"
    head -1 "$SRC/debian/changelog" | grep -qF "dlock ($version) "
    grep -qx "Version: *$version" "$SRC/packaging/dlock.spec"
    sed -n '/^%changelog/{n;p}' "$SRC/packaging/dlock.spec" | grep -qE -- "- $version-[0-9]+$"
    grep -qx "pkgver=$version" "$SRC/packaging/APKBUILD"
    grep -qx "  version = \"$version\";" "$SRC/packaging/package.nix"
}
