#!/usr/bin/env bats
# Where the password comes from, and that nobody else can see it.
load ../lib/common
setup() {
    common_setup
    URL=unix://$T/redis.sock
    unset CREDENTIALS_DIRECTORY
    PASSWORD=s3cret-word
}

# Starts a server that requires this password of its default user.
start_locked() {
    start_redis redis --requirepass "${1:-$PASSWORD}"
    REDISCLI_AUTH=${1:-$PASSWORD} redis acl setuser bob on ">${1:-$PASSWORD}" '~*' '&*' +@all >/dev/null
}

# password_file NAME TEXT: makes a file that nobody else can read; TEXT has printf's escapes.
password_file() {
    # shellcheck disable=SC2059
    printf "$2" >"$T/$1"
    chmod 600 "$T/$1"
}

# takes [DLOCK ARGUMENTS...]: the lock can be acquired.
takes() {
    run dlock "$@" job echo in
    equals "$status $output" '0 in'
}

@test "the password comes from the URL, a file, the service's credential or REDISCLI_AUTH, in this order" {
    start_locked
    password_file good "$PASSWORD"
    password_file dlock.password "$PASSWORD"
    mkdir "$T/none"
    takes -r "unix://:$PASSWORD@$T/redis.sock"
    takes -r "$URL" --password-file="$T/good"
    CREDENTIALS_DIRECTORY=$T takes -r "$URL"
    REDISCLI_AUTH=$PASSWORD takes -r "$URL"
    # A wrong password in a weaker source does not matter, in a stronger one it does.
    password_file wrong wrong
    DLOCK_PASSWORD_FILE=$T/wrong REDISCLI_AUTH=wrong takes -r "unix://:$PASSWORD@$T/redis.sock"
    CREDENTIALS_DIRECTORY=$T DLOCK_PASSWORD_FILE=$T/nowhere takes -r "unix://bob:$PASSWORD@$T/redis.sock"
    CREDENTIALS_DIRECTORY=$T fails_with 77 "with the password from $T/wrong: .*WRONGPASS" dlock -r "$URL" --password-file="$T/wrong" job true
    REDISCLI_AUTH=wrong CREDENTIALS_DIRECTORY=$T takes -r "$URL"
    REDISCLI_AUTH=$PASSWORD CREDENTIALS_DIRECTORY=$T/none takes -r "$URL"
    password_file dlock.password wrong
    REDISCLI_AUTH=$PASSWORD CREDENTIALS_DIRECTORY=$T fails_with 77 'from the credential dlock.password: .*WRONGPASS' dlock -r "$URL" job true
    REDISCLI_AUTH=wrong fails_with 77 'from REDISCLI_AUTH: .*WRONGPASS' dlock -r "$URL" job true
    REDISCLI_AUTH='' fails_with 77 'NOAUTH' dlock -r "$URL" job true
}

@test "a URL with a user but no password uses the password of another source, or fails if there is none" {
    start_locked
    password_file good "$PASSWORD"
    takes -r "unix://bob@$T/redis.sock" --password-file="$T/good"
    REDISCLI_AUTH=$PASSWORD takes -r "unix://bob@$T/redis.sock"
    equals "$(REDISCLI_AUTH=$PASSWORD dlock -r "unix://bob@$T/redis.sock" job -- redis-cli -s "$T/redis.sock" --user bob --pass "$PASSWORD" \
        --no-auth-warning client list | grep -c 'name=dlock .*user=bob')" 1
    fails_with 77 'refuses the user nobody with the password from ' dlock -r "unix://nobody@$T/redis.sock" --password-file="$T/good" job true
    fails_with 64 '--redis: the URL has a user, but no password; .*--password-file' dlock -r "unix://bob@$T/redis.sock" job true
    DLOCK_REDIS=redis://bob@localhost fails_with 78 'DLOCK_REDIS: the URL has a user, but no password' dlock job true
    fails_with 64 '--redis: the password is empty' dlock -r "unix://bob:@$T/redis.sock" job true
    password_file wrong wrong
    mkdir -p "$T/home/.config/dlock"
    printf 'redis = %s\npassword-file = %s\n' "$URL" "$T/good" >"$T/home/.config/dlock/dlock.conf"
    takes
    DLOCK_PASSWORD_FILE=$T/wrong fails_with 77 "from $T/wrong" dlock job true
    DLOCK_PASSWORD_FILE=$T/wrong takes --password-file="$T/good"
}

