#!/usr/bin/env bats
load ../lib/common
setup() { common_setup; SRC=$TESTS/.. BUILD=$(dirname "$(realpath "$DLOCK")")/..; }

# bats test_tags=slow
@test "a static build needs no library, resolves names, and includes OpenSSL; configure refuses one that is not static" {
    copy_tree static
    cd "$T/static"
    fails_with 1 'sanitizers need the shared C library' ./configure --enable-static-binary --with-sanitizer=address
    # As musl-gcc does if the library has no static archive.
    printf '#!/bin/bash\nexec gcc "${@/#-static/-g}"\n' >"$T/bin/shared-gcc"
    chmod +x "$T/bin/shared-gcc"
    run ./configure --enable-static-binary CC=shared-gcc
    [[ $output == *'no static archives of'* || $output == *'the linker ignores -static'* ]]
    local flags=-O0
    [ ! -e "$BUILD/Makefile" ] || flags=$(sed -n 's/^CFLAGS = //p' "$BUILD/Makefile")
    run ./configure --enable-static-binary CFLAGS="$flags"
    [[ $output != *'no static archives of'* ]] || skip 'no static archives'
    make -s clean >/dev/null
    # Objects that would be compiled again with the same flags are reused.
    if cmp -s <(compiles_with "$BUILD/Makefile") <(compiles_with Makefile); then
        (cd "$BUILD" && find src -name '*.[oh]' -exec cp --parents --preserve=timestamps {} "$T/static" \;)
        rm -f src/util/dl_openssl.o src/redis/tls.o src/actions/config.o # those that depend on STATIC_BINARY
    fi
    make -s -j2
    ln -sf "$PWD/src/dlock" "$T/bin/dlock"
    run readelf -dW src/dlock
    not grep -q NEEDED <<<"$output"

    local port
    port=$(free_port)
    start_redis redis --port "$port"
    equals "$(dlock --redis="redis://localhost:$port" job -- echo held)" held
    equals "$(dlock --backend=file job -- echo held)" held
    equals "$(dlock --backend=file --hash=sha256 job -- sh -c 'echo $DLOCK_HELD_KEY')" \
        "$("$DLOCK" --backend=file --hash=sha256 job -- sh -c 'echo $DLOCK_HELD_KEY')"
    fails_with 69 'the TLS handshake was not answered in time' \
        dlock --redis="rediss://localhost:$port" --connect-timeout=300ms --retry-for=0 job -- touch ran
    [[ $(dlock --version) == *'(static, glibc; OpenSSL 3.'*'; hiredis '* ]]
    [ ! -e ran ]
}

# bats test_tags=slow
@test "make dist makes the same bytes wherever it is run, even of generated files, and forgets no file" {
    command -v xz >/dev/null || skip 'no xz'
    # An xz that records its arguments, and is quick.
    printf '#!/bin/sh\n[ "$1" != -c ] || echo "$* $XZ_OPT $XZ_DEFAULTS" >>"%s"\nXZ_OPT=-0 exec %s "$@"\n' "$T/xz" "$(command -v xz)" >"$T/bin/xz"
    chmod +x "$T/bin/xz"
    copy_tree one
    cd "$T/one"
    [ -e Makefile ] || ./configure >/dev/null
    (umask 077 && TZ=Asia/Kathmandu XZ_DEFAULTS=-T0 XZ_OPT=-0 TAR_OPTIONS=--owner=7 DEBFULLNAME='A Packager' DEBEMAIL=packager@localhost make -s dist)
    mkdir "$T/two"
    cd "$T/two"
    tar -xJf "$T"/one/dlock-*.tar.xz
    cd dlock-*
    grep -qx 'Maintainer: A Packager <packager@localhost>' debian/control
    grep -q '^ -- A Packager <packager@localhost>  ' debian/changelog
    # Configured like the first tree: configure plays no part in this and takes half of the time.
    cp "$T/one/config.status" .
    ./config.status >/dev/null
    (umask 002 && make -s dist)
    cmp "$T"/one/dlock-*.tar.xz dlock-*.tar.xz
    equals "$(uniq -c "$T/xz" | tr -s ' ')" ' 2 -c -6e -T1 '
    equals "$(tar -tvJf dlock-*.tar.xz | grep -vcE '^[d-]rw[x-]r-[x-]r-[x-] 0/0 ')" 0

    git -C "$SRC" rev-parse >/dev/null 2>&1 && [ -e "$SRC/.git" ] || return 0
    tar -tJf dlock-*.tar.xz | sed -n 's,^[^/]*/\(.*[^/]\)$,\1,p' | sort >"$T/packed"
    equals "$(git -C "$SRC" ls-files | grep -vE '^\.' | sort | comm -23 - "$T/packed")" ''
}

