#!/usr/bin/env bats
load common
setup() { common_setup; SRC=$TESTS/..; }
teardown() { common_teardown; }

@test "configure names the package of a library that is missing" {
    [ -x "$SRC/configure" ] || skip 'not configured from here'
    # A copy, since a tree that is configured cannot be configured elsewhere.
    mkdir -p "$T/tree/src" "$T/build"
    cp -R "$SRC"/configure "$SRC"/build-aux "$SRC"/config.h.in "$SRC"/Makefile.in "$T/tree"
    touch "$T/tree/src/main.c"
    cd "$T/build"
    # A pkg-config that knows all but one.
    local library package
    while read -r library package; do
        printf '#!/bin/sh\ncase "$*" in *%s*) exit 1 ;; esac\nexit 0\n' "$library" >"$T/bin/pkg-config"
        chmod +x "$T/bin/pkg-config"
        fails_with 1 "$library.* not found" env PKG_CONFIG="$T/bin/pkg-config" "$T/tree/configure"
        [[ $output == *"apt-get install $package"* && $output == *'dnf install'* && $output == *'apk add'* ]]
    done <<'L'
hiredis libhiredis-dev
popt libpopt-dev
uuid uuid-dev
inih libinih-dev
openssl libssl-dev
L
}

@test "bootstrap says what it will install, and refuses what it does not know" {
    fails_with 1 "DLOCK_BOOTSTRAP is 'perhaps'; all, build and none are known" env DLOCK_BOOTSTRAP=perhaps "$SRC/bootstrap"
    mkdir "$T/tree"
    cp "$SRC/bootstrap" "$T/tree"
    # Tools that only tell: nothing is installed, and nothing is there to build.
    printf '#!/bin/sh\nexit 1\n' >"$T/bin/dpkg-query"
    printf '#!/bin/sh\necho "apt-get $*" >>"%s"\n' "$T/apt" >"$T/bin/apt-get"
    printf '#!/bin/sh\nexec "$@"\n' >"$T/bin/sudo"
    chmod +x "$T/bin/dpkg-query" "$T/bin/apt-get" "$T/bin/sudo"
    fails_with 1 'bootstrap: installing with apt-get: gcc .*libhiredis-dev .*redis-server' "$T/tree/bootstrap"
    [[ $output == *'failed: autoreconf'* ]]
    grep -q 'install .*libhiredis-dev' "$T/apt"
    rm "$T/apt"
    fails_with 1 'bootstrap: installing with apt-get: gcc' env DLOCK_BOOTSTRAP=build "$T/tree/bootstrap"
    not grep -q redis-server "$T/apt"
    rm "$T/apt"
    fails_with 1 'failed: autoreconf' env DLOCK_BOOTSTRAP=none "$T/tree/bootstrap"
    [ ! -e "$T/apt" ]
}

@test "the program is hardened" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    command -v readelf >/dev/null || skip 'no readelf'
    run readelf -hldW "$DLOCK"
    grep -q 'Type: *DYN' <<<"$output"
    grep -q 'GNU_RELRO' <<<"$output"
    grep -qE 'BIND_NOW|Flags: .*NOW' <<<"$output"
    not grep -qE 'GNU_STACK.*E ' <<<"$output"
}