@test "the password is the file's content, byte for byte, except for one final newline" {
    local text
    start_locked
    for text in 'with space' ' blanks ' 'user:word' 'a@b' '100%%' '\\x' 'p\tt' 'ü' '\001\377\200' "\"'"; do
        # shellcheck disable=SC2059
        REDISCLI_AUTH=$PASSWORD redis acl setuser eve reset on ">$(printf "$text")" '~*' '&*' +@all >/dev/null
        password_file word "$text\n"
        takes -r "unix://eve@$T/redis.sock" --password-file="$T/word"
    done
    for ending in '' '\r\n'; do
        password_file word "$text$ending"
        takes -r "unix://eve@$T/redis.sock" --password-file="$T/word"
    done
    password_file word "$text\n\n"
    fails_with 77 WRONGPASS dlock -r "unix://eve@$T/redis.sock" --password-file="$T/word" job true
}

@test "a password from a file, the environment or the URL may have up to 4095 bytes" {
    local long
    long=$(printf 'x%.0s' {1..4095})
    start_locked "$long"
    password_file long "$long\r\n"
    takes -r "$URL" --password-file="$T/long"
    REDISCLI_AUTH=$long takes -r "$URL"
    takes -r "unix://:$long@$T/redis.sock"
    for file in "${long}x" "${long}x\r\n" "$long$long"; do
        password_file long "$file"
        fails_with 78 "the password file $T/long: .*too long" dlock -r "$URL" --password-file="$T/long" job true
    done
    REDISCLI_AUTH=${long}x fails_with 78 'REDISCLI_AUTH: the password is too long' dlock -r "$URL" job true
    fails_with 64 '--redis: the password is too long' dlock -r "unix://:${long}x@$T/redis.sock" job true
    [[ $output != *xxx* ]]
}

@test "a password in the URL is percent-decoded" {
    start_locked '@:/% ?#'
    takes -r "unix://:%40%3A%2F%25%20%3F%23@$T/redis.sock"
    takes -r "unix://default:%40:%2f%25%20?%23@$T/redis.sock"
}

@test "a password file that cannot be used: exit 78 or 77 naming the file, and nothing is run" {
    # refused STATUS TEXT: with $T/word, both as the option and as the credential.
    refused() {
        fails_with "$1" "the password file $T/word: $2" dlock -r "$URL" --password-file="$T/word" --fallback=file job touch "$T/ran"
        [ -L "$T/dlock.password" ] || ln -s word "$T/dlock.password"
        [ "$2" = 'No such file' ] ||
            CREDENTIALS_DIRECTORY=$T fails_with "$1" "the password file $T/dlock.password: $2" dlock -r "$URL" job touch "$T/ran"
        [ ! -e "$T/ran" ]
    }
    refused 78 'No such file'
    password_file word "$PASSWORD"
    chmod 604 "$T/word"
    refused 78 'other users can read this secret; use chmod o='
    chmod 600 "$T/word"
    password_file word ''
    refused 78 'the file is empty'
    password_file word '\r\n'
    refused 78 'the file is empty'
    password_file word 'a\0b'
    refused 78 'the password contains a NUL byte'
    rm "$T/word"
    mkdir -m 700 "$T/word"
    refused 78 'neither a regular file nor a pipe'
    rmdir "$T/word"
    mkfifo -m 600 "$T/word"
    refused 78 'the file is empty'
    run dlock --json -r "$URL" --password-file="$T/word" job true
    [[ $output == *'"code":"INVALID_CONFIG"'* ]]
    rm "$T/word"
    password_file word "$PASSWORD"
    chmod 640 "$T/word" # the user's own group is trusted
    fails_with 69 'No such file' dlock -r "$URL" --password-file="$T/word" --retry-for=0 job true
    [ "$(id -u)" -eq 0 ] || chmod 000 "$T/word"
    [ "$(id -u)" -eq 0 ] || refused 77 'Permission denied'
}