@test "configure names the package of a library that is missing" {
    [ -x "$SRC/configure" ] || skip 'not configured from here'
    # A copy, because a configured tree cannot be configured elsewhere.
    mkdir -p "$T/tree/src" "$T/build"
    cp -R "$SRC"/configure "$SRC"/build-aux "$SRC"/config.h.in "$SRC"/Makefile.in "$T/tree"
    touch "$T/tree/src/main.c"
    cd "$T/build"
    # A pkg-config that knows all packages but one.
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
openssl libssl-dev
L
}

# fresh_tree: makes a tree with nothing but bootstrap, in which building fails at once, on a
# system without packages, with a package manager NAME... that only records its arguments.
fresh_tree() {
    local tool
    mkdir -p "$T/tree" "$T/tools"
    cp "$SRC/bootstrap" "$T/tree"
    for tool in cat dirname env id mktemp rm sh uname; do ln -sf "$(command -v "$tool")" "$T/tools"; done
    for tool in dpkg-query rpm apk pacman; do rm -f "$T/tools/$tool"; done
    rm -f "$T"/tools/{apt-get,dnf,zypper}
    printf '#!/bin/sh\nexec "$@"\n' >"$T/tools/sudo"
    for tool; do
        # Asked whether a package is installed, it says no; installations are recorded.
        printf '#!/bin/sh\ncase "$1" in -q | info | -T) exit 1 ;; esac\necho "%s $*" >>"%s"\n' "$tool" "$T/told" >"$T/tools/$tool"
    done
    chmod +x "$T/tools/sudo" "${@/#/$T/tools/}" # not *: that follows the links to the system's programs
    rm -f "$T/told"
}
bootstrap() { PATH=$T/tools "$T/tree/bootstrap" "$@"; }

@test "bootstrap lists what the build needs and installs only that; the packages for tests need --tests" {
    local manager
    for manager in apt-get dnf zypper apk pacman; do
        fresh_tree $manager
        fails_with 1 "^bootstrap: to be installed with $manager: gcc make autoconf automake .*hiredis" bootstrap
        [[ $output == *'failed: autoreconf'* && $output != *'for some tests'* ]]
        grep -qE "^$manager .*gcc make autoconf automake .*hiredis" "$T/told"
        not grep -qE 'bats|redis-server|valkey|php|zsh' "$T/told"
        fresh_tree $manager
        fails_with 1 'for some tests, as far as there are such packages: .*zsh' bootstrap --tests
        grep -qE "^$manager .*bats" "$T/told"
        grep -qE "^$manager .*zsh" "$T/told"
        fresh_tree $manager
        fails_with 1 'failed: autoreconf' bootstrap --no-install
        run bootstrap --help --tests
        equals "$status" 0
        [[ $output == *--no-install* ]]
        [ ! -e "$T/told" ]
    done
}

@test "bootstrap: a package for one suite that cannot be installed is named, and the others are installed" {
    fresh_tree
    printf '#!/bin/sh\ncase "$*" in *php*) exit 100 ;; esac\necho "$*" >>"%s"\n' "$T/told" >"$T/tools/apt-get"
    chmod +x "$T/tools/apt-get"
    fails_with 1 'cannot be installed: php-cli; tests that need it are skipped' bootstrap --tests
    [[ $output == *'failed: autoreconf'* ]]
    grep -q 'install .* zsh$' "$T/told"
}

