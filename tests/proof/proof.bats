#!/usr/bin/env bats
# What `make proof` does, with a repository of tools that only write figures: its plan, its records, how it resumes after an
# interruption, and what it writes into the pages.
load ../lib/common
setup() {
    common_setup
    export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$TESTS/proof:$TESTS/lib
    ROOT=$T/root
    make_root
}

# A tool that writes its arguments as its figures; a file $T/NAME, named after the tool's folder, has what the tool does first.
tool() {
    mkdir -p "$(dirname "$ROOT/$1")"
    cat >"$ROOT/$1" <<'TOOL'
import json, os, subprocess, sys
words, T = sys.argv[1:], os.environ["PROOF_TEST"]
name = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
subject = words[words.index("--stage") + 1] if "--stage" in words else words[words.index("--backend") + 1] if "--backend" in words else name
with open(T + "/ran", "a") as file:
    file.write("begin %s\n" % subject)
status = subprocess.call(["sh", T + "/" + subject]) if os.path.exists(T + "/" + subject) else 0
with open(words[words.index("--json") + 1], "w") as file:
    json.dump({"head": "", "tables": [{"title": "", "header": ["what", "seed"], "rows": [[subject, "7"]]}], "after": []}, file)
with open(T + "/ran", "a") as file:
    file.write("end %s\n" % subject)
sys.exit(status)
TOOL
}

make_root() {
    local name
    mkdir -p "$ROOT/doc"
    git init -q "$ROOT"
    for name in torture/__main__ model/model faults/fault_walk mutants/mutants soak/soak bench/bench bench/bench_waiting bench/bench_shared; do
        tool "tests/$name.py"
    done
    printf '#!/bin/sh\n' >"$ROOT/bootstrap"
    chmod +x "$ROOT/bootstrap"
    printf 'test-helpers tests/helpers/stamp coverage fuzz:\n\t@:\n' >"$ROOT/Makefile"
    python3 - "$ROOT/doc" <<'PAGES'
import sys
from parts import PARTS
from results import pages_of
for page, names in pages_of(PARTS).items():
    with open("%s/%s" % (sys.argv[1], page), "w") as file:
        file.write("words\n" + "".join("<!-- %s -->\nold\n<!-- /%s -->\nbetween\n" % (name, name) for name in ["proof", *names]))
PAGES
    commit 'a revision'
    export PROOF_TEST=$T
}

commit() { git -C "$ROOT" add -A && git -C "$ROOT" -c user.name=x -c user.email=x@example.com commit -q -m "$1"; }
proof() { python3 "$TESTS/proof" --seed 7 --minutes 4 --folder "$T/proof" --document "$ROOT/doc" "$@" "$ROOT"; }
# result JOB: prints its status in the results.
result() { python3 -c 'import glob, json, sys; print(json.load(open(glob.glob(sys.argv[1])[0]))["jobs"][sys.argv[2]]["status"])' "$T/proof/*/proof.json" "$1"; }

@test "a plan fits the minutes: the longest jobs first, measurements last, and a reason for each job without room" {
    python3 - <<'PLAN'
from parts import PARTS, plan
for minutes in 3, 30, 150, 600:
    jobs, not_run = plan(PARTS, 60 * minutes, "7", "/folder", lambda part: None)
    assert sum(job.seconds * (2 if job.part.alone else 1) for job in jobs) <= 2 * 60 * minutes
    assert len(jobs) + len(not_run) == sum(len(part.jobs) for part in PARTS)
    assert all(job.seconds >= job.part.least > job.part.over for job in jobs)
    assert [job.part.alone for job in jobs] == sorted(job.part.alone for job in jobs)
    lanes = [job.seconds for job in jobs if not job.part.alone]
    assert lanes == sorted(lanes, reverse=True)
assert not plan(PARTS, 9000, "7", "/folder", lambda part: None)[1]
jobs, not_run = plan(PARTS, 9000, "7", "/folder", lambda part: part.server and "no %s found" % part.server or None)
assert not_run["campaign-valkey/cluster"] == "no Valkey found" and not any(job.part.server for job in jobs)
assert sum(part.share for part in PARTS) == 100
PLAN
}