# has_pipe PID: the process has the pipe open.
has_pipe() { ls -l "/proc/$1/fd" 2>/dev/null | grep -q "$T/silent"; }
# reads_pipe COMMAND...: runs it in the background until it reads from the pipe $T/silent, which has a writer.
reads_pipe() {
    "$@" >"$T/said" 2>&1 3>&- 4>&- &
    READER=$!
    wait_until 10 has_pipe "$READER"
}

@test "a secret read from a silent pipe: a signal ends dlock at once, and dlock stops waiting after 30 s" {
    mkfifo -m 600 "$T/silent"
    mkdir "$T/credentials"
    ln -s "$T/silent" "$T/credentials/dlock.password"
    sleep 60 3>&- 4>&- >"$T/writer.log" 5<>"$T/silent" &
    echo $! >"$T/writer.pid"
    wait_until 10 has_pipe $!
    local words status
    for words in "-r $URL --password-file=$T/silent job true" "-r $URL --password-file=$T/silent --acquire job" \
        "-r $URL --password-file=$T/silent --status job" "-r $URL --hash=hmac-sha256 --secret-file=$T/silent job true" \
        "-r redis+sentinel://127.0.0.1:1/prime --sentinel-password-file=$T/silent job true" \
        "-r $URL job true"; do
        [[ $words == *=* ]] || export CREDENTIALS_DIRECTORY=$T/credentials
        # shellcheck disable=SC2086
        reads_pipe dlock $words
        kill -TERM "$READER"
        wait_until 10 gone "$READER"
        status=0
        wait "$READER" || status=$?
        equals "$status $(cat "$T/said")" '143 '
    done
    unset CREDENTIALS_DIRECTORY
    # A writer that writes for ever, too slowly for its text to be too long.
    sh -c 'while :; do printf x; sleep 0.1; done' >"$T/silent" 3>&- 4>&- &
    echo $! >"$T/slow.pid"
    suspended 0
    reads_pipe env "LD_PRELOAD=$HELPERS/fault_boot_clock.so" dlock -r "$URL" --password-file="$T/silent" job true
    suspended 31
    status=0
    wait "$READER" || status=$?
    equals "$status" 78
    grep -q "$T/silent: the pipe was not closed within 30s" "$T/said"
}

@test "a refused login: exit 77 at once, even with --fallback, naming the user and what to do" {
    start_locked
    local start=$(now)
    fails_with 77 'the server requires a password, but none is configured: .*NOAUTH Authentication required; set the password in the URL, --password-file' \
        dlock -r "$URL" --fallback=file job touch "$T/ran"
    fails_with 77 'the server refuses the user default with the password from the URL: .*WRONGPASS' dlock -r "unix://:bad@$T/redis.sock" \
        --fallback=file job touch "$T/ran"
    fails_with 77 'the server refuses the user bob with' dlock -r "unix://bob:bad@$T/redis.sock?db=2" --fallback=file job touch "$T/ran"
    [[ $output != *bad* ]]
    for action in --acquire '--extend --owner=me' '--release --owner=me' --force-release --status --wait-until-free; do
        # shellcheck disable=SC2086
        fails_with 77 'NOAUTH' dlock $action --json -r "$URL" job
        [[ $output == *'"code":"NOT_PERMITTED"'*'"retryable":false'* ]]
    done
    within 5000 "$start"
    [ ! -e "$T/ran" ]
}