# locked_apt LOCK...: makes an apt-get that finds one of these locks held by another process
# on each call in turn; '-' is held by nobody. No time passes while bootstrap sleeps.
locked_apt() {
    fresh_tree
    printf '%s\n' "$@" >"$T/locks"
    cat >"$T/tools/apt-get" <<F
#!/bin/sh
PATH=$PATH
read -r lock <"$T/locks" || lock=-
sed -i 1d "$T/locks"
if [ "\$lock" != - ] && [ "\$LC_ALL" = C ]; then
    echo "E: Could not get lock \$lock. It is held by process 7 (apt)" >&2
    exit 100
fi
[ "\$lock" = - ] || exit 100
echo "apt-get \$*" >>"$T/told"
F
    printf '#!/bin/sh\necho slept "$1" >>"%s"\n' "$T/told" >"$T/tools/sleep"
    chmod +x "$T/tools/apt-get" "$T/tools/sleep"
}

@test "bootstrap without root or sudo goes on if only packages of single suites are missing, and refuses otherwise" {
    fresh_tree apt-get
    rm "$T/tools/sudo" "$T/tools/id"
    printf '#!/bin/sh\necho 1000\n' >"$T/tools/id"
    chmod +x "$T/tools/id"
    fails_with 1 'not root, and no sudo: please install them as root' bootstrap --tests
    [[ $output != *autoreconf* ]]
    # All but zsh is installed.
    printf '#!/bin/sh\ncase "$*" in *" zsh") ;; *) echo installed ;; esac\n' >"$T/tools/dpkg-query"
    chmod +x "$T/tools/dpkg-query"
    fails_with 1 'for some tests, as far as there are such packages: zsh$' bootstrap --tests
    [[ $output == *'nothing is installed; tests that need these packages are skipped'*'failed: autoreconf'* ]]
    [ ! -e "$T/told" ]
}

@test "bootstrap says that it waits if another process has locked apt, and gives up after ten minutes" {
    local lists=/var/lib/apt/lists/lock dpkg=/var/lib/dpkg/lock-frontend
    locked_apt $lists $lists - $dpkg -
    fails_with 1 'failed: autoreconf' bootstrap
    equals "$(grep -c 'waiting up to 10 minutes for another process, which has locked apt' <<<"$output")" 2
    equals "$(cut -d' ' -f 1,2 "$T/told")" $'slept 3\nslept 3\napt-get update\nslept 3\napt-get install'

    # shellcheck disable=SC2046
    locked_apt $(yes $lists | head -n 250)
    fails_with 1 "E: Could not get lock $lists. It is held by process 7" bootstrap
    [[ $output == *'failed: apt_get update'* && $output != *autoreconf* ]]
    equals "$(awk '{ seconds += $2 } END { print seconds }' "$T/told")" 600

    # A failure for another reason is reported at once.
    fresh_tree apt-get
    printf '#!/bin/sh\necho "E: Unable to locate package gcc" >&2\nexit 100\n' >"$T/tools/apt-get"
    fails_with 1 'E: Unable to locate package gcc' bootstrap
    [[ $output != *waiting* ]]
}

@test "bootstrap asks on a terminal before it installs, and -y answers" {
    command -v script >/dev/null || skip 'no script(1)'
    fresh_tree apt-get
    run script -qec "PATH=$T/tools $T/tree/bootstrap" /dev/null <<<n
    equals "$status" 1
    [[ $output == *'install them? [Y/n]'*'nothing was installed'* ]]
    [ ! -e "$T/told" ]
    run script -qec "PATH=$T/tools $T/tree/bootstrap" /dev/null <<<y
    [[ $output == *'failed: autoreconf'* ]]
    grep -q 'install .*gcc' "$T/told"
    rm "$T/told"
    run script -qec "PATH=$T/tools $T/tree/bootstrap -y" /dev/null </dev/null
    [[ $output != *'[Y/n]'* && $output == *'failed: autoreconf'* ]]
    grep -q 'install .*gcc' "$T/told"
}

