"""The core, file by file, and what tests it: the quickest first, the model last.

A suite of tests/both is named with its backend. "rows": all tables of tests/redis/scripts, which need no dlock.
"""

STORE_FILES = ("both/exclusion:file", "both/fence:file", "both/looking:file", "both/hold:file", "both/runs:file", "both/pause:file",
               "file/locks", "both/shared:file", "both/waiting:file", "file/shared", "file/waiting", "both/acquire:file")
STORE_REDIS = ("both/exclusion:redis", "both/looking:redis", "both/lost_lock:redis", "redis/runs", "both/hold:redis", "redis/sharers",
               "both/runs:redis", "both/pause:redis", "both/shared:redis", "both/waiting:redis", "redis/formats", "both/acquire:redis")
FILES = ("file/rules",) + STORE_FILES + ("both/lost_lock:file", "file/lock_table", "file/runs", "both/history:file", "both/release_first:file",
                                         "cli/waiting_line", "both/lease_end:file", "both/frozen:file", "model/model")
REDIS = STORE_REDIS + ("redis/waiting", "redis/compatibility", "redis/faults", "redis/replies", "both/fence:redis", "both/lease_end:redis",
                       "both/history:redis", "both/release_first:redis", "redis/fence", "redis/clock", "both/frozen:redis", "redis/acl",
                       "redis/sentinel", "redis/cluster", "model/model")
COMMAND = ("both/run_command:file", "both/lease_end:file", "both/lost_lock:file", "both/lease_end:redis", "both/whole_tree:file", "both/signals:file",
           "both/lost_lock:redis", "both/message:file", "both/heartbeat:file", "both/attach:file", "both/frozen:file", "process/systemd", "process/tree", "process/signals")
WATCH = ("both/lost_lock:redis", "both/lost_lock:file", "both/lease_end:redis", "both/heartbeat:redis", "redis/tracking",
         "redis/outage", "both/frozen:redis", "both/attach:redis", "faults/system_faults")
WAIT = ("both/waiting:file", "both/exclusion:file", "both/looking:file", "both/acquire:redis", "redis/outage", "cli/waiting_line", "both/waiting:redis",
        "redis/waiting", "both/signals:file", "redis/faults")
SCRIPTS = "src/store/redis/scripts/"

# What is tried before the rest.
AREAS = {
    "src/lock/lease.c": ("unit/test_lease", "both/lease_end:redis", "both/lease_end:file", "both/nesting:file", "both/acquire:file"),
    "src/lock/fields.c": ("unit/test_fields", "unit/test_record", "both/runs:file", "both/looking:redis"),
    "src/lock/history.c": ("unit/test_history",),
    "src/lock/run_memory.c": ("unit/test_run_memory", "both/runs:file", "both/runs:redis", "redis/runs"),
    "src/run/expiry.c": COMMAND,
    "src/run/supervise.c": COMMAND,
    "src/run/watch.c": WATCH,
    "src/run/watchdog.c": ("both/heartbeat:file", "both/heartbeat:redis", "process/systemd"),
    "src/run/acquisition.c": ("both/exclusion:file", "both/run_command:file", "both/nesting:file", "both/signals:file", "redis/outage",
                              "both/acquire:redis", "both/attach:file", "redis/login") + WAIT,
    "src/store/file/rules.c": ("unit/test_admission", "unit/test_record", "file/shared", "both/shared:file", "file/waiting") + FILES,
    "src/store/file/exact.c": ("file/shared", "file/locks", "both/shared:file", "both/waiting:file", "cli/security"),
    "src/store/file/dir_backend.c": FILES,
    "src/store/file/file.c": FILES,
    "src/store/file/lease.c": FILES,
    "src/store/file/record.c": ("unit/test_record",) + FILES,
    "src/store/file/memory.c": ("unit/test_run_slot", "file/lock_table", "both/fence:file", "both/runs:file", "file/runs") + STORE_FILES,
    "src/store/file/queue.c": ("file/waiting", "both/waiting:file", "both/frozen:file", "file/shared", "both/shared:file") + FILES,
    "src/store/file/store.c": ("unit/test_admission",) + FILES,
    "src/store/redis/backend.c": REDIS[:-1] + ("quorum/quorum", REDIS[-1]),
    "src/store/redis/take.c": ("redis/replicas",) + REDIS,
    "src/store/quorum/lease.c": ("quorum/quorum",),
    "src/store/quorum/round.c": ("unit/test_verdict", "quorum/quorum"),
    SCRIPTS + "check.lua": ("rows", "both/lost_lock:redis", "redis/outage", "redis/tracking") + REDIS,
    SCRIPTS + "common.lua": ("rows",) + REDIS,
    SCRIPTS + "keys.lua": ("rows",) + REDIS,
    SCRIPTS + "meta.lua": ("rows",) + REDIS,
    SCRIPTS + "extend.lua": ("rows", "redis/tracking", "both/lease_end:redis", "both/attach:redis") + REDIS,
    SCRIPTS + "force.lua": ("rows", "both/acquire:redis", "both/looking:redis", "both/lost_lock:redis") + REDIS,
    SCRIPTS + "holders.lua": ("rows", "both/shared:redis", "redis/sharers", "both/acquire:redis") + REDIS,
    SCRIPTS + "pause.lua": ("rows", "both/pause:redis", "model/model"),
    SCRIPTS + "queue.lua": ("rows", "redis/waiting", "both/waiting:redis") + REDIS,
    SCRIPTS + "release.lua": ("rows", "both/acquire:redis", "both/hold:redis", "both/shared:redis") + REDIS,
    SCRIPTS + "share.lua": ("rows", "both/shared:redis", "redis/sharers", "both/lost_lock:redis", "redis/faults"),
    SCRIPTS + "state.lua": ("rows", "both/looking:redis", "both/runs:redis", "both/shared:redis") + REDIS,
    SCRIPTS + "take.lua": ("rows", "redis/replicas", "redis/tracking", "both/shared:redis", "both/waiting:redis", "both/runs:redis") + REDIS,
}


def tests_of(path):
    return list(dict.fromkeys(AREAS[path]))