@test "a server without users, or without a password, says so: the message advises to leave them out" {
    fake_redis "error=ERR wrong number of arguments for 'auth' command"
    fails_with 77 'the server does not support users .Redis before 6.0.: .*; remove the user bob from the URL' \
        dlock -r "unix://bob:x@$T/fake.sock" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    start_redis
    REDISCLI_AUTH=$PASSWORD fails_with 77 'the server requires no password, but REDISCLI_AUTH has one: .*AUTH' dlock -r "$URL" job touch "$T/ran"
    [ ! -e "$T/ran" ]
    fake_redis "error=ERR Client sent AUTH, but no password is set"
    fails_with 77 'the server requires no password, but the URL has one' dlock -r "unix://:x@$T/fake.sock" job touch "$T/ran"
}

# passes_on [DLOCK ARGUMENTS...]: the command's environment is the caller's, plus what dlock sets for it.
passes_on() {
    local set='^(DLOCK_(NAME|FENCE|EXPIRES_AT|HELD|SLOT)|DLOCK_HELD_[A-Z]*|_)='
    dlock "$@" job env | grep -vE "$set" | sort >"$T/inside"
    env | grep -vE "$set" | sort | diff - "$T/inside"
}

@test "the command gets the caller's environment, passwords included" {
    start_locked
    password_file good "$PASSWORD"
    DLOCK_REDIS="unix://bob:$PASSWORD@$T/redis.sock?db=1" passes_on
    DLOCK_REDIS=unix://:$PASSWORD@$T/redis.sock passes_on --tree
    REDISCLI_AUTH=$PASSWORD passes_on -r "$URL"
    REDISCLI_AUTH=another passes_on -r "$URL" --password-file="$T/good"
    DLOCK_REDIS="redis://a:$PASSWORD@h1/1 rediss+cluster://:$PASSWORD@h2,h3" passes_on --backend=file --lock-dir="$T/locks"
    REDISCLI_AUTH=$PASSWORD passes_on -r "unix://$T/nowhere" --retry-for=0 --fallback=file --lock-dir="$T/locks"
    # A lock inside itself changes nothing either.
    DLOCK_REDIS="unix://:$PASSWORD@$T/redis.sock" run dlock job -- dlock job env
    [[ $status -eq 0 && $output == *"DLOCK_REDIS=unix://:$PASSWORD@$T/redis.sock"* ]]
    # No variable holds the command line's password.
    run dlock -r "unix://bob:$PASSWORD@$T/redis.sock" job env
    [[ $status -eq 0 && $output != *$PASSWORD* ]]
}

@test "inside the command, --extend, --release and a nested dlock find the password in a file, a variable or the configuration; otherwise the message says what is missing" {
    start_locked
    password_file good "$PASSWORD"
    export DLOCK_PASSWORD_FILE=$T/good DLOCK_REDIS=$URL
    local inside='dlock --current && dlock --extend && dlock job echo nested && dlock other echo other && dlock --release && echo ok'
    run dlock -t 60 job -- sh -c "$inside"
    equals "$status" 0
    [[ $output == *nested*other*ok ]]
    DLOCK_REDIS="unix://bob:$PASSWORD@$T/redis.sock" run dlock -t 60 job -- sh -c 'dlock --extend && dlock --release && echo ok'
    equals "$status $output" '0 ok'
    unset DLOCK_PASSWORD_FILE DLOCK_REDIS
    # A configuration file with the server and its password applies inside, too.
    mkdir -p "$T/home/.config/dlock"
    echo "redis = unix://bob:$PASSWORD@$T/redis.sock" >"$T/home/.config/dlock/dlock.conf"
    chmod 600 "$T/home/.config/dlock/dlock.conf"
    run dlock -t 60 job -- sh -c "$inside"
    equals "$status" 0
    rm "$T/home/.config/dlock/dlock.conf"
    REDISCLI_AUTH=$PASSWORD run env DLOCK_REDIS="$URL" dlock -t 60 job -- sh -c "$inside"
    equals "$status" 0
}

