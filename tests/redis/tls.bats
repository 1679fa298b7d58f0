#!/usr/bin/env bats
load ../lib/common
load ../lib/tls
setup_file() { make_certificates >"$BATS_FILE_TMPDIR/openssl.log" 2>&1 || cat "$BATS_FILE_TMPDIR/openssl.log"; }
setup() {
    common_setup
    export DLOCK_CACERT=$CERTS/ca.pem
    unset SSL_CERT_FILE SSL_CERT_DIR
}

is_free() { [ "$(redis exists dlock:job)" = 0 ]; }

is_waiting() { [ "$(redis exists '{dlock:job}:waiters')" = 1 ]; }

# The library is loaded in the process that runs the command.
loaded() { dlock "$@" job -- sh -c 'grep -oE "lib(ssl|crypto)\.so[.0-9]*" /proc/$PPID/maps | sort -u | tr "\n" " "'; }

# bats test_tags=slow
@test "a server that floods the handshake is an outage, and delays no deadline of a run, a held lease or a quorum" {
    local start status=0
    start_tls_redis
    listener flood
    start=$(now)
    fails_with 69 'TLS: the server keeps sending data' timeout -k 1 10 dlock -r "rediss://localhost:$PORT" --retry-for=0 job touch "$T/ran"
    within 0 "$start"
    [ ! -e "$T/ran" ]
    redis-server --port 0 --unixsocket "$T/two.sock" --save '' --dir "$T" >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/two.pid"
    wait_until 20 redis_answers two
    # The two other servers are a majority within milliseconds, sometimes before dlock learns that the third floods it.
    flooded() { fails_with 0 'on 2 of 3 servers; .*keeps sending data' timeout -k 1 10 \
        dlock -v -r "unix://$T/redis.sock" -r "unix://$T/two.sock" -r "rediss://localhost:$PORT" job true; }
    wait_until 20 flooded
    listener turn "$T/turn" "$CERTS/server.pem" "$CERTS/server.key" "$T/redis.sock"
    hold_lock job -r "rediss://localhost:$PORT" --ttl=3s --grace=300ms
    start=$(now)
    touch "$T/turn"
    wait_until 20 gone "$HOLDER"
    within 6000 "$start"
    wait "$HOLDER" || status=$?
    equals "$status" 124
}

