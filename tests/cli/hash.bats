#!/usr/bin/env bats
load ../lib/common
setup() {
    common_setup
    export DLOCK_LOCK_DIR=$T/locks
    printf '0123456789abcdef\n' >"$T/secret"
    chmod 600 "$T/secret"
}

# key NAME [ARGUMENTS...]: prints the key of the lock with this name.
key() {
    local name=$1
    shift
    # shellcheck disable=SC2016
    dlock --backend=file "$@" "$name" -- sh -c 'echo "$DLOCK_HELD_KEY"'
}

# secret BYTE COUNT: makes a file with COUNT of these bytes.
secret() {
    head -c "$2" /dev/zero | tr '\0' "$1" >"$T/made"
    chmod 600 "$T/made"
}

# --- the key -----------------------------------------------------------------

@test "a hashed name is its SHA-256; the prefix is not hashed" {
    equals "$(key abc --hash=sha256)" dlock:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
    equals "$(key abc --hash=sha256 --prefix=p:s:)" p:s:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
    equals "$(key abc --hash=none)" dlock:abc
    equals "$(DLOCK_HASH=sha256 key "$(printf 'x%.0s' {1..1024})")" "dlock:$(printf 'x%.0s' {1..1024} | sha256sum | cut -d' ' -f1)"
}

# Those of its cases with text as data and a key of 16 bytes.
@test "with a secret the hash is the HMAC-SHA-256 of RFC 4231: cases 1, 6 and 7" {
    secret '\013' 20
    equals "$(key 'Hi There' --secret-file="$T/made")" dlock:b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7
    secret '\252' 131
    equals "$(key 'Test Using Larger Than Block-Size Key - Hash Key First' --secret-file="$T/made")" \
        dlock:60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54
    equals "$(key 'This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being used by the HMAC algorithm.' --secret-file="$T/made")" \
        dlock:9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2
}

# Parse::Lock: OpenSSL::HMAC.hexdigest("SHA256", secret, key), without a secret
# Digest::SHA256.hexdigest(key), each after "parse-stack:lock:v1:".
@test "the key is the one that Parse::Lock computes from the same name and secret" {
    local name=cron:nightly-rollup prefix=parse-stack:lock:v1:
    printf '%s' 'correct horse battery staple' >"$T/parse"
    chmod 600 "$T/parse"
    equals "$(key "$name" --prefix="$prefix" --hash=sha256)" "$prefix"d4ec3f939017528eeddfc9c0fa9ebb1aa8495ed5cbc726d228b18b8e85b8838b
    equals "$(key "$name" --prefix="$prefix" --secret-file="$T/parse")" \
        "$prefix"596fd281273ac83c3d87abe2ae3965399712780e1f734a63e2a1060211562f50
}

@test "one newline at the end of the secret is ignored, a second one is not; any byte is allowed" {
    local plain
    plain=$(printf 0123456789abcdef >"$T/made"; chmod 600 "$T/made"; key job --secret-file="$T/made")
    equals "$(key job --secret-file="$T/secret")" "$plain"
    printf '0123456789abcdef\n\n' >"$T/made"
    not equals "$(key job --secret-file="$T/made")" "$plain" 2>/dev/null
    printf '0123456789abcde\0rest' >"$T/made"
    key job --secret-file="$T/made" >"$T/one"
    printf '0123456789abcde\0' >"$T/made"
    not equals "$(key job --secret-file="$T/made")" "$(cat "$T/one")" 2>/dev/null
    chmod 600 "$T/made"
    equals "$(key job --secret-file=<(printf 0123456789abcdef))" "$plain"
}

# --- locks -------------------------------------------------------------------