@test "DLOCK_HELD holds no password: a dlock inside finds the password again, except one given on the outer command line" {
    start_locked
    password_file good "$PASSWORD"
    local with=unix://bob:$PASSWORD@$T/redis.sock inside='dlock --extend && dlock -v job echo nested'
    run dlock -r "$with" job -- sh -c 'echo "$DLOCK_HELD"'
    [[ $output == "redis?redis=unix://bob@$T/redis.sock "* ]]
    run dlock -r "unix://bob@$T/redis.sock" --password-file="$T/good" job -- sh -c "$inside"
    [[ $status -eq 0 && $output == *'already holds the lock'*nested ]]
    cd "$T"
    run dlock -r "$URL" --password-file=good job -- sh -c "cd / && $inside"
    [[ $status -eq 0 && $output == *'already holds the lock'*nested ]]
    # A variable, a file or a credential for the same server has the password.
    DLOCK_REDIS="  $with " run dlock job -- sh -c "$inside"
    [[ $status -eq 0 && $output == *'already holds the lock'*nested ]]
    CREDENTIALS_DIRECTORY=$T && password_file dlock.password "$PASSWORD"
    export CREDENTIALS_DIRECTORY
    run dlock -r "$with" job -- sh -c "$inside"
    [[ $status -eq 0 && $output == *'already holds the lock'*nested ]]
    unset CREDENTIALS_DIRECTORY
    DLOCK_REDIS=$with run dlock -r "$with" job -- sh -c "$inside"
    [[ $status -eq 0 && $output == *'already holds the lock'*nested ]]
    # The password is only on the command line.
    local reason='a password on the command line of the dlock around it is not passed on'
    fails_with 77 "NOAUTH .*$reason" dlock -r "unix://:$PASSWORD@$T/redis.sock" job -- dlock --extend
    fails_with 78 "DLOCK_HELD: redis: the URL has a user, but no password; .*$reason" dlock -r "$with" job -- dlock --extend
    fails_with 0 "job: cannot check the lock that dlock runs under: .*$reason" \
        dlock -r "$with" job -- dlock --backend=auto --lock-dir="$T/locks" job true
    # The inner dlock is given the password.
    run dlock -r "$with" job -- dlock --password-file="$T/good" --extend
    equals "$status" 0
    run dlock -r "$with" job -- dlock -r "$with" --extend
    equals "$status" 0
}

@test "--attach and --acquire work with every source of the password" {
    start_locked
    export REDISCLI_AUTH=$PASSWORD
    run sh -c 'dlock -r "$1" --attach job && dlock -r "$1" --status job | head -1' sh "$URL"
    [[ $status -eq 0 && $output == 'job: held'* ]]
    wait_until 10 eval '! dlock -r "$URL" -q --status job'
    local token
    token=$(dlock -r "$URL" --acquire job)
    dlock -r "$URL" --release --owner="$token" job
}

@test "the process's arguments never show the password, however it is given" {
    start_locked
    hold held
    # not_shown COMMAND...: a dlock that holds its lock does not show the password.
    not_shown() {
        rm -f "$T/held" "$T/held.end"
        "$@" "$T/held.sh" >/dev/null 2>"$T/err" 3>&- 4>&- &
        local dlock=$!
        echo $dlock >"$T/dlock.pid"
        wait_until 10 test -e "$T/held" || { cat "$T/err"; return 1; }
        not grep -qa "$PASSWORD" "/proc/$dlock/cmdline"
        touch "$T/held.end"
        wait "$dlock"
    }
    local login=unix://bob:$PASSWORD@$T/redis.sock
    not_shown dlock --redis="$login" job
    not_shown dlock --redis "$login" job --
    not_shown dlock -r"$login" job
    not_shown dlock -qr "$login" job
    not_shown dlock job -n -r "$login" --
    not_shown dlock --tree job -r "$login"
}