@test "bootstrap without a known package manager says what to install by hand, and refuses other systems" {
    fresh_tree
    fails_with 1 'no apt-get, dnf, zypper, apk or pacman here' bootstrap
    [[ $output == *hiredis*popt*libuuid*OpenSSL* && $output != *autoreconf,* ]]
    rm "$T/tools/uname"
    printf '#!/bin/sh\necho Darwin\n' >"$T/tools/uname"
    chmod +x "$T/tools/uname"
    fails_with 1 'this is Darwin, and dlock needs Linux' bootstrap
}

@test "the program is hardened as its compiler flags promise" {
    [ -z "${SANITIZER:-}" ] || skip 'a build for the sanitizers'
    command -v readelf >/dev/null || skip 'no readelf'
    run readelf -hldW "$DLOCK"
    grep -q 'Type: *DYN' <<<"$output"
    grep -q 'GNU_RELRO' <<<"$output"
    grep -qE 'BIND_NOW|Flags: .*NOW' <<<"$output"
    not grep -qE 'GNU_STACK.*E ' <<<"$output"
    not grep -qE 'LOAD .* RWE ' <<<"$output"
    not grep -qE 'RPATH|RUNPATH|TEXTREL' <<<"$output"
    run readelf --dyn-syms -W "$DLOCK"
    grep -q '__stack_chk_fail' <<<"$output"
    # Because of -D_FORTIFY_SOURCE; other C libraries have no functions of their own for it.
    [[ $output != *GLIBC* ]] || grep -qE ' __(snprintf|memcpy|fprintf|read)_chk' <<<"$output"
    # The libraries' archives may be built without it, and then the whole program is.
    [ -e "$BUILD/src/main.o" ] && grep -q -- -fcf-protection "$BUILD/Makefile" || return 0
    run readelf -nW $(find "$BUILD/src" -name '*.o')
    equals "$(grep -c 'x86 feature: IBT, SHSTK' <<<"$output")" "$(find "$BUILD/src" -name '*.o' | wc -l)"
}

# copy_tree NAME: copies the sources, with configure and the files it made, to $T/NAME.
copy_tree() {
    [ -x "$SRC/configure" ] || skip 'not configured from here'
    mkdir "$T/$1"
    tar -cC "$SRC" --exclude='./.git' --exclude='./dlock-*' --exclude='*.o' . | tar -xC "$T/$1"
    chmod -R u+w "$T/$1"
}

@test "the date of a tarball is SOURCE_DATE_EPOCH, or its commit's date, or its files' date" {
    command -v git >/dev/null || skip 'no git'
    mkdir -p "$T/tree/unpacked"
    cd "$T/tree"
    touch -d @1000 NEWS unpacked/NEWS
    git init -q .
    git add .
    GIT_COMMITTER_DATE='@2000 +0000' git -c user.name=x -c user.email=x@example.org commit -qm x
    equals "$("$SRC/packaging/source-date" .)" 2000
    equals "$("$SRC/packaging/source-date" unpacked)" 1000
    equals "$(SOURCE_DATE_EPOCH=3000 "$SRC/packaging/source-date" .)" 3000
    rm -r .git/refs
    run "$SRC/packaging/source-date" .
    [ "$status" -ne 0 ]
}