@test "hashed names exclude each other on both backends, and are shown by name" {
    start_redis
    local where
    export DLOCK_SECRET_FILE=$T/secret
    for where in --backend=file --redis="unix://$T/redis.sock"; do
        run dlock "$where" job -- dlock "$where" -n job echo inner
        equals "$status $output" '0 inner'
        dlock "$where" --acquire --owner=me -t 60s job >/dev/null
        fails_with 75 '' dlock "$where" -n job touch "$T/ran"
        run dlock "$where" --status --json job
        [[ $output == '{"key":"job","scope":null,"full_key":"dlock:6b1db5025a8994007171b26e603ea4ed72816ef365fc75dccf1dcd734a0a0610"'* ]]
        run dlock "$where" --hash=none -n job echo 'another lock'
        equals "$output" 'another lock'
        dlock "$where" --extend --owner=me -t 90s job
        run dlock "$where" --force-release job
        [[ $status = 0 && $output == 'released job, held by '* ]]
    done
    [ ! -e "$T/ran" ]
}

@test "inside the command the lock is found by its name, without the secret" {
    run dlock --backend=file --secret-file="$T/secret" job -- sh -c 'echo "$DLOCK_NAME"; dlock --current; dlock -v --extend -t 2h; dlock --release --json'
    equals "${lines[0]}" job
    [[ ${lines[1]} == 'job (file), lease ends in '* ]]
    [[ $output == *'"key":"job"'* ]]
}

@test "--doctor shows the hashed key, and fails with 78 if the secret cannot be used" {
    export DLOCK_BACKEND=file
    run dlock --hash=sha256 job -- sh -c 'echo "$DLOCK_HELD_KEY"'
    local key=$output
    run dlock --doctor --hash=sha256 --json job
    [[ $status -eq 0 && $output == *'"name":"key","result":"ok","found":"'"$key"'"'* ]]
    run dlock --doctor --hash=sha256 --json
    [[ $status -eq 0 && $output != *'"name":"key"'* ]]
    for name in '' job; do
        # shellcheck disable=SC2086
        fails_with 78 "key .*--secret-file: $T/none: No such file" dlock --doctor --secret-file="$T/none" $name
    done
}