@test "messages, JSON, reports and lists never contain the password" {
    start_locked
    export DLOCK_REDIS=unix://bob:$PASSWORD@$T/redis.sock
    {
        dlock -v -v --json --report="$T/report" job dlock --current --json
        dlock --acquire --json -t 60 job
        dlock -vv -n job true
        dlock -vv -w 0.4 job true
        dlock -vv --status --json job
        dlock --list --json
        dlock -vv --force-release job
        dlock -v -r "redis://bob:$PASSWORD@localhost:$(free_port)" --retry-for=0 job true
    } >"$T/out" 2>&1 3>&- 4>&- || true
    cat "$T/report" >>"$T/out"
    grep -q SERVICE "$T/out" || grep -q refused "$T/out"
    not grep "$PASSWORD" "$T/out"
    # An invalid URL does not show it either.
    local url
    for url in "redis:/bob:$PASSWORD@host" "bob:$PASSWORD@host" "redis://bob:$PASSWORD@" "redis://bob:$PASSWORD@host:x" \
        "redis+sentinel://bob:12/$PASSWORD@host" "redis://bob:$PASSWORD%@host" "redis://bob:$PASSWORD/@host" "http://bob:$PASSWORD@host" "unix://bob:$PASSWORD@path"; do
        fails_with 64 '--redis: ' dlock -vv -r "$url" job true
        [[ $output != *$PASSWORD* ]]
        DLOCK_REDIS=$url fails_with 78 'DLOCK_REDIS: ' dlock -vv job true
        [[ $output != *$PASSWORD* ]]
        DLOCK_REDIS=$url run dlock -vv --backend=file --lock-dir="$T/locks" job true
        [[ $output != *$PASSWORD* && $status -eq 0 ]]
        fails_with 64 '--rediss: unknown option' dlock --rediss="$url" job true
        [[ $output != *$PASSWORD* ]]
    done
}

@test "a server's error that repeats the password of AUTH is not quoted" {
    local long how
    long=$PASSWORD$(printf 'x%.0s' {1..200})
    start_redis redis --rename-command AUTH ''
    for how in "$PASSWORD" "$long"; do
        fails_with 78 'unknown command .?AUTH' dlock -vv --json -r "unix://bob:$how@$T/redis.sock" job true
        [[ $output != *"$PASSWORD"* ]]
        fails_with 78 'login .*unknown command .?AUTH' dlock -r "unix://bob:$how@$T/redis.sock" --doctor
        [[ $output != *"$PASSWORD"* ]]
    done
    fake_redis "instead=AUTH=-ERR nobody called bob comes in with $PASSWORD here\\r\\n+OK\\r\\n-ERR no\\r\\n" "$T/redis.sock"
    fails_with 69 "nobody called bob comes in with \\*+ here" dlock -vv -r "unix://bob:$PASSWORD@$T/fake.sock" --retry-for=0 job true
}

@test "a URL with a blank in its password is refused without showing the password" {
    local login="redis://bob:$PASSWORD and@more@host redis://eve:$PASSWORD@host"
    run dlock --backend=file --lock-dir="$T/locks" outer -- dlock --backend=file --lock-dir="$T/locks" -r "$login" job -- sh -c 'tr "\0" " " </proc/$PPID/cmdline; echo; env'
    [[ $status -eq 0 && $output == *'-r ***'*'*** job'* && $output != *eve* && $output != *$PASSWORD* ]]
    fails_with 64 '--redis: URL 1: ' dlock -vv -r "$login" job true
    [[ $output != *$PASSWORD* ]]
}

# leaves_core COMMAND...: true if the command leaves a core file when SIGSEGV ends it.
leaves_core() {
    python3 - "$T" "$@" <<'P'
import os, resource, signal, subprocess, sys, time
folder, command = sys.argv[1], sys.argv[2:]
os.makedirs(folder + "/core", exist_ok=True)
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
process = subprocess.Popen(command, cwd=folder + "/core", start_new_session=True)
end = time.monotonic() + 20
while not os.path.exists(folder + "/held"):
    assert process.poll() is None and time.monotonic() < end
    time.sleep(0.01)
os.kill(process.pid, signal.SIGSEGV)
status = os.waitpid(process.pid, 0)[1]
assert os.WTERMSIG(status) == signal.SIGSEGV
sys.exit(0 if os.WCOREDUMP(status) else 1)
P
}