@test "make install puts each file in its place, and make uninstall removes all of them" {
    [ -e "$BUILD/Makefile" ] || skip 'not built here'
    local at=(DESTDIR="$T/root" prefix=/usr sysconfdir=/opt/etc)
    (umask 077 && make -s -C "$BUILD" install "${at[@]}")
    equals "$(cd "$T/root" && find . ! -type d -printf '%m %P\n' | sort -k 2)" '755 usr/bin/dlock
644 usr/share/bash-completion/completions/dlock
644 usr/share/doc/dlock/NEWS
644 usr/share/doc/dlock/NOTICES
644 usr/share/doc/dlock/README.md
644 usr/share/doc/dlock/SECURITY.md
644 usr/share/doc/dlock/benchmarks.md
644 usr/share/doc/dlock/comparison.md
644 usr/share/doc/dlock/cookbook.md
644 usr/share/doc/dlock/design.md
644 usr/share/doc/dlock/examples/cronjob.yaml
755 usr/share/doc/dlock/examples/dlock-textfile
755 usr/share/doc/dlock/examples/fenced-update
755 usr/share/doc/dlock/examples/fenced-write
644 usr/share/doc/dlock/examples/importer.service
644 usr/share/doc/dlock/examples/importer.timer
644 usr/share/doc/dlock/examples/leader.service
644 usr/share/doc/dlock/faults.md
644 usr/share/doc/dlock/handoff.svg
644 usr/share/doc/dlock/history.svg
644 usr/share/doc/dlock/reliability.md
644 usr/share/doc/dlock/sharers.svg
644 usr/share/doc/dlock/threat-model.md
644 usr/share/doc/dlock/waiting.svg
644 usr/share/fish/vendor_completions.d/dlock.fish
644 usr/share/man/man1/dlock.1
644 usr/share/man/man5/dlock-json.5
644 usr/share/man/man5/dlock.conf.5
644 usr/share/man/man7/dlock-actions.7
644 usr/share/man/man7/dlock-clients.7
644 usr/share/man/man7/dlock-leases.7
644 usr/share/man/man7/dlock-process.7
644 usr/share/man/man7/dlock-redis.7
644 usr/share/zsh/site-functions/_dlock'
    # The examples that were copied run the installed program.
    equals "$(grep -rhoE '[a-z/]*/bin/dlock' "$T/root/usr/share/doc" | sort -u)" /usr/bin/dlock
    grep -q '^ExecStart=/usr/bin/dlock ' "$T/root/usr/share/doc/dlock/examples/leader.service"
    # The pages name the configuration file that it reads.
    equals "$(grep -rhoE '[a-z/]*/dlock\.conf$' "$T/root/usr/share/man" "$T/root/usr/share/doc/dlock/cookbook.md" | grep etc | sort -u)" /opt/etc/dlock.conf
    # Links lead to installed files.
    local page link
    cd "$T/root/usr/share/doc/dlock"
    for page in *.md; do
        for link in $(grep -oE '\]\([^):]+\)' "$page" | tr -d ']()' | sed 's/#.*//'); do
            [ -e "$link" ] || { echo "$page links to $link" >&2; return 1; }
        done
    done
    grep -qF '](cookbook.md)' README.md
    make -s -C "$BUILD" uninstall "${at[@]}"
    equals "$(find "$T/root" ! -type d)" ''
}

@test "the packages' tmpfiles.d file creates root's lock directory as dlock itself would, and the parent of the others" {
    [ -e "$BUILD/Makefile" ] || skip 'not built here'
    [ "$(id -u)" -eq 0 ] || skip 'gives the directory to root'
    local at=(DESTDIR="$T/root" prefix=/usr tmpfilesdir=/usr/lib/tmpfiles.d)
    make -s -C "$BUILD" install "${at[@]}"
    command -v systemd-tmpfiles >/dev/null || skip 'no systemd-tmpfiles'
    mkdir -p "$T/root/etc" "$T/root/run/lock"
    echo 'root:x:0:0::/:/bin/sh' >"$T/root/etc/passwd"
    echo 'root:x:0:' >"$T/root/etc/group"
    systemd-tmpfiles --root="$T/root" --create dlock.conf
    equals "$(stat -c '%a %U' "$T/root/run/lock/dlock" "$T/root/run/dlock")" $'700 root\n1777 root'
    make -s -C "$BUILD" uninstall "${at[@]}"
    [ ! -e "$T/root/usr/lib/tmpfiles.d/dlock.conf" ]
}

