# Throw-away Debians, and commands in them: for packaging/fresh and packaging/matrix.
# shellcheck shell=bash
# shellcheck disable=SC2016    # what is in single quotes is for the shell of the root

# throw_away FOLDER: at the end, however it comes, and kills what still runs in a root of it.
# unshare(1) ignores SIGTERM while it waits, so that its end alone takes the rest along.
throw_away() {
    thrown_away=$1
    trap end_all EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}
end_all() {
    local pids
    pids=$(jobs -p)
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    wait
    rm -rf --one-file-system "$thrown_away"
}

# The archive that this machine's own packages come from.
archive() {
    sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb (\[[^]]*\] )?([a-z]+:[^ ]+) .*/\2/p' \
        /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | grep -m 1 -v security
}

# emulate ARCHITECTURE: what dlock is built for from now on. If this processor does not run
# that, $emulated is its name for qemu-user, which is installed in the root, and for GNU.
emulated=
emulate() {
    emulated=
    case $(dpkg --print-architecture):$1 in "$1:$1" | amd64:i386) ;; *:arm64) emulated=aarch64 ;; *) emulated=$1 ;; esac
}

# make_root FOLDER SUITE [ARCHITECTURE]: MIRROR is another archive than this machine's.
# In a mount namespace of its own: what debootstrap cannot unmount because it is busy
# would be copied with the root (/proc fills the disk), or removed with it.
make_root() {
    local mirror=${MIRROR:-$(archive)}
    unshare --mount --pid --fork --kill-child --mount-proc -- timeout 500 debootstrap --variant=minbase --include=ca-certificates ${3:+"--arch=$3"} "$2" "$1" ${mirror:+"$mirror"} </dev/null &
    wait $! || return
    # In a container debootstrap makes /proc a link.
    [ ! -L "$1/proc" ] || { rm "$1/proc" && mkdir "$1/proc"; }
    # A link there would lead to a file of this machine.
    cp -L --remove-destination /etc/resolv.conf "$1/etc/resolv.conf"
    [ -e "$1/etc/hosts" ] || printf '127.0.0.1 localhost\n::1 localhost\n' >"$1/etc/hosts"
    # The archive may be an old copy, and may hang.
    printf 'Acquire::%s;\n' 'Retries "3"' 'http::Timeout "30"' 'Check-Valid-Until "false"' >"$1/etc/apt/apt.conf.d/80retries"
    mkdir -p "$1/dev/net" && mknod "$1/dev/net/tun" c 10 200
    # Packages that are installed for the tests start no server.
    printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
    chmod +x "$1/usr/sbin/policy-rc.d"
}

# in_root FOLDER COMMAND [VARIABLE=VALUE...]: by a shell, in /srv/dlock if there is one.
# The tree becomes the root by pivot_root(2), or, with ENTER=chroot, by chroot(2): a process
# in a chroot can make no user namespace, and /proc/self/mountinfo has no row for its root.
# RUN_AS is a user of the tree other than root. Each command has a mount namespace and a pid
# namespace of its own: when it has ended, nothing is mounted any more, and nothing runs.
# With CACHE, the packages that are fetched are kept in that folder.
# For another processor's programs it has a user namespace too, since binfmt_misc (Linux 6.7)
# is told of qemu in it alone: with C, or no program would be set-user-ID. Its ids are those of
# outside; only then it has all rights in it.
in_root() {
    EMULATED=$emulated ENTER=${ENTER-} RUN_AS=${RUN_AS-} unshare ${emulated:+--user} --mount --pid --fork --kill-child -- sh -c '
        until read -r _ </proc/self/uid_map; do sleep 0.1; done
        exec bash -euc "$@"' sh '
        root=$1 command=$2
        shift 2
        mount --make-rprivate /
        # Without this bind mount, the root of a chroot is not the root of a mount.
        [ "${ENTER:-pivot_root}" = chroot ] || mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        [ -z "$EMULATED" ] || mount -t binfmt_misc binfmt_misc "$root/proc/sys/fs/binfmt_misc"
        mount --rbind /sys "$root/sys"
        mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
        mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
        [ -z "${CACHE:-}" ] || mount --bind "$CACHE" "$root/var/cache/apt/archives"
        cd "$root"
        if [ "${ENTER:-pivot_root}" = pivot_root ]; then
            pivot_root . .
            umount -l .
            cd /
            root=/
        fi
        [ -z "$EMULATED" ] || sed "s/\$/C/" "/usr/lib/binfmt.d/qemu-$EMULATED.conf" >/proc/sys/fs/binfmt_misc/register
        for variable in http_proxy https_proxy JOBS AGAIN TEST_SLACK; do
            [ -z "${!variable:-}" ] || set -- "$variable=${!variable}" "$@"
        done
        [ ! -d "$root/srv/dlock" ] || command="cd /srv/dlock; $command"
        home=/root
        [ -z "${RUN_AS:-}" ] || home=/home/$RUN_AS
        status=0
        env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" TERM=dumb LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive "$@" \
            chroot ${RUN_AS:+--userspec="$RUN_AS:$RUN_AS" --groups="$RUN_AS"} "$root" sh -euc "$command" || status=$?
        exit $status' bash "$@" </dev/null &
    if [ -n "$emulated" ]; then
        until [ ! -d "/proc/$!" ] || { echo 0 0 4294967295 >"/proc/$!/gid_map" && echo 0 0 4294967295 >"/proc/$!/uid_map"; } 2>/dev/null; do
            sleep 0.1
        done
    fi
    wait $! # a trap waits for no command, only for this
}

# checkout SOURCE FOLDER: a clone of the last commit, as a user has it, in this root.
checkout() {
    git clone -q "$1" "$2/srv/dlock"
    git -C "$2/srv/dlock" remote remove origin
}

# failures FILE: what failed of the tests with this output, and what is said of it; or the end
# of it, if nothing did.
failures() {
    awk '/^(not )?ok / { bad = /^not/ } /^(make|[0-9]+ passed)/ { bad = 0 } bad' "$1" | grep . || tail -n 80 "$1"
}

# The README's two command lines, as they stand there.
first_line() { grep -m 1 -E '^    \./bootstrap ' "$1/README.md" | sed 's/^ *//'; }
second_line() { grep -m 1 -E '^    \./bootstrap --tests' "$1/README.md" | sed 's/^ *//'; }