@test "a dlock that knows a password writes no core file, but its command can" {
    start_locked
    hold held
    password_file good "$PASSWORD"
    unset ASAN_OPTIONS
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer takes the signal'
    rm -f "$T/held"
    if leaves_core dlock --backend=file --lock-dir="$T" job "$T/held.sh"; then
        for source in "-r unix://:$PASSWORD@$T/redis.sock" "--tree -r $URL --password-file=$T/good"; do
            rm -f "$T/held"
            # shellcheck disable=SC2086
            not leaves_core dlock $source $RANDOM "$T/held.sh"
        done
    else
        echo '# no core files can be had here' >&3
    fi
    run dlock -r "unix://:$PASSWORD@$T/redis.sock" last -- python3 -c 'import ctypes; print(ctypes.CDLL(None).prctl(3))'
    equals "$output" 1
}

@test "while the command runs, dlock's memory holds one copy of the password, for reconnecting" {
    start_locked
    password_file good "$PASSWORD"
    [ -z "${SANITIZER:-}" ] || skip 'a sanitizer keeps what is freed'
    hold_lock job -r "$URL" --password-file="$T/good"
    run python3 - "$HOLDER" "$PASSWORD" <<'P'
import re, sys
copies, secret = 0, sys.argv[2].encode()
memory = open(f"/proc/{sys.argv[1]}/mem", "rb", 0)
for line in open(f"/proc/{sys.argv[1]}/maps"):
    begin, end = (int(n, 16) for n in line.split()[0].split("-"))
    if line.split()[1].startswith("rw"):
        memory.seek(begin)
        copies += memory.read(end - begin).count(secret)
print(copies)
P
    end_hold
    [[ $output != *PermissionError* ]] || skip 'only root can look there'
    equals "$output" 1
}

@test "a password changed while the lock is held does not lose the lock: the command runs on, and a message at the end says so" {
    start_locked
    hold_lock job -v -t 1m -r "unix://bob:$PASSWORD@$T/redis.sock"
    REDISCLI_AUTH=$PASSWORD redis acl setuser bob '>new' "<$PASSWORD" >/dev/null
    REDISCLI_AUTH=$PASSWORD redis client kill user bob >/dev/null
    wait_until 20 eval 'REDISCLI_AUTH=$PASSWORD redis acl log | grep -qx auth' # it has been refused
    sleep 0.3 # nothing must happen
    kill -0 "$(cat "$T/held")"
    not grep -q 'lost' "$T/held.err"
    end_hold
    wait "$HOLDER"
    grep -q 'could not be released: .*refuses the user bob with the password from the URL: .*WRONGPASS' "$T/held.err"
}

@test "another process of the same user cannot read the memory of a dlock that knows a password" {
    start_locked
    chmod 777 "$T/redis.sock"
    let_others_into "$T" || skip 'needs root, to become another user, who reaches the program'
    local user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    # The command is dlock's child, and reads its parent's environment.
    # A password that is not used is still a password.
    mkdir -m 777 "$T/theirs"
    local backend
    for backend in redis file; do
        run env DLOCK_REDIS="unix://:$PASSWORD@$T/redis.sock" DLOCK_LOCK_DIR="$T/theirs/$backend" REDISCLI_AUTH="$PASSWORD" "${user[@]}" env --chdir="$T/theirs" \
            "$DLOCK" --backend=$backend job -- sh -c 'cat /proc/$PPID/environ /proc/$PPID/mem && echo read'
        [[ $output == *'Permission denied'* && $output != *read && $output != *"$PASSWORD"* ]]
    done
}