@test "--list shows digests, needs no secret, and refuses a pattern of names" {
    export DLOCK_BACKEND=file DLOCK_HASH=sha256
    dlock --acquire -t 60s abc >/dev/null
    run dlock --list
    [[ ${lines[1]} == 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad '* ]]
    fails_with 64 'so no pattern can match them; with --hash=none, patterns match the stored keys' dlock --list 'a*'
    run dlock --list --hash=none 'ba78*'
    [[ ${lines[1]} == 'ba7816bf'* ]]
    DLOCK_HASH='' DLOCK_SECRET_FILE=/nowhere run dlock --list
    [[ $status = 0 && ${lines[1]} == 'ba7816bf'* ]]
}

@test "a plain SHA-256 in Redis causes one hint with -v, in files none" {
    start_redis
    run dlock -v --hash=sha256 -r "unix://$T/redis.sock" job true
    equals "$(grep -c 'names can be guessed' <<<"$output")" 1
    run dlock -v --hash=sha256 --backend=file job true
    equals "$(grep -c 'names can be guessed' <<<"$output")" 0
    run dlock -v --secret-file="$T/secret" -r "unix://$T/redis.sock" job true
    equals "$(grep -c 'names can be guessed' <<<"$output")" 0
}

# --- what is refused ---------------------------------------------------------

@test "a secret that is missing, short, long, or readable by others: exit 78 naming the file and its source" {
    local dlock=(dlock --backend=file) file=$T/made
    fails_with 78 "^dlock: job: --secret-file: /nowhere: No such file" "${dlock[@]}" --secret-file=/nowhere job touch "$T/ran"
    mkdir -m 700 "$T/dir"
    fails_with 78 "--secret-file: $T/dir: neither a regular file nor a pipe" "${dlock[@]}" --secret-file="$T/dir" job touch "$T/ran"
    DLOCK_SECRET_FILE=/nowhere fails_with 78 'DLOCK_SECRET_FILE: /nowhere: No such file' "${dlock[@]}" job touch "$T/ran"
    printf '123456789012345\n' >"$file" && chmod 600 "$file"
    fails_with 78 'the secret has 15 bytes, but should have at least 16' "${dlock[@]}" --secret-file="$file" job touch "$T/ran"
    secret x 4097
    fails_with 78 'too long for a secret' "${dlock[@]}" --secret-file="$file" job touch "$T/ran"
    secret x 4096
    run "${dlock[@]}" --secret-file="$file" job echo ran
    equals "$output" ran
    chmod 604 "$T/secret"
    fails_with 78 "--secret-file: $T/secret: other users can read this secret" \
        "${dlock[@]}" --secret-file="$T/secret" job touch "$T/ran"
    local action
    for action in --acquire --status --wait-until-free --force-release '--release --owner=x'; do
        # shellcheck disable=SC2086
        fails_with 78 'other users can read this secret' "${dlock[@]}" --secret-file="$T/secret" $action job
    done
    [ ! -e "$T/ran" ]
    [ ! -e "$T/locks/dlock:job.lock" ]
}

@test "dlock's memory holds no copy of the secret while the command runs" {
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer keeps what is freed'
    # copies TEXT: prints how often the text is in the holder's memory.
    copies() {
        python3 - "$HOLDER" "$1" <<'P'
import sys
found, text = 0, sys.argv[2].encode()
memory = open(f"/proc/{sys.argv[1]}/mem", "rb", 0)
for line in open(f"/proc/{sys.argv[1]}/maps"):
    begin, end = (int(n, 16) for n in line.split()[0].split("-"))
    if line.split()[1].startswith("rw"):
        memory.seek(begin)
        found += memory.read(end - begin).count(text)
print(found)
P
    }
    hold_lock a-name-of-its-own --backend=file --secret-file="$T/secret"
    run copies a-name-of-its-own
    [[ $output != *PermissionError* ]] || skip 'only root can look there'
    [ "$output" -gt 0 ]
    run copies 0123456789abcdef
    equals "$output" 0
    end_hold
    wait "$HOLDER"
}

@test "--hash and --secret-file that contradict each other are refused, naming where each was set" {
    local dlock=(dlock --backend=file)
    fails_with 64 '--hash: hmac-sha256 needs a secret' "${dlock[@]}" --hash=hmac-sha256 job true
    DLOCK_HASH=hmac-sha256 fails_with 78 'DLOCK_HASH: hmac-sha256 needs a secret' "${dlock[@]}" job true
    fails_with 64 '--secret-file: only --hash=hmac-sha256 uses a secret' "${dlock[@]}" --hash=sha256 --secret-file="$T/secret" job true
    DLOCK_HASH=none fails_with 64 '--secret-file: only --hash=hmac-sha256 uses a secret' "${dlock[@]}" --secret-file="$T/secret" job true
    # A stronger source can do without the secret of a weaker one.
    equals "$(DLOCK_SECRET_FILE=$T/secret key job --hash=none)" dlock:job
    mkdir -p "$HOME/.config/dlock"
    printf 'secret-file = %s\n[lock open:*]\nhash = none\n' "$T/secret" >"$HOME/.config/dlock/dlock.conf"
    equals "$(key open:job)" dlock:open:job
    equals "$(key job)" dlock:6b1db5025a8994007171b26e603ea4ed72816ef365fc75dccf1dcd734a0a0610
}

@test "without OpenSSL a hashed name fails with 78 and the package to install; other names still work" {
    export LD_PRELOAD=$HELPERS/fault_no_openssl.so FAULT_NO_CRYPTO=1
    fails_with 78 'a hashed name needs OpenSSL 3, in the package libssl3' dlock --backend=file --hash=sha256 job touch "$T/ran"
    # If echo is built for another processor than dlock, the loader names the library on stderr.
    equals "$(dlock --backend=file job echo ran 2>"$T/said")" ran
    ! grep dlock: "$T/said" || false
    [ ! -e "$T/ran" ]
}

@test "a hashed name loads libcrypto but not libssl; other names load neither" {
    [ -z "${STATIC:-}" ] || skip 'a static program'
    [ -z "${SANITIZER:-}" ] || skip 'sanitizers may bring libraries of their own'
    # shellcheck disable=SC2016
    local loaded='grep -oE "lib(ssl|crypto)\.so" /proc/$PPID/maps | sort -u'
    table <<'ROWS'
0 '^$'            dlock --backend=file job -- sh -c "$loaded"
0 '^libcrypto.so$' dlock --backend=file --hash=sha256 job -- sh -c "$loaded"
ROWS
}