compiles_with() { grep -E '^(CC|DEFS|(AM_|HARDEN_|SANITIZE_|WARN_)?(CFLAGS|CPPFLAGS)) =' "$1"; }

@test "the packages require what bootstrap installs" {
    local package
    for package in $(sed -n "s/^apt_build='\(.*\)'/\1/p" "$SRC/bootstrap"); do
        case $package in gcc | make | autoconf | automake | libc6-dev) continue ;; esac # debhelper and build-essential
        grep -qE "^ $package( |,)" "$SRC/debian/control" || { echo "not in debian/control: $package"; false; }
    done
    for package in $(sed -n "s/^apt_\(test\|optional\)='\(.*\)'/\2/p" "$SRC/bootstrap"); do
        case $package in valgrind | php*) continue ;; esac # not a test of the suite; not in every release
        grep -qx " $package," "$SRC/debian/tests/control" || { echo "not in debian/tests/control: $package"; false; }
    done
    for package in $(sed -n "s/^apk_build='\(.*\)'/\1/p" "$SRC/bootstrap"); do
        case $package in gcc | make | autoconf | automake | musl-dev | pkgconf) continue ;; esac # build-base
        grep -qE "^makedepends=.*\b$package\b" "$SRC/packaging/APKBUILD" || { echo "not in APKBUILD: $package"; false; }
    done
    for package in hiredis popt uuid openssl; do
        grep -q "^BuildRequires:  pkgconfig($package)" "$SRC/packaging/dlock.spec" || { echo "not in the spec: $package"; false; }
    done
}

@test "the files of a release are checked: one that was changed, added or missing in the SBOM is reported" {
    cd "$T"
    local tools=$SRC/packaging
    echo program >dlock-1-linux-amd64
    run "$tools/sbom" 1
    equals "$status" 1
    SOURCE_DATE_EPOCH=1 "$tools/sbom" 1 'hiredis=1.2=BSD-3-Clause' -- dlock-1-linux-amd64 >dlock-1.spdx.json
    grep -q '"created": "1970-01-01T00:00:01Z"' dlock-1.spdx.json
    sum() { sha256sum dlock-* >SHA256SUMS; }
    sum
    fails_with 0 '2 files are as they were made' "$tools/verify" .
    [[ $output == *'not signed'* ]]
    echo other >dlock-1-linux-arm64
    fails_with 1 'dlock-1-linux-arm64 is not in SHA256SUMS' "$tools/verify" .
    rm dlock-1-linux-arm64
    echo changed >dlock-1-linux-amd64
    fails_with 1 'a file is not what it was' "$tools/verify" .
    sum
    fails_with 1 'dlock-1-linux-amd64 is not the one in the SBOM' "$tools/verify" .
}

@test "a release is made of what is committed, has the version of the sources, and is signed only if it is proved" {
    command -v git >/dev/null || skip 'no git'
    local version
    version=$(dlock --version | sed 's/^dlock \([^ ]*\).*/\1/')
    mkdir -p "$T/tree"
    cp -R "$SRC/packaging" "$SRC/configure.ac" "$SRC/NEWS" "$SRC/debian" "$T/tree"
    cd "$T/tree"
    git init -q .
    git -c user.name=x -c user.email=x@example.org commit -q --allow-empty -m x
    fails_with 1 'configure.ac has another version than 77' packaging/release 77
    fails_with 1 'something that is not committed' packaging/release "$version"
    sed -i '1s/ (not yet released)//' NEWS
    sed -i '1s/UNRELEASED/unstable/' debian/changelog
    git add .
    git -c user.name=x -c user.email=x@example.org commit -q -m y
    SIGN=x fails_with 1 'build-proof/ has no results of make proof for this commit' packaging/release "$version"
}

