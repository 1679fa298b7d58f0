#!/usr/bin/env bats
# Runs the lines of doc/cookbook.md, checks its files, and that the links of the
# pages for people lead somewhere.
load ../lib/common

setup() {
    common_setup
    SRC=$(realpath "$TESTS/..")
    PAGE=$SRC/doc/cookbook.md
}

# Starts a server, and makes a directory with the scripts that the recipes run.
kitchen() {
    start_redis
    export DLOCK_REDIS=unix://$T/redis.sock
    export PATH=$SRC/doc/examples:$T/work:$PATH
    mkdir -p "$T/work" && cd "$T/work" || return
}

# block HEADING N [LANGUAGE]: prints the Nth block of this language (sh) under a heading.
block() {
    awk -v heading="$1" -v wanted="$2" -v language="${3:-sh}" '
        /^```/ && inside { if (here) found = 1; inside = here = 0; next }
        /^```/ { inside = 1; if (current == heading && $0 == "```" language && ++n == wanted) here = 1; next }
        !inside && /^##* / { current = $0; sub(/^#+ /, "", current) }
        here { print }
        END { if (!found) { print "no such block: " heading ", " wanted >"/dev/stderr"; exit 1 } }' "$PAGE"
}

# cook HEADING N [FROM TO]...: prints the block as a script, with some words replaced.
cook() {
    local text script
    text=$(block "$1" "$2")
    shift 2
    script=$(mktemp "$T/script.XXXXXX")
    reword "$text" "$@" >"$script" || return
    sh "$script"
}

# stub NAME [SCRIPT]: makes a command of the recipes, which records in $T/ran that it ran.
stub() {
    printf '#!/bin/sh\necho %s >>"%s"\n%s\n' "$1" "$T/ran" "${2:-}" >"$T/work/$1"
    chmod +x "$T/work/$1"
}
ran() { equals "$(tr '\n' ' ' <"$T/ran" 2>/dev/null)" "${1:+$1 }"; rm -f "$T/ran"; }

is_free() { not dlock --status -q "$1"; }