@test "all jobs run, two at once; the pages' tables are made of their results, and nothing else on the pages changes" {
    local before
    # The first two jobs wait for each other.
    echo 'until grep -q "^begin faults" "$PROOF_TEST/ran"; do sleep 0.05; done' >"$T/file"
    echo 'until grep -q "^begin file" "$PROOF_TEST/ran"; do sleep 0.05; done' >"$T/faults"
    fails_with 0 '0 failed' proof
    equals "$(result campaign/redis)" passed
    equals "$(result coverage)" 'not run'
    sed -n '/^<!-- campaign -->/,/^<!-- .campaign -->/p' "$ROOT/doc/reliability.md" >"$T/block"
    grep -qx '| what | seed |' "$T/block"
    grep -qx '| redis | 7 |' "$T/block"
    grep -q '^- `campaign/redis-tls`, .*, `campaign/quorum3-network`: not run: needs 20 s' "$T/block"
    grep -q "^Revision \`$(git -C "$ROOT" rev-parse HEAD)\`, seed \`7\`, a plan of 4 minutes" "$ROOT/doc/reliability.md"
    not grep -qx old "$ROOT/doc/reliability.md"
    equals "$(grep -cx between "$ROOT/doc/reliability.md")" "$(git -C "$ROOT" show HEAD:doc/reliability.md | grep -cx between)"
    awk '/^begin/ { if (++now > most) most = now } /^end/ { now-- } END { exit most != 2 }' "$T/ran"

    before=$(wc -l <"$T/ran")
    # A change of the tables alone does not change the revision; on a second run nothing is left to do.
    fails_with 0 '0 failed' proof
    equals "$(wc -l <"$T/ran")" "$before"
    echo more >>"$ROOT/doc/reliability.md"
    fails_with 2 'doc/reliability.md is changed, and the figures would belong to no revision' proof
}

@test "a job that measures times has the machine to itself" {
    fails_with 0 '' proof --minutes 200 --only soak,model,run,waiting
    awk '/^begin bench/ { alone = now == 0 } /^begin/ { if (now && bench) bad = 1; now++; bench = $2 == "bench"; if (bench && now > 1) bad = 1 }
        /^end/ { now--; bench = 0 } END { exit bad }' "$T/ran"
}

@test "a part that fails makes the status 1 and is named in the results and on the page; the others go on" {
    echo 'echo overlap; exit 1' >"$T/redis"
    echo 'echo "skipped: stage file needs the program x"; exit 77' >"$T/file"
    fails_with 1 '2 failed: ' proof --only campaign,model,soak
    equals "$(result campaign/redis)" failed
    equals "$(result campaign/file)" 'not run'
    equals "$(result soak)" passed
}

@test "if interrupted, make proof stops what runs, and later resumes with the same revision and seed" {
    local pid status=0
    echo 'echo $$ >"$PROOF_TEST/pid"; exec sleep 1000' >"$T/soak"
    python3 "$TESTS/proof" --seed 7 --minutes 4 --folder "$T/proof" --document "$ROOT/doc" --only soak,walk "$ROOT" >"$T/out" 2>&1 3>&- &
    pid=$!
    wait_until 20 eval '[ -s "$T/pid" ] && grep -q "^walk: passed" "$T/out"'
    kill -TERM "$pid"
    wait "$pid" || status=$?
    equals "$status" 130
    wait_until 5 gone "$(cat "$T/pid")"
    rm "$T/soak"
    fails_with 0 '2 jobs, 0 failed' proof --only soak,walk
    equals "$(grep -c '^begin faults' "$T/ran")" 1
    equals "$(grep -c '^begin soak' "$T/ran")" 2
    fails_with 2 'go on with PROOF_MINUTES=4' proof --only soak,walk --minutes 5
    grep -qx old "$ROOT/doc/reliability.md"
}

@test "a job whose server was missing runs once the server exists, and its result stays if the server disappears" {
    printf '#!/bin/sh\necho Valkey server v=8.0.0\n' >"$T/valkey"
    chmod +x "$T/valkey"
    fails_with 0 '' proof --only campaign-valkey,soak
    equals "$(result campaign-valkey/redis)" 'not run'
    fails_with 0 '0 failed' proof --only campaign-valkey,soak --servers "$T/valkey"
    equals "$(result campaign-valkey/redis)" passed
    fails_with 0 '' proof --only campaign-valkey,soak
    equals "$(result campaign-valkey/redis)" passed
    equals "$(grep -c '^begin soak' "$T/ran")" 1
}

@test "make proof refuses to start with a changed tree, or if a page lacks the markers" {
    echo '# more' >>"$ROOT/Makefile"
    fails_with 2 'Makefile is changed' proof
    commit 'another revision'
    echo bare >"$ROOT/doc/benchmarks.md"
    commit 'a page without markers'
    fails_with 2 'benchmarks.md: no line <!-- proof -->' proof
    [ ! -e "$T/ran" ]
}

@test "results count for a commit if all parts have passed, and only figures have changed since" {
    local results
    fails_with 0 '' proof
    results=$(echo "$T"/proof/*/proof.json)
    commit 'the figures'
    fails_with 0 '' proof --verify "$results"
    sed -i 's/"status": "passed"/"status": "failed"/' "$results"
    fails_with 2 'a part failed, or is missing' proof --verify "$results"
    sed -i 's/"status": "failed"/"status": "passed"/' "$results"
    echo more >>"$ROOT/doc/reliability.md"
    commit 'more words'
    fails_with 2 'changed since: doc/reliability.md$' proof --verify "$results"
    sed -i 's/"revision": "./"revision": "x/' "$results"
    fails_with 2 'which is not here' proof --verify "$results"
}

@test "the pages in this tree have all markers" {
    python3 - "$TESTS/../doc" <<'PAGES'
import sys
from parts import PARTS
from results import lacking
missing = list(lacking(sys.argv[1], PARTS))
assert not missing, missing
PAGES
}