# bats test_tags=slow
@test "a waiter that receives more at once than one read returns reads all of it" {
    start_tls_redis
    local i channels=() before
    redis set dlock:job another
    for i in {1..9}; do channels+=("{dlock:job}:wake:$i"); done
    redis subscribe "${channels[@]}" >"$T/others" 3>&- 4>&- &
    echo $! >"$T/others.pid"
    wait_until 10 grep -q 'wake:9' "$T/others"
    # Nine waiters before it, so that it rests.
    redis eval 'for i = 1, 9 do
        redis.call("ZADD", KEYS[1], i, i)
        redis.call("HSET", KEYS[2], i, "1 1 1 0 exclusive 0")
    end' 2 '{dlock:job}:queue' '{dlock:job}:waiters'
    dlock -r "$URL" --cacert "$CERTS/ca.pem" job true 3>&- 4>&- &
    echo $! >"$T/waiter.pid"
    wait_until 10 eval '[ "$(redis zcard "{dlock:job}:queue")" = 10 ]'
    sleep 4
    # It asks each time, and rarely after the first three. With some of these sizes, the last TLS record
    # is already off the socket when it has read enough at once, and no poll(2) shows the rest.
    local size
    for size in 1 1 1 {66..80}; do
        kill -STOP "$(cat "$T/waiter.pid")"
        before=$(questions)
        redis eval 'local channel = "{dlock:job}:wake:" .. redis.call("ZRANGE", KEYS[1], 9, 9)[1]
            for i = 1, tonumber(ARGV[1]) do redis.call("PUBLISH", channel, string.rep("x", 970 - #channel)) end
            redis.call("PUBLISH", channel, "turn")' 1 '{dlock:job}:queue' $size
        kill -CONT "$(cat "$T/waiter.pid")"
        wait_until 5 has_asked_since "$before"
    done
}

# --- what works --------------------------------------------------------------

@test "a lock over TLS 1.2 and 1.3, by the server's name or its IP address" {
    start_tls_redis
    local version host
    for version in TLSv1.2 TLSv1.3; do
        redis config set tls-protocols "$version" >/dev/null
        for host in localhost 127.0.0.1; do
            run dlock -r "rediss://$host:$PORT" job -- sh -c 'echo "$DLOCK_HELD_BACKEND $(redis-cli -s "$T/redis.sock" exists "$DLOCK_HELD_KEY")"'
            equals "$status $output" '0 redis 1'
            is_free
        done
    done
}

@test "a dlock inside finds the server and its certificate files, even by relative paths" {
    start_tls_redis
    unset DLOCK_CACERT DLOCK_REDIS
    cp "$CERTS/ca.pem" "$T/ca & co.pem"
    cd "$T"
    run dlock -r "rediss://localhost:$PORT" --cacert='ca & co.pem' job -- sh -c 'cd / && dlock --extend && dlock -v job echo nested'
    [[ $status -eq 0 && $output == *'already holds the lock'*nested ]]
}

@test "the address of an IPv6 server is verified as well" {
    start_tls_redis
    redis-cli --tls --cacert "$CERTS/ca.pem" -h ::1 -p "$PORT" ping >/dev/null 2>&1 || skip 'no IPv6 here'
    run dlock -r "rediss://[::1]:$PORT" job echo ran
    equals "$status $output" '0 ran'
    fails_with 64 '--cacert has no effect: the Redis URL does not use TLS; use rediss://' \
        dlock -r "unix://$T/redis.sock" --cacert=/nowhere job echo ran
}

@test "a TLS file with a plain URL: a warning if a password is sent in plain text, otherwise -v and --doctor say so" {
    local -x DLOCK_CACERT=/nowhere
    local url=redis://:pw@127.0.0.1:1 said='DLOCK_CACERT has no effect: the Redis URL does not use TLS; use rediss://'
    fails_with 69 "^dlock: job: $said; the password is sent over the network in plain text\$" dlock -r "$url" --retry-for=0 job true
    REDISCLI_AUTH=pw fails_with 69 "$said; the password" dlock -r redis://127.0.0.1:1 --retry-for=0 job true
    run dlock --doctor -r "$url" --retry-for=0
    [[ $output == *"$said; the password"*'use rediss://, or remove the setting'* ]]
    start_redis
    fails_with 0 '^$' dlock -r "unix://$T/redis.sock" job true
    fails_with 0 "$said\$" dlock -v -r "unix://$T/redis.sock" job true
    run dlock --doctor -r "unix://$T/redis.sock"
    [[ $output == *"$said"* ]]
}

@test "without --cacert the host's own certificate store is used" {
    start_tls_redis
    unset DLOCK_CACERT
    fails_with 77 'unknown issuer .*--cacert' dlock -r "$URL" job touch "$T/ran"
    SSL_CERT_FILE=$CERTS/ca.pem run dlock -r "$URL" job echo ran
    equals "$status $output" '0 ran'
    [ ! -e "$T/ran" ]
}

@test "all actions work over TLS, including --attach and a --list of more than a megabyte" {
    start_tls_redis
    export DLOCK_REDIS=$URL
    dlock --acquire --owner=me -t 60s job >/dev/null
    dlock --extend --owner=me -t 90s job
    dlock --status job >/dev/null
    dlock --release --owner=me job
    run sh -c 'dlock --attach job || exit; redis-cli -s "$T/redis.sock" exists dlock:job'
    equals "$output" 1
    wait_until 5 is_free
    redis eval 'for i = 1, 1100 do redis.call("SET", "dlock:" .. i .. string.rep("x", 1000), "token", "PX", 60000) end' 0
    dlock --list >"$T/list"
    equals "$(wc -l <"$T/list")" 1101
    [ "$(wc -c <"$T/list")" -gt 1048576 ]
}

questions() { redis info commandstats | sed -nE 's/^cmdstat_evalsha:calls=([0-9]+),.*/\1/p'; }
has_asked_since() { [ "$(questions)" -gt "$1" ]; }

@test "over TLS a waiter is called at once, and a holder notices at once that its key has changed" {
    start_tls_redis
    local start
    hold_lock job -r "$URL"
    dlock -r "$URL" job touch "$T/second" 3>&- 4>&- &
    echo $! >"$T/second.pid"
    wait_until 10 eval 'redis client list | grep -q "name=dlock .* sub=2"'
    start=$(now)
    end_hold
    wait_until 10 test -e "$T/second"
    within 0 "$start"
    wait "$HOLDER"
    rm -f "$T/held" "$T/held.end"
    hold_lock job -r "$URL"
    wait_until 10 eval 'redis client list | grep -q "name=dlock .* sub=1"'
    start=$(now)
    redis del dlock:job >/dev/null
    local status=0
    wait "$HOLDER" || status=$?
    within 0 "$start"
    equals "$status" 124
}

@test "inside the command, a dlock whose TLS settings come from the environment finds the outer lock" {
    start_tls_redis
    unset DLOCK_CACERT
    redis config set tls-auth-clients yes >/dev/null
    cd "$CERTS" || return
    export DLOCK_REDIS=$URL DLOCK_CACERT=ca.pem DLOCK_CLIENT_CERT=server.pem DLOCK_CLIENT_KEY=server.key
    run dlock job -- sh -c 'echo "$DLOCK_HELD_KEY"; dlock --extend && dlock job -- dlock other -- echo inner'
    equals "$status $output" $'0 dlock:job\ninner'
}

@test "a notification in the same TLS record as a reply is not overlooked" {
    start_redis
    hold_lock job -r "unix://$T/redis.sock" # so that the scripts are known
    wait_until 10 eval 'redis client list | grep -q "name=dlock .* sub=1"'
    end_hold
    wait "$HOLDER"
    fake_redis behind "$T/redis.sock" DEL dlock:job
    listener relay "$CERTS/server.pem" "$CERTS/server.key" "$T/fake.sock"
    local start=$(now)
    run dlock -r "rediss://localhost:$PORT" job sleep 60
    equals "$status" 124
    within 0 "$start"
}

@test "the server restarts without its data during a run: dlock reconnects and reports the lost lock" {
    start_tls_redis
    hold_lock job -r "$URL" -t 10
    stop_redis
    rm -f "$T/redis.sock"
    redis-server --port 0 --tls-port "$PORT" --unixsocket "$T/redis.sock" --save '' --dir "$T" --tls-auth-clients no \
        --tls-cert-file "$CERTS/server.pem" --tls-key-file "$CERTS/server.key" --tls-ca-cert-file "$CERTS/ca.pem" \
        >/dev/null 2>&1 3>&- 4>&- &
    echo $! >"$T/redis.pid"
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    grep -q 'the lock is lost: .*the key dlock:job is gone' "$T/held.err"
}

@test "a connection that breaks does not end dlock by SIGPIPE: the lock is released over a new one" {
    start_tls_redis
    local under=(env --default-signal=PIPE LD_PRELOAD="$HELPERS/fault_broken_pipe.so" FAULT_AT="$T/break")
    "${under[@]}" true 2>/dev/null || skip 'env does not know --default-signal'
    run "${under[@]}" dlock -r "$URL" job -- env -u LD_PRELOAD touch "$T/break" "$T/ran"
    equals "$status$output" 0
    [ -e "$T/ran" ]
    [ ! -e "$T/break" ]
    is_free
    # SIGPIPE is not blocked here.
    touch "$T/break"
    run "${under[@]}" dlock -r "$URL" --status job
    [[ $status = 1 && $output == 'job: free'* ]]
    [ ! -e "$T/break" ]
}

# --- certificates ------------------------------------------------------------

@test "a certificate that is expired, not yet valid, or for another name: exit 77 at once, nothing is run" {
    start_tls_redis
    make_certificate other ca DNS:other.example
    make_certificate expired ca DNS:localhost 0 # it ends as it starts: openssl 3.5 does not accept -1
    show_certificate other
    local start=$(now)
    fails_with 77 "$URL/0: the server certificate is not for the host name localhost; the command was not run" \
        dlock -r "$URL" job touch "$T/ran"
    fails_with 77 'is not for the host name 127.0.0.1;' dlock -r "rediss://127.0.0.1:$PORT" job touch "$T/ran"
    within 5000 "$start" # an outage is retried for ten seconds
    show_certificate expired
    fails_with 77 'the server certificate or an issuer certificate has expired' dlock -r "$URL" job touch "$T/ran"
    run dlock --json -r "$URL" job touch "$T/ran"
    [[ $status = 77 && $output == *'"code":"NOT_PERMITTED"'* ]]
    make_key "$CERTS/early.key"
    if faketime -f +2d openssl req -x509 -new -key "$CERTS/early.key" -subj /CN=early -addext subjectAltName=DNS:localhost \
        -out "$CERTS/early.pem" 2>/dev/null; then
        show_certificate early
        DLOCK_CACERT=$CERTS/early.pem fails_with 77 'is not valid yet' dlock -r "$URL" job touch "$T/ran"
    fi
    [ ! -e "$T/ran" ]
}

@test "a certificate matches whole names only: a wildcard matches one label, an invalid name nothing" {
    start_tls_redis
    make_certificate wild ca 'DNS:*.locks.example,DNS:other.example,DNS:a*.part.example'
    show_certificate wild
    local host
    for host in a.locks.example other.example other.example.; do
        LD_PRELOAD=$HELPERS/fault_two_addresses.so run dlock -r "rediss://$host:$PORT" job echo ran
        equals "$status $output" '0 ran'
    done
    for host in a.b.locks.example locks.example abc.part.example 127.1; do
        LD_PRELOAD=$HELPERS/fault_two_addresses.so fails_with 77 "is not for the host name $host" \
            dlock -r "rediss://$host:$PORT" job touch "$T/ran"
    done
    for host in .example .locks.example '*.locks.example' %x other.example%x .; do
        LD_PRELOAD=$HELPERS/fault_two_addresses.so fails_with 77 'is not a host name that a certificate can contain' \
            dlock -r "rediss://$host:$PORT" job touch "$T/ran"
    done
    [ ! -e "$T/ran" ]
}

@test "a server without a certificate is refused, even if the host's policy allows such ciphers, and is sent nothing" {
    printf '%s\n' 'openssl_conf = a' '[a]' 'ssl_conf = b' '[b]' 'system_default = c' '[c]' 'CipherString = ALL:@SECLEVEL=0' >"$T/openssl.cnf"
    listener anonymous
    OPENSSL_CONF=$T/openssl.cnf fails_with 77 'the server sent no certificate' dlock -r "rediss://:secret@127.0.0.1:$PORT" job touch "$T/ran"
    wait_until 5 grep -q "^A.*b''" "$T/listener.log"
    [ ! -e "$T/ran" ]
}

@test "a certificate that is self-signed or of an unknown issuer: exit 77 at once" {
    start_tls_redis
    make_authority stranger
    local start=$(now)
    fails_with 77 'is from an unknown issuer .*; use --cacert=FILE to name the issuers to trust' \
        dlock -r "$URL" --cacert="$CERTS/stranger.pem" job touch "$T/ran"
    show_certificate stranger
    fails_with 77 'is from an unknown issuer' dlock -r "$URL" job touch "$T/ran"
    # A certificate that is itself trusted must still be for this host.
    fails_with 77 'is not for the host name' dlock -r "$URL" --cacert="$CERTS/stranger.pem" job touch "$T/ran"
    within 5000 "$start" # an outage is retried for ten seconds
    [ ! -e "$T/ran" ]
}

@test "one issuer of the chain in --cacert is enough" {
    start_tls_redis
    sign middle ca basicConstraints=critical,CA:true 7
    make_certificate leaf middle DNS:localhost
    show_certificate leaf
    fails_with 77 'is from an unknown issuer' dlock -r "$URL" job touch "$T/ran"
    run dlock -r "$URL" --cacert="$CERTS/middle.pem" job echo ran
    equals "$status $output" '0 ran'
    cat "$CERTS/middle.pem" >>"$CERTS/leaf.pem"
    show_certificate leaf
    run dlock -r "$URL" job echo ran
    equals "$status $output" '0 ran'
    [ ! -e "$T/ran" ]
}

@test "a server that requires a client certificate: exit 77 that says so without one, a lock with one" {
    start_tls_redis --tls-auth-clients yes
    local version
    make_authority stranger
    for version in TLSv1.2 TLSv1.3; do
        redis config set tls-protocols "$version" >/dev/null
        fails_with 77 'the server requires a client certificate \(--client-cert and --client-key\)' dlock -r "$URL" job touch "$T/ran"
        fails_with 77 'the server rejected the client certificate \(--client-cert\)' \
            dlock -r "$URL" --client-cert="$CERTS/stranger.pem" --client-key="$CERTS/stranger.key" job touch "$T/ran"
        run dlock -r "$URL" --client-cert="$CERTS/server.pem" --client-key="$CERTS/server.key" job echo ran
        equals "$version $status $output" "$version 0 ran"
        run dlock -r "$URL" --client-cert="$CERTS/both.pem" job echo ran
        equals "$version $status $output" "$version 0 ran"
    done
    [ ! -e "$T/ran" ]
}

@test "another process of the same user cannot read the memory of a dlock that has a private key" {
    start_tls_redis
    local user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    let_others_into "$CERTS" || skip 'needs root, to become another user, who reaches the program'
    chmod 644 "$CERTS/ca.pem" && install -m 600 -o 65534 "$CERTS/both.pem" "$CERTS/theirs.pem"
    run "${user[@]}" "$DLOCK" -r "$URL" --client-cert="$CERTS/theirs.pem" job -- sh -c 'head -c 1 /proc/$PPID/environ && echo read'
    [[ $output == *'Permission denied'* && $output != *read ]]
}

@test "a certificate or key file that cannot be used: exit 78 or 77, naming the file and its source" {
    local key=$CERTS/server.key cert=$CERTS/server.pem url=rediss://localhost:1
    touch "$T/empty"
    fails_with 78 "^dlock: job: --cacert: cannot read /nowhere: No such file" dlock -r "$url" --cacert=/nowhere job true
    fails_with 78 "--cacert: $T/empty: the file has no certificate in PEM" dlock -r "$url" --cacert="$T/empty" job true
    fails_with 78 "--cacert: $T: this is a directory" dlock -r "$url" --cacert="$T" job true
    # With a writer, and without one, which dlock does not wait for.
    mkfifo -m 600 "$T/pipe"
    fails_with 78 '--cacert: .*: this is a pipe or a device' dlock -r "$url" --cacert=<(cat "$cert") job true
    fails_with 78 "--cacert: $T/pipe: this is a pipe" timeout 10 dlock -r "$url" --cacert="$T/pipe" job true
    fails_with 78 "--client-cert: $T/pipe: this is a pipe" timeout 10 dlock -r "$url" --client-cert="$T/pipe" --client-key="$key" job true
    fails_with 78 "--client-key: $T/pipe: this is a pipe" timeout 10 dlock -r "$url" --client-cert="$cert" --client-key="$T/pipe" job true
    DLOCK_CACERT=/nowhere fails_with 78 'DLOCK_CACERT: cannot read /nowhere:' dlock -r "$url" job true
    mkdir -p "$HOME/.config/dlock"
    printf 'client-cert = /nowhere\n' >"$HOME/.config/dlock/dlock.conf"
    fails_with 78 'dlock.conf:1: client-cert: cannot read /nowhere:' dlock -r "$url" job true
    printf 'client-key = %s\n' "$key" >"$HOME/.config/dlock/dlock.conf"
    fails_with 78 'dlock.conf:1: client-key: the key needs its certificate' dlock -r "$url" job true
    rm "$HOME/.config/dlock/dlock.conf"
    fails_with 64 '--client-key has no effect: the key needs its certificate; add --client-cert=FILE' dlock -r "$url" --client-key="$key" job true
    fails_with 78 "--client-cert: $T/empty: the file has no usable certificate" dlock -r "$url" --client-cert="$T/empty" job true
    fails_with 78 "--client-cert: $cert: .*other users can read this private key|--client-cert: $cert: the file has no private key" dlock -r "$url" --client-cert="$cert" job true
    fails_with 78 "--client-key: $CERTS/ca.key: this key does not match the certificate" \
        dlock -r "$url" --client-cert="$cert" --client-key="$CERTS/ca.key" job true
    cp "$key" "$T/open.key" && chmod 644 "$T/open.key"
    fails_with 78 "--client-key: $T/open.key: other users can read this private key" \
        dlock -r "$url" --client-cert="$cert" --client-key="$T/open.key" job true
    openssl ec -in "$key" -aes128 -passout pass:secret -out "$T/locked.key" 2>/dev/null
    fails_with 78 "--client-key: $T/locked.key: .*needs a passphrase" dlock -r "$url" --client-cert="$cert" --client-key="$T/locked.key" job true </dev/null
    # A file that may not be read is refused, as a password file is.
    if let_others_into "$CERTS"; then
        local user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
        chmod 644 "$cert"
        DLOCK_CACERT=$cert HOME=/ fails_with 77 "cannot read $key: Permission denied" \
            "${user[@]}" "$DLOCK" -r "$url" --client-cert="$cert" --client-key="$key" job true
    fi
    # Without TLS, the files are for other runs.
    start_redis
    DLOCK_CACERT=/nowhere run dlock -r "unix://$T/redis.sock" job echo ran
    equals "$status $output" '0 ran'
}

# --- what else may go wrong --------------------------------------------------

@test "TLS to a plain server, or plain text to a TLS server: exit 69 with what may be wrong" {
    start_tls_redis
    fails_with 69 'use rediss://; tried [2-9]' dlock -r "redis://localhost:$PORT" --retry-for=300ms job touch "$T/ran"
    local port=$(free_port)
    redis config set port "$port" >/dev/null
    fails_with 69 'use redis://' dlock -r "rediss://localhost:$port" --connect-timeout=500ms --retry-for=0 job touch "$T/ran"
    listener close
    fails_with 69 'the server closed the connection during the TLS handshake; if the server does not use TLS, use redis://' \
        dlock -r "rediss://localhost:$PORT" --retry-for=0 job touch "$T/ran"
    fails_with 69 'before sending anything; .*; if the server uses TLS, use rediss://' \
        dlock -r "redis://127.0.0.1:$PORT" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

@test "a server that has answered before and now closes the connection: the message does not suggest TLS" {
    start_redis
    listener proxy "$T/redis.sock"
    dlock --redis="unix://$T/redis.sock" --acquire -t 60s --owner=other job >/dev/null
    dlock -v -r "redis://127.0.0.1:$PORT" -w 20s --retry-for=300ms job touch "$T/ran" 2>"$T/said" 3>&- 4>&- &
    local waiter=$! status=0
    wait_until 10 is_waiting
    kill -KILL "$(cat "$T/redis.pid")"
    wait "$waiter" || status=$?
    equals "$status" 69
    grep -qE '(the server closed the connection|reset by peer|Broken pipe); tried [2-9]' "$T/said"
    ! grep -q 'that is meant' "$T/said"
}

@test "a server that does not answer the handshake: exit 69 within the connect timeout; a signal ends dlock at once" {
    listener mute
    local start=$(now)
    fails_with 69 'the TLS handshake was not answered in time' \
        dlock -r "rediss://127.0.0.1:$PORT" --connect-timeout=300ms --retry-for=0 job touch "$T/ran"
    within 0 "$start"
    start=$(now)
    run timeout --preserve-status -s INT 0.3 dlock -r "rediss://127.0.0.1:$PORT" --connect-timeout=60 job touch "$T/ran"
    equals "$status" 130
    within 2000 "$start"
    [ ! -e "$T/ran" ]
}

@test "a server that offers only TLS 1.1: exit 69 that says so" {
    listener old "$CERTS/server.pem" "$CERTS/server.key"
    fails_with 69 'dlock needs at least 1.2' dlock -r "rediss://localhost:$PORT" --retry-for=0 job touch "$T/ran"
    [ ! -e "$T/ran" ]
}

# --- the library -------------------------------------------------------------

@test "OpenSSL is loaded only for TLS, and the program file declares that it may be" {
    [ -z "${STATIC:-}" ] || skip 'a static program'
    start_tls_redis
    [[ $(loaded -r "$URL") == *'libcrypto.so.3 '*'libssl.so.3 ' ]]
    # Sanitizers may bring their own library.
    [ -n "${SANITIZER:-}" ] || equals "$(loaded -r "unix://$T/redis.sock")$(loaded --backend=file --lock-dir="$T/locks")" ''
    command -v readelf >/dev/null || skip 'no readelf'
    not grep -qE 'NEEDED.*lib(ssl|crypto)' <<<"$(readelf -d "$DLOCK")"
    readelf -nW "$DLOCK" | grep -A1 FDO | grep -qE '0x407c0c0a|FDO_DLOPEN_METADATA' # binutils' name for it
    readelf -p .note.dlopen "$DLOCK" | grep -o '\[{.*}\]' | python3 -c '
import json, sys
for note in json.load(sys.stdin):
    print(note["priority"], *note["soname"])' >"$T/notes"
    equals "$(sort "$T/notes")" $'recommended libcrypto.so.3\nrecommended libssl.so.3'
}

@test "a host without OpenSSL: exit 78 naming the package to install; locks without TLS still work" {
    local variable
    for variable in FAULT_NO_CRYPTO FAULT_NO_SSL; do
        fails_with 78 'TLS needs OpenSSL 3, in the package libssl3 \(Debian.*openssl-libs.*: /nowhere' \
            env LD_PRELOAD="$HELPERS/fault_no_openssl.so" "$variable=1" dlock -r rediss://localhost:1 job touch "$T/ran"
    done
    start_redis
    run env LD_PRELOAD="$HELPERS/fault_no_openssl.so" FAULT_NO_CRYPTO=1 dlock -r "unix://$T/redis.sock" job echo ran
    equals "$status $output" '0 ran'
    [ ! -e "$T/ran" ]
}

@test "--doctor shows the negotiated TLS version and cipher, and warns of a certificate that expires soon" {
    start_tls_redis
    run dlock --doctor -r "$URL" --cacert="$CERTS/ca.pem"
    equals "$status" 0
    [[ $output =~ 'ok    tls '+TLSv1\.[23], ]]
    [[ $output =~ 'warn  certificate '+'/CN=server, by /CN=ca (2 certificates); the first expires in '[0-9]' days' ]]
    make_authority stranger
    fails_with 77 'fail  connect +the server certificate is from an unknown issuer' dlock --doctor -r "$URL" --cacert="$CERTS/stranger.pem"
    [[ $output != *firewall* ]]
}

# All dlock connections to the server are TLS; all of them end, and are made again.
# They are known by their address, because a dlock whose greeting was cut off gives its next connection no name.
has_ours() { redis client list | grep -q ' addr=[^/ ]* .* sub=[12] '; }
cut_off() {
    redis client kill type pubsub
    redis client kill type normal
    wait_until 10 not has_ours
} >/dev/null

@test "if a certificate is refused during a lease, renewed --cacert, --client-cert and --client-key are read again" {
    local status=0
    make_authority next 2>/dev/null
    make_certificate mine ca DNS:mine
    make_certificate next-server next DNS:localhost,IP:127.0.0.1
    make_certificate next-mine next DNS:mine
    for file in ca.pem mine.pem mine.key; do cp "$CERTS/$file" "$T/$file"; done
    start_tls_redis --tls-auth-clients yes
    hold_lock job -r "$URL" --ttl=1h --cacert="$T/ca.pem" --client-cert="$T/mine.pem" --client-key="$T/mine.key"
    wait_until 10 has_ours
    # The issuer of the server's certificate is renewed.
    show_certificate next-server
    cut_off
    cp "$CERTS/next.pem" "$T/ca.pem"
    wait_until 20 has_ours
    # The issuer of the client's certificate is renewed.
    redis config set tls-ca-cert-file "$CERTS/next.pem"
    cut_off
    cp "$CERTS/next-mine.pem" "$T/mine.pem"
    cp "$CERTS/next-mine.key" "$T/mine.key"
    wait_until 20 has_ours
    end_hold
    wait "$HOLDER" || status=$?
    equals "$status" 0
    is_free
}

# --- several servers ---------------------------------------------------------

server_options() { echo --bind 127.0.0.1 --tls-cert-file "$CERTS/server.pem" --tls-key-file "$CERTS/server.key" \
    --tls-ca-cert-file "$CERTS/ca.pem" --tls-auth-clients no; }

@test "Sentinels and the master that they name by address: TLS and a login to both, even for waiting and watching" {
    start_tls_redis --requirepass secret
    local master=$PORT sentinel start status=0
    export REDISCLI_AUTH=secret
    sentinel=$(free_port)
    printf '%s\n' "dir $T" 'requirepass open' 'tls-replication yes' "sentinel monitor prime 127.0.0.1 $master 1" \
        'sentinel auth-pass prime secret' >"$T/sentinel.conf"
    # shellcheck disable=SC2046
    redis-server "$T/sentinel.conf" --sentinel --port 0 --tls-port "$sentinel" $(server_options) >"$T/sentinel.log" 2>&1 3>&- 4>&- &
    echo $! >"$T/sentinel.pid"
    printf 'open\n' >"$T/password" && chmod 600 "$T/password"
    export DLOCK_REDIS=rediss+sentinel://:secret@127.0.0.1:$sentinel/prime DLOCK_SENTINEL_PASSWORD_FILE=$T/password
    hold_lock job --grace=100ms
    dlock job echo next >"$T/out" 2>&1 3>&- 4>&- &
    local waiter=$!
    # Both subscribe to the Sentinel, and one of them to the master, as it is in the queue.
    wait_until 10 eval '[ "$(redis zcard "{dlock:job}:queue")" = 1 ]'
    wait_until 10 sentinel_is_heard "$sentinel" 2
    redis del dlock:job && start=$(now)
    wait "$HOLDER" || status=$?
    equals "$status" 124
    wait "$waiter"
    within 0 "$start"
    equals "$(cat "$T/out")" next
    make_authority stranger 2>/dev/null
    DLOCK_CACERT=$CERTS/stranger.pem fails_with 77 "Sentinel 127.0.0.1:$sentinel: .*certificate" dlock job touch "$T/ran"
    [ ! -e "$T/ran" ]
}
sentinel_is_heard() { [ "$(redis-cli --tls --cacert "$CERTS/ca.pem" -p "$1" -a open --no-auth-warning client list |
    grep -c 'name=dlock .* sub=1 ')" = "$2" ]; }

node() { redis-cli -s "$T/node$1.sock" "${@:2}"; }
node_has() { node "$1" "${@:3}" | grep -q "$2"; }

@test "the nodes of a Cluster: TLS and the same login to each node that a key leads to" {
    local number ports=(0 "$(free_port)" "$(free_port)") bus=(0 "$(free_port)" "$(free_port)") name
    for number in 1 2; do
        mkdir "$T/$number"
        # shellcheck disable=SC2046
        start_redis "node$number" --dir "$T/$number" --tls-port "${ports[number]}" --cluster-port "${bus[number]}" \
            --tls-cluster yes --cluster-enabled yes --cluster-node-timeout 2000 $(server_options)
        node $number acl setuser locker on '>secret' '~*' '&*' +@all
    done
    node 1 cluster addslotsrange 0 8191
    node 2 cluster addslotsrange 8192 16383
    node 2 cluster set-config-epoch 2
    node 1 cluster meet 127.0.0.1 "${ports[2]}" "${bus[2]}"
    for number in 1 2; do
        wait_until 20 node_has $number cluster_slots_ok:16384 cluster info
        wait_until 20 node_has $number cluster_state:ok cluster info
    done
    for name in a b c d; do # two at each node
        run dlock -r "rediss+cluster://locker:secret@localhost:${ports[1]}" $name echo ran
        equals "$status $output" '0 ran'
    done
    equals "$(($(node 1 dbsize) * $(node 2 dbsize) > 0))" 1
    dlock --acquire -r "rediss+cluster://locker:secret@localhost:${ports[1]}" "$name" >/dev/null
    equals "$(dlock --list -r "rediss+cluster://locker:secret@localhost:${ports[2]}" | wc -l)" 2
}

@test "a static program runs in an empty root with files, Redis and TLS; only TLS needs CA certificates" {
    [ "${STATIC:-}" = yes ] || skip 'the program is not static'
    local enter=(chroot "$T/root")
    [ "$(id -u)" -eq 0 ] || enter=(unshare --map-root-user "${enter[@]}")
    mkdir -p "$T"/root/{tmp,etc/ssl/certs,run}
    cp "$DLOCK" "$T/root/dlock"
    "${enter[@]}" /dlock --help >/dev/null || skip 'no chroot here'
    alone() { env -u DLOCK_CACERT "${enter[@]}" /dlock "$@"; }
    start_tls_redis
    echo '127.0.0.1 localhost' >"$T/root/etc/hosts"
    ln "$T/redis.sock" "$T/root/redis.sock" # the same socket under another name
    equals "$(alone --backend=file hello -- /dlock --version)" "$("$DLOCK" --version)"
    equals "$(alone -r unix:///redis.sock hello -- /dlock --version)" "$("$DLOCK" --version)"
    fails_with 77 'the server certificate is from an unknown issuer' alone -r "$URL" --retry-for=0 hello -- /dlock --version
    cp "$CERTS/ca.pem" "$T/root/etc/ssl/certs/ca-certificates.crt"
    equals "$(alone -r "$URL" hello -- /dlock --version)" "$("$DLOCK" --version)"
    mv "$T/root/etc/ssl/certs/ca-certificates.crt" "$T/root/own.pem"
    equals "$(SSL_CERT_FILE=/own.pem alone -r "$URL" hello -- /dlock --version)" "$("$DLOCK" --version)"
}