@test "every block of shell lines in the cookbook is run here" {
    local heading number
    awk '/^```/ && inside { inside = 0; next }
        /^```/ { inside = 1; if ($0 == "```sh" || $0 == "```crontab") print current "|" ++n[current $0]; next }
        !inside && /^##* / { current = $0; sub(/^#+ /, "", current) }' "$PAGE" >"$T/blocks"
    [ "$(wc -l <"$T/blocks")" -ge 25 ]
    while IFS='|' read -r heading number; do
        grep -qF -e "cook '$heading' $number" -e "block '$heading' $number" "$TESTS/docs/cookbook.bats" ||
            { echo "not run: $heading, $number"; false; }
    done <"$T/blocks"
}

@test "links in the Markdown pages lead to existing files and headings" {
    python3 - "$SRC" README.md doc/cookbook.md doc/design.md doc/benchmarks.md doc/comparison.md doc/reliability.md doc/faults.md doc/defects.md doc/threat-model.md SECURITY.md \
        packaging/README.md CONTRIBUTING.md <<'PYTHON'
import os, re, sys
root, pages = sys.argv[1], sys.argv[2:]
def anchors(path):
    text = re.sub(r'^```.*?^```', '', open(path, encoding='utf-8').read(), flags=re.M | re.S)
    return {re.sub(r'[^\w\- ]', '', line.lower()).replace(' ', '-') for line in re.findall(r'^#+ (.*)$', text, re.M)}
checked, bad = 0, []
for page in pages:
    here = os.path.join(root, page)
    for target in re.findall(r'\]\(([^)\s]+)\)', open(here, encoding='utf-8').read()):
        if target.startswith('http'):
            continue
        path, _, anchor = target.partition('#')
        path = os.path.join(os.path.dirname(here), path) if path else here
        checked += 1
        if not os.path.exists(path) or anchor and anchor not in anchors(path):
            bad.append(f'{page}: {target}')
assert checked > 20 and not bad, bad
PYTHON
}

@test "the files that the design page names exist" {
    local name
    grep -oE '`[A-Za-z0-9_./*-]+\.(c|h|lua|py|bats|bash|sh|md)`' "$SRC/doc/design.md" | tr -d '`' | sort -u >"$T/names"
    [ "$(wc -l <"$T/names")" -ge 60 ]
    while read -r name; do
        case $name in *embedded.h) continue ;; esac # make creates it
        # shellcheck disable=SC2086
        compgen -G "$SRC/$name" >/dev/null || compgen -G "$SRC/src/$name" >/dev/null || compgen -G "$SRC/src/store/redis/scripts/$name" >/dev/null ||
            compgen -G "$SRC/tests/fakes/$name" >/dev/null || { echo "not there: $name"; false; }
    done <"$T/names"
}

@test "first steps: --doctor, the configuration, and --backend=redis if it is missing" {
    kitchen
    cook 'First, for all of them' 1 >/dev/null
    mkdir -p "$HOME/.config/dlock"
    block 'First, for all of them' 1 ini >"$HOME/.config/dlock/dlock.conf"
    fails_with 78 'dlock.password' env -u DLOCK_REDIS dlock job true
    rm "$HOME/.config/dlock/dlock.conf"
    unset DLOCK_REDIS
    DLOCK_LOCK_DIR=$T/locks fails_with 0 'no Redis' dlock job true
    DLOCK_LOCK_DIR=$T/locks fails_with 1 'fail .*no Redis is configured' sh -c "$(block 'First, for all of them' 1 sh)"
    fails_with 78 'Redis is requested' dlock --backend=redis job true
}

# cron_line N: prints what cron runs of the Nth block.
cron_line() { block 'A crontab on 30 hosts, without mails' "$1" crontab | sed -nE 's|^([^ =]+ +){5}||p' | sed 's|/usr/local/bin/||'; }

@test "crontab: one host runs the job and the others print nothing, with options on the line or in the configuration" {
    kitchen
    stub mirror
    block 'A crontab on 30 hosts, without mails' 1 crontab | grep -q '^MAILTO='
    run sh -c "$(cron_line 1)"
    equals "$status $output" '0 '
    run sh -c "$(cron_line 1)"
    equals "$status $output" '0 '
    ran mirror
    mkdir -p "$HOME/.config/dlock"
    block 'A crontab on 30 hosts, without mails' 1 ini >"$HOME/.config/dlock/dlock.conf"
    block 'A crontab on 30 hosts, without mails' 2 crontab >/dev/null
    run sh -c "$(cron_line 2); $(cron_line 2)"
    equals "$status $output" '0 '
    ran mirror
    dlock --force-release mirror >/dev/null
    run cook 'A crontab on 30 hosts, without mails' 1
    [[ $output == *'mirror: free, last released '* ]]
    equals "$(wc -l <runs.json)" 1
    ran mirror
}

# run_line N: prints what cron runs of the Nth block.
run_line() { block 'Did it run tonight?' "$1" crontab | sed -nE 's|^([^ ]+ +){5}||p'; }

@test "did it run: --status and --ran-within, a ping, and metrics work" {
    kitchen
    stub mirror
    stub curl
    fails_with 1 'mirror: no success within 1d2h: no run is known' cook 'Did it run tonight?' 1
    run sh -c "$(run_line 1)"
    equals "$status $output" '1 '
    dlock mirror -- mirror
    fails_with 0 'last run: .*exit status 0' cook 'Did it run tonight?' 1
    sh -c "$(run_line 1)"
    ran 'mirror curl'
    block 'Did it run tonight?' 2 crontab >/dev/null
    sh -c "$(run_line 2 | sed "s|/var/lib/node_exporter|$T|")"
    grep -q '^dlock_last_success_timestamp_seconds{key="mirror",backend="redis"} [0-9]' "$T/dlock.prom"
    block 'Did it run tonight?' 1 yaml | grep -oE 'dlock_[a-z_]+' | while read -r metric; do grep -q "^$metric{" "$T/dlock.prom"; done
}

@test "how long does it take: --history, a line if the last run was slow, and metrics work" {
    kitchen
    command -v jq >/dev/null || skip 'no jq'
    local i
    fails_with 1 'mirror: no run is known' cook 'How long does it take, and which TTL?' 1
    for ((i = 0; i < 10; i++)); do dlock mirror -- true; done
    fails_with 0 '10 succeeded; usually ' cook 'How long does it take, and which TTL?' 1
    equals "$(dlock --history --json mirror | jq '.enough == 10')" true
    dlock mirror -- sleep 0.5
    fails_with 0 "^mirror took [0-9.]+ s on $(hostname), usually [0-9.]+ s\$" cook 'A run is slower than usual' 1
    dlock mirror -- true
    run cook 'A run is slower than usual' 1
    equals "$status $output" '0 '
    dlock-textfile "$T/dlock.prom" mirror
    block 'A run is slower than usual' 1 yaml | grep -oE 'dlock_[a-z_]+' | while read -r metric; do grep -q "^$metric{" "$T/dlock.prom"; done
}

@test "once a day on a fleet: one success is enough, a failure is retried, and nothing is printed" {
    kitchen
    local line
    line=$(block 'Once a day on a fleet' 1 crontab | sed -nE 's|^([^ ]+ +){5}||p' | sed 's|/usr/local/bin/||')
    stub mirror 'exit 1'
    run sh -c "$line"
    equals "$status $output" '1 '
    stub mirror
    run sh -c "$line; $line"
    equals "$status $output" '0 '
    ran 'mirror mirror'
    # The time counts from the start of the success, not from its end.
    dlock long -- sleep 1
    dlock -n --once-per=1s long -- mirror
    ran mirror
}

@test "CI: a deployment tells the exit statuses apart" {
    kitchen
    local heading='Deployments from CI, one at a time'
    stub deploy.sh
    cook 'Deployments from CI, one at a time' 1
    fails_with 0 '^deployed$' cook 'Deployments from CI, one at a time' 2
    ran 'deploy.sh deploy.sh'
    dlock --acquire --owner=other deploy:production >/dev/null
    fails_with 75 'another deployment still runs' cook "$heading" 2 --wait=10m --wait=50ms
    ran ''
    dlock --release --owner=other deploy:production
    stub deploy.sh 'exit 3'
    fails_with 3 'failed with status 3' cook "$heading" 2
    stub deploy.sh 'exec sleep 60'
    fails_with 124 'stopped: it took longer' cook "$heading" 2 --ttl=20m --ttl=500ms
}

@test "CI: one lock covers a script, and another several jobs" {
    kitchen
    stub build.sh 'dlock --current -q >/dev/null && dlock --status -q deploy:staging'
    stub deploy.sh 'dlock --status -q deploy:staging || echo free >>"$T/ran"'
    cook 'Deployments from CI, one at a time' 3
    wait_until 10 is_free deploy:staging
    ran 'build.sh deploy.sh'
    RUN_ID=7 cook 'Deployments from CI, one at a time' 4
    ran deploy.sh
    is_free deploy:staging
    dlock --acquire --owner=run-7 deploy:staging >/dev/null
    RUN_ID=7 fails_with 75 '' cook 'Deployments from CI, one at a time' 4 --wait=10m -n
    ran ''
}

# from_yaml STATEMENTS: runs Python on the YAML documents of standard input, in `d`.
from_yaml() {
    local python=python3
    "$python" -c 'import yaml' 2>/dev/null || python=/usr/bin/python3
    "$python" -c 'import yaml' 2>/dev/null || skip 'no python3-yaml'
    "$python" -c "import shlex, sys, yaml; d = list(yaml.safe_load_all(sys.stdin)); $1"
}

@test "CI: the lines for GitHub Actions and GitLab deploy" {
    kitchen
    local heading='Deployments from CI, one at a time'
    stub deploy.sh
    { block "$heading" 1 yaml; echo ---; block "$heading" 2 yaml; } >"$T/both.yaml"
    from_yaml "
assert d[1]['deploy']['allow_failure'] == {'exit_codes': [75]}
print(d[0]['jobs']['deploy']['steps'][1]['run'], *d[1]['deploy']['script'], sep='\n')" <"$T/both.yaml" >"$T/steps"
    equals "$(wc -l <"$T/steps")" 2
    bash -ec "$(head -1 "$T/steps")"
    sh -ec "$(tail -1 "$T/steps")"
    ran 'deploy.sh deploy.sh'
}

@test "migrations: instances migrate one after the other, then serve; one that only waits serves when none migrates" {
    kitchen
    local first
    stub migrate '[ ! -e busy ] || echo overlap >>"$T/ran"; touch busy; sleep 0.1; rm busy'
    stub serve
    cook 'Migrations in a rolling release' 1 3>&- 4>&- &
    first=$!
    cook 'Migrations in a rolling release' 1
    wait "$first"
    not grep -q overlap "$T/ran"
    equals "$(sort "$T/ran" | tr '\n' ' ')" 'migrate migrate serve serve '
    rm "$T/ran"
    cook 'Migrations in a rolling release' 2
    ran serve
    stub migrate 'exit 1'
    fails_with 1 '' cook 'Migrations in a rolling release' 1
    ran migrate
}

@test "systemd: the units are valid, and their commands run" {
    kitchen
    command -v systemd-analyze >/dev/null || skip 'no systemd-analyze'
    stub make-report
    block 'A service and a timer of systemd' 1 ini >"$T/report.service"
    block 'A service and a timer of systemd' 2 ini >"$T/report.timer"
    sh -c "$(sed -n 's|/usr/local/bin/||g; s|^ExecStart=||p' "$T/report.service")"
    ran make-report
    cp "$SRC/doc/examples/leader.service" "$T"
    sed -i "s|/usr/local/bin/dlock|$DLOCK|; s|/usr/local/bin/[a-z-]*|/bin/true|" "$T/report.service" "$T/leader.service"
    run systemd-analyze verify --man=no "$T/report.service" "$T/report.timer" "$T/leader.service"
    equals "$status: $(grep -E '(report|leader)\.' <<<"$output")" '0: '
}

@test "a leader leads for as long as it sends signs of life, and no longer" {
    kitchen
    command -v systemd-notify >/dev/null || skip 'no systemd-notify'
    # shellcheck disable=SC2016
    stub one-round 'sleep 0.3; [ "$(wc -l <"$T/ran")" -lt 5 ]'
    { echo '#!/bin/sh'; block 'One leader in a fleet' 2; } >scheduler
    chmod +x scheduler
    cook 'One leader in a fleet' 1 --ttl=30s --ttl=1200ms
    equals "$(wc -l <"$T/ran")" 5
    printf '#!/bin/sh\nexec sleep 60\n' >scheduler
    fails_with 124 '' cook 'One leader in a fleet' 1 --ttl=30s --ttl=500ms
    dlock --status leader >"$T/status" || true
    grep -q 'lost 1' "$T/status"
    grep -q -- '--ttl=30s --heartbeat leader -- ' "$SRC/doc/examples/leader.service"
}

@test "slots: each job gets its own GPU or licence" {
    kitchen
    # shellcheck disable=SC2016
    stub train 'echo "$CUDA_VISIBLE_DEVICES" >>gpus; until [ "$(wc -l <gpus)" = 2 ]; do sleep 0.01; done'
    cook 'One GPU or licence for each job' 1 3>&- 4>&- &
    cook 'One GPU or licence for each job' 1
    wait $!
    equals "$(sort gpus | tr '\n' ' ')" '0 1 '
    # shellcheck disable=SC2016
    stub solve 'echo "$LICENCE"'
    dlock --slots=3 licence -c 'touch held; until [ -e end ]; do sleep 0.01; done' 3>&- 4>&- &
    wait_until 10 test -e held
    equals "$(cook 'One GPU or licence for each job' 2)" key-b
    touch end
    wait $!
}

@test "readers read at the same time, and the import waits for them" {
    kitchen
    # shellcheck disable=SC2016
    stub read-catalogue 'echo $DLOCK_NAME; dlock --status catalogue | grep -q shared && dlock --shared -n catalogue -- true'
    stub import-catalogue 'dlock --status --json catalogue | grep -o "\"mode\":\"exclusive\""'
    equals "$(cook 'Readers and a writer' 1 | tr '\n' ' ')" 'catalogue "mode":"exclusive" '
    ran 'read-catalogue import-catalogue'
    dlock --shared --acquire catalogue >/dev/null
    fails_with 75 '' cook 'Readers and a writer' 1 --wait=2h --wait=50ms
    ran read-catalogue
    command -v jq >/dev/null || skip 'no jq'
    dlock --shared catalogue -- true
    dlock --shared --acquire catalogue >/dev/null
    equals "$(cook 'Readers and a writer' 2)" "$(uname -n)"$'\n'"$(uname -n)"
    equals "$(dlock --status --json catalogue | jq -r .host)" null
    dlock --force-release catalogue >/dev/null
    dlock --acquire catalogue >/dev/null
    equals "$(cook 'Readers and a writer' 2)" "$(uname -n)"
}

@test "is a lock free: the script goes on if it is free, but not if it is held or Redis is down" {
    kitchen
    stub vacuum
    cook 'Is a lock free?' 1
    ran vacuum
    dlock --pause=1m --message=why nightly >/dev/null
    cook 'Is a lock free?' 1
    dlock --resume nightly >/dev/null
    dlock --acquire nightly >/dev/null
    fails_with 0 'not now' cook 'Is a lock free?' 1
    ran vacuum
    stop_redis
    fails_with 0 'not now' cook 'Is a lock free?' 1
    fails_with 69 '' dlock --wait-until-free -n nightly
    # The page warns of this:
    fails_with 69 '' dlock --status -q nightly
    ran ''
}

@test "Ansible: the files and the tasks' lines are valid, and the play contains them" {
    python3 -c 'import yaml' 2>/dev/null || skip 'no PyYAML'
    kitchen
    block Ansible 1 yaml >"$T/play.yaml"
    stub make-report
    stub migrate-report
    task() { python3 -c 'import sys, yaml
(play,) = yaml.safe_load(open(sys.argv[1]))
found = [task for task in play["tasks"] if "ansible.builtin." + sys.argv[2] in task][int(sys.argv[3])]["ansible.builtin." + sys.argv[2]]
print(found[sys.argv[4]] if len(sys.argv) > 4 else found)' "$T/play.yaml" "$@"; }
    task copy 1 content >"$T/report.conf"
    equals "$(DLOCK_CONFIG=$T/report.conf dlock --print-config report | grep -cE "^(nonblock = yes|ttl = 2h) .*$T/report.conf")" 2
    sh -c "$(task command 0)"
    DLOCK_CONFIG=$T/report.conf sh -c "$(task cron 0 job | sed 's|/usr/local/bin/||g')"
    ran make-report
    sh -c "$(task command 1 | sed 's|/usr/local/bin/||g')"
    ran migrate-report
    ! command -v ansible-playbook >/dev/null || ansible-playbook --syntax-check "$T/play.yaml"
}

@test "Docker: the entrypoint and command run the importer once" {
    kitchen
    stub importer
    local words
    words=$(block Docker 1 dockerfile | sed 's/^[A-Z]* *//' | python3 -c 'import json, shlex, sys
print(shlex.join(word for line in sys.stdin for word in json.loads(line)))')
    sh -c "$words"
    ran importer
    dlock --acquire --owner=other import >/dev/null
    sh -c "$words"
    ran ''
}

@test "Kubernetes: the CronJob's command runs with the password from the Secret's volume" {
    kitchen
    local words mode
    stub mirror
    stub kubectl 'for file; do :; done; [ "$2" = secret ] || test -e "$SRC/$file"'
    SRC=$SRC cook 'A Kubernetes CronJob' 1
    ran 'kubectl kubectl'
    from_yaml "
job = d[0]['spec']['jobTemplate']['spec']
pod = job['template']['spec']
box, volume = pod['containers'][0], pod['volumes'][0]
assert (d[0]['apiVersion'], d[0]['kind'], pod['restartPolicy']) == ('batch/v1', 'CronJob', 'Never')
assert '--ttl=30m' in box['command'] and job['activeDeadlineSeconds'] > 30 * 60
assert [e['name'] for e in box['env']] == ['DLOCK_REDIS', 'DLOCK_PASSWORD_FILE']
assert box['env'][1]['value'] == box['volumeMounts'][0]['mountPath'] + '/password'
assert box['volumeMounts'][0]['name'] == volume['name']
print(oct(volume['secret']['defaultMode'] | 0o440)[2:])
print(shlex.join(box['command'] + box['args']).replace('/usr/local/bin/', ''))" <"$SRC/doc/examples/cronjob.yaml" >"$T/job"
    { read -r mode; read -r words; } <"$T/job"
    # A volume is a link to a link to a directory, and fsGroup lets the group read it.
    mkdir -p run/..1
    printf secret >run/..1/password
    ln -s ..1 run/..data
    ln -s ..data/password run/password
    redis acl setuser default resetpass '>secret' >/dev/null
    export DLOCK_PASSWORD_FILE=$T/work/run/password
    chmod "$mode" run/..1/password
    sh -c "$words"
    ran mirror
    chmod 644 run/..1/password
    fails_with 78 'other users can read this secret' sh -c "$words"
}

@test "a resource that refuses late writers: the lines write to it" {
    kitchen
    command -v sqlite3 >/dev/null || skip 'no sqlite3'
    stub make-report 'echo text'
    cook 'A resource that refuses latecomers' 1
    equals "$(cat report.html)" text
    equals "$(sqlite3 reports.db 'SELECT value FROM fenced')" text
}

@test "from flock: both lines exclude each other, and a third one holds both locks" {
    kitchen
    local rows
    # shellcheck disable=SC2016
    stub backup 'touch backup.lock; flock -n backup.lock true || echo flock; dlock --status -q backup && echo dlock; true'
    equals "$(cook 'From flock' 1 | tr '\n' ' ')" 'flock flock '
    equals "$(cook 'From flock' 2 | tr '\n' ' ')" 'flock dlock '
    mapfile -t rows < <(block 'From flock' 1)
    equals "$(flock -n backup.lock sh -c "${rows[1]}")" flock
    rm -f "$T/ran"
    flock backup.lock sh -c 'touch held; until [ -e end ]; do sleep 0.01; done' 3>&- 4>&- &
    wait_until 10 test -e held
    fails_with 75 '' sh -c "${rows[1]}"
    touch end
    wait $!
    fails_with 1 '' dlock --lock-file=backup.lock -- sh -c "${rows[0]}"
    ran ''
}

@test "from consul lock and etcdctl lock: the lines run" {
    kitchen
    stub deploy.sh
    cook 'From consul lock' 1
    cook 'From etcdctl lock' 1
    ran 'deploy.sh deploy.sh'
}

@test "from a SET NX script: old and new exclude each other, and a plain DEL is noticed" {
    kitchen
    printf '#!/bin/sh\nexec %s -s "$T/redis.sock" "$@"\n' "$(command -v redis-cli)" >"$T/bin/redis-cli"
    printf '#!/bin/sh\ncat /proc/sys/kernel/random/uuid\n' >"$T/bin/uuidgen"
    chmod +x "$T/bin/redis-cli" "$T/bin/uuidgen"
    block 'From a SET NX script' 1 text >old
    block 'From a SET NX script' 1 >new
    # shellcheck disable=SC2016
    stub report '[ -e inside ] || { touch inside; sh "$OTHER"; echo $?; }'
    export OTHER
    OTHER=new equals "$(OTHER=new sh old | head -1)" 1
    rm inside
    equals "$(OTHER=old sh new)" 1
    ran 'report report'
    cook 'From a SET NX script' 1
    stub report 'redis-cli del lock:report >/dev/null; sleep 20'
    fails_with 124 'the key lock:report is gone' sh new
}

@test "sharing: redis-py and the line for dlock exclude each other; Laravel's key and Ruby's script match" {
    kitchen
    local python=python3 script
    "$python" -c 'import redis' 2>/dev/null || python=/usr/bin/python3
    stub make-reports
    cook 'Sharing locks with applications' 1
    cook 'Sharing locks with applications' 2
    ran 'make-reports make-reports'
    equals "$(redis exists '{laravel-database-laravel-cache-reports}:meta')" 1
    grep -q '^.*laravel-database-laravel-cache-' "$SRC/doc/dlock-clients.7"
    script="if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or redis.call('get', KEYS[1]) == ARGV[1] then
        return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end"
    equals "$(redis eval "$script" 1 reports token 60000 yes)" OK
    fails_with 75 '' cook 'Sharing locks with applications' 1 --prefix= '-n --prefix='
    dlock --force-release --prefix= reports >/dev/null
    stub make-reports "redis-cli -s '$T/redis.sock' eval \"$script\" 1 reports token 60000 yes"
    equals "$(cook 'Sharing locks with applications' 1)" ''
    stub make-reports
    "$python" -c 'import redis' 2>/dev/null || skip 'no python3-redis'
    { echo 'import os, subprocess, redis
plain = redis.Redis
redis.Redis = lambda: plain(unix_socket_path=os.environ["T"] + "/redis.sock")
def make_reports():
    assert subprocess.run(["dlock", "-n", "--prefix=", "reports", "true"]).returncode == 75
    print("made")'; block 'Sharing locks with applications' 1 python; } >"$T/reports.py"
    equals "$("$python" "$T/reports.py")" made
}

# Each symptom on the page is a message of dlock.
symptom() { grep -qF -- "$1" <<<"$output" && grep -qF -- "$1" "$PAGE" || { echo "not said: $1"; false; }; }

@test "a message and a pause: the lines run" {
    kitchen
    stub deploy.sh
    cook 'A reason, and a pause for maintenance' 1
    ran deploy.sh
    fails_with 0 'paused by .*; message: disk swap, ask ann' cook 'A reason, and a pause for maintenance' 2
    dlock -n nightly true
    cook 'A reason, and a pause for maintenance' 3
    ran deploy.sh
    dlock --pause=1m --message=why nightly
    [[ $(dlock --list) == *'nightly '*'paused by'* ]]
    cook 'A reason, and a pause for maintenance' 4
    ran deploy.sh
    fails_with 75 'deploy-gate: paused by .*; message: disk swap, ask ann' dlock -n -s deploy-gate -- dlock deploy:shop -- echo wrong
}

@test "stuck: dlock reports the symptoms on the page, and the page's lines clear the lock" {
    kitchen
    hold_lock nightly
    run cook 'When a lock is stuck' 1
    symptom running
    [[ $output == *'A lock can be trusted here'* && $output == *' key '*dlock:nightly* ]]
    kill -KILL "$HOLDER"
    wait_until 10 gone "$HOLDER"
    run dlock --status nightly
    symptom 'has ended'
    symptom 'lease ends in'
    fails_with 0 'released nightly, held by .*; has ended[)] since' cook 'When a lock is stuck' 2
    is_free nightly
    dlock --hold-at-least=1m held true
    run dlock --status held
    symptom 'but kept for another'
    dlock --acquire detached >/dev/null
    run dlock --status detached
    symptom 'acquired with --acquire'
    dlock --pause=1m --message='disk swap' paused
    run dlock --status paused
    symptom 'paused by'
    redis set dlock:theirs x >/dev/null
    run dlock --status theirs
    symptom 'by another client'
    symptom 'with no time limit'
    hold_lock nightly
    cook 'When a lock is stuck' 2 >/dev/null
    local status=0
    wait "$HOLDER" || status=$?
    equals "$status" 124
    output=$(cat "$T/held.err")
    symptom 'the lock is lost'
}