@test "a new root for tests is copied without the mounts that debootstrap has left" {
    [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip 'needs root and mounts'
    mkdir -p "$T/bin"
    cat >"$T/bin/debootstrap" <<'END'
#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
mkdir -p "$2/proc" "$2/etc/apt/apt.conf.d" "$2/usr/sbin"
mount -t tmpfs none "$2/proc"
touch "$2/proc/mounted"
END
    chmod +x "$T/bin/debootstrap"
    # In the test's own mount namespace, so that nothing stays mounted if it fails.
    PATH=$T/bin:$PATH run unshare -m bash -euc '. "$1/packaging/root.bash"
        MIRROR=none make_root "$2/root" stable
        [ ! -e "$2/root/proc/mounted" ]' bash "$SRC" "$T"
    equals "$status" 0
}

@test "other systems: a system that cannot be fetched is tried twice and skipped, and nothing is left behind" {
    command -v dpkg >/dev/null || skip 'no dpkg'
    printf '#!/bin/sh\necho tried >>"%s/tries"\nexit 1\n' "$T" >"$T/bin/debootstrap"
    printf '#!/bin/sh\n' >"$T/bin/sleep"
    chmod +x "$T"/bin/{debootstrap,sleep}
    mkdir "$T/tmp"
    TMPDIR=$T/tmp run "$SRC/packaging/matrix" trixie
    equals "$status" 0
    [[ $output == *'PASSED OVER: trixie: its root cannot be made here'*'0 passed, 0 failed' ]]
    # Not even in a container that may not mount.
    not unshare --mount --pid --fork true 2>/dev/null || equals "$(wc -l <"$T/tries")" 2
    equals "$(ls "$T/tmp")" ''
}

@test "make coverage and make fuzz accept a compiler of two words, as ccache's users have" {
    mkdir -p "$T/helpers"
    touch "$T/helpers/wait_text"
    # Its programs only count their calls.
    cat >"$T/bin/compiler" <<'END'
#!/bin/sh
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\ntouch "$0.gcda"\n' >"$2"
chmod +x "$2"
END
    chmod +x "$T/bin/compiler"
    CC="env $T/bin/compiler" HELPERS=$T/helpers SUITE='' run "$TESTS/coverage" "$T/build"
    [ -e "$T/build/dlock.gcda" ]
    [ -x "$T/build/fuzz/fuzz_url" ]
    CC="env $T/bin/compiler" CLANG=none run "$TESTS/fuzz/run" --seconds 1 url
    equals "$status" 0
    [[ $output == *"engine: standalone (env $T/bin/compiler)"* ]]
}

@test "make test-helpers builds the fuzzers, and again when one of them has changed" {
    [ -e "$BUILD/Makefile" ] || skip 'not built here'
    local name
    for name in $(. "$TESTS/fuzz/fuzzers.bash" && echo "$fuzzers"); do
        make -C "$BUILD" -n -o src/dlock -W "tests/fuzz/fuzz_$name.c" test-helpers >"$T/told"
        grep -qF -- "-o tests/fuzz/fuzz_$name " "$T/told"
    done
}

@test "a single object or the helpers can be built in a new clone: generated files are made first" {
    [ -e "$BUILD/Makefile" ] || skip 'not built here'
    # As in a clone: make does not know yet what a source includes.
    sed '/^include .*\.Po /d' "$BUILD/Makefile" >"$T/Makefile"
    make -C "$BUILD" -f "$T/Makefile" -n -W src/store/redis/scripts/take.lua src/store/redis/scripts.o >"$T/told"
    grep -qF embed.sh "$T/told"
}

@test "a script that includes a missing part is not built" {
    printf -- '-- include nothing.lua\nreturn {}\n' >"$T/look.lua"
    run sh "$TESTS/../src/store/redis/scripts/embed.sh" sha1sum 1 "$T/look.lua"
    [ "$status" -ne 0 ]
    [[ $output == *'nothing.lua: it cannot be read'* ]]
}
