"""What those who want a lock ask of dlock, what they run under it, and what is done to them.

Two plans: the ends of leases (make stress), where each command ends about when its lease does, and takes (make
torture), where many short commands in all modes contend while the stores fail.
"""

import os
import random
import shlex
import signal

HARMLESS = (signal.SIGCHLD, signal.SIGCONT, signal.SIGPIPE, signal.SIGWINCH, signal.SIGURG)
SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
           signal.SIGALRM) + HARMLESS
# Soft limits, for prlimit(1): most of them leave dlock enough, some do not; and none of memory to a sanitizer.
LIMITS = ["--nofile=%d:1024" % number for number in (3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24)]
if not os.environ.get("SANITIZER"):
    LIMITS += ["--as=%d:unlimited" % (megabytes << 20) for megabytes in (4, 6, 8, 12, 16, 32, 64)]
    LIMITS += ["--stack=%d:unlimited" % (kilobytes << 10) for kilobytes in (128, 256, 512)]


class Plan:
    """One run: what dlock is told, what is logged of it, and what will be done to it."""

    def __init__(self, ttl, grace, words, chaos, daemon=False):
        self.ttl, self.grace, self.words, self.daemon = ttl, grace, words, daemon
        # What is done, from when on ("spawn" or "start"), how many seconds after it, and a number that it may need.
        self.chaos = chaos
        self.how, self.mode = "run", "exclusive"
        self.wait = self.limit = self.wall = self.elsewhere = None
        self.hold = 0
        self.once = None
        self.tree = self.newer = False
        self.options = []

    def fields(self):
        """For the log; what is as usual is left out."""
        limit = 0 if self.limit is None else self.limit.replace("--", "").replace("=", ":")
        fields = {"ttl": self.ttl, "grace": self.grace, "daemon": int(self.daemon)}
        fields.update({key: value for key, value, usual in (
            ("tree", int(self.tree), 0), ("mode", self.mode, "exclusive"), ("how", self.how, "run"),
            ("wait", self.wait, None),
            ("hold", self.hold, 0), ("once", self.once, None), ("limited", limit, 0), ("wall", int(self.wall is not None), 0),
            ("elsewhere", self.elsewhere, None), ("newer", int(self.newer), 0))
            if value != usual})
        return fields

    def argv(self, dlock, stage_options, name, owner, command):
        store = list(stage_options)
        release = [option for option in store if not option.startswith("--wait-replicas")]
        options = store + ["-t", "%dms" % self.ttl, "--owner=" + owner] + self.options
        if self.how != "acquire":
            options.append("--grace=%dms" % self.grace)
        if self.mode == "shared":
            options.append("-s")
        elif self.mode != "exclusive":
            options.append("--slots=" + self.mode.partition(":")[2])
        if self.wait is not None:
            options += ["-n"] if self.wait == 0 else ["-w", "%dms" % self.wait]
        if self.hold:
            options.append("--hold-at-least=%dms" % self.hold)
        if self.once is not None:
            options.append("--once-per=%dms" % self.once)
        if self.tree:
            options.append("--tree")
        if self.how == "attach":
            # By its number: of a shell that is killed before dlock asks for its parent that would be the campaign, a
            # subreaper, which dlock then stops with all that it has started.
            attach = "%s --attach=$$ %s" % (shlex.quote(dlock), shlex.join(options + [name]))
            return ["/bin/sh", "-c", "%s && exec %s" % (attach, shlex.join(command))]
        if self.how == "acquire":
            return ["/bin/sh", "-c", "%s >/dev/null || exit; %s; s=$?; %s; echo release=$? >&2; exit $s" % (
                shlex.join([dlock, "--acquire"] + options + [name]), shlex.join(command),
                shlex.join([dlock, "--release", "-q"] + release + ["--owner=" + owner, name]))]
        limit = ["prlimit", self.limit] if self.limit is not None else []
        return limit + [dlock] + options + [name, "--"] + command


def ends_of_leases(rng, options, _kind):
    """Commands that end about when their lease does, are deaf, stop themselves, leave daemons."""
    ttl = rng.choice([ms for ms in (100, 200, 300, 500, 500, 700, 1000, 1000, 1500)
                      if options.ttl_least <= ms <= options.ttl_most])
    grace = rng.choice([ttl // 10, ttl // 10, ttl // 4, 0])
    deadline = ttl - max(ttl / 100, 2)
    kind = rng.choices(("quick", "in time", "at the stop", "at the deadline", "too long", "deaf", "stopped", "daemon",
                        "hydra", "dies"), (15, 8, 14, 18, 8, 14, 7, 8, 5, 3))[0]
    status = rng.choice((0, 0, 1, 7, 42))
    long = ttl + 700
    words, daemon = {
        "quick": (["ms=%.1f" % rng.uniform(0, 5)], False),
        "in time": (["ms=%.1f" % (ttl * rng.uniform(0.1, 0.6))], False),
        "at the stop": (["ms=%.2f" % max(deadline - grace + rng.uniform(-15, 10), 0)], False),
        "at the deadline": (["ms=%.2f" % (deadline + rng.uniform(-12, 8)), "deaf"], False),
        "too long": (["ms=%d" % long], False),
        "deaf": (["ms=%d" % long, "deaf"], False),
        "stopped": (["ms=%d" % long, "stop=%.1f" % (ttl * rng.uniform(0, 0.95))] + rng.choice(([], ["deaf"])), False),
        "daemon": (["ms=%d" % long, "daemon=%d" % long] + rng.choice(([], ["deaf"])), True),
        "hydra": (["ms=%d" % long, "hydra=%d" % long], True),
        "dies": (["ms=%.1f" % (ttl * rng.uniform(0, 0.9)), "die"], False),
    }[kind]
    if options.tree and kind in ("quick", "in time", "dies") and rng.random() < 0.3:
        words, daemon = words + ["daemon=%.1f" % (ttl * rng.uniform(0.1, 1.1))], True
    what = rng.choices(("nothing", "kill", "freeze", "blink", "remove"), (76, 6, 6, 6, 6))[0]
    if rng.random() < 0.1:  # most probably while it waits
        chaos = (what, "spawn", rng.uniform(0, ttl) / 1000, 0)
    elif rng.random() < 0.5:
        chaos = (what, "start", rng.uniform(0, ttl) / 1000, 0)
    else:
        chaos = (what, "start", max(deadline - rng.choice((0, grace)) + rng.uniform(-10, 10), 0) / 1000, 0)
    plan = Plan(ttl, grace, words + ["exit=%d" % status], chaos, daemon)
    plan.tree = options.tree
    return plan


# What is done to a run of dlock, and how often.
DEEDS = {"kill": 15, "kill-command": 10, "kill-tree": 10, "freeze": 5, "freeze-long": 5, "blink": 10, "freeze-command": 10, "freeze-tree": 5,
         "signal": 25, "signal-command": 10, "flood": 10, "kill-waiters": 5, "freeze-waiters": 5,
         "remove": 25, "overwrite": 15, "limit": 20, "clock": 20, "pause": 15, "elsewhere": 15}

# What is done to so many of those who wait for the lock of the run, together: one host of theirs that crashes or stalls.
GROUPS = ("kill-waiters", "freeze-waiters")
GROUP_SIZES = (3, 5, 8, 10)

# What the contenders of a lock do there, by the number of the lock.
KINDS = ("exclusive", "exclusive", "readers and writers", "slots", "scripts", "daily", "held", "extended", "nonblock",
         "convoy", "crowd")
# How many there are beside the two or three of each lock. In a crowd, the largest group has others before and behind it.
MORE_CONTENDERS = {"slots": 3, "convoy": 3, "crowd": 2 * max(GROUP_SIZES)}


def takes(rng, options, kind):
    """Short commands in all modes, and at times one that its lease ends."""
    ttl = rng.choice((500, 700, 1000, 1000, 1500, 2000))
    grace = ttl // 10
    length = rng.uniform(1, 20) if rng.random() < 0.8 else rng.uniform(20, 150)
    if kind == "convoy" and rng.random() < 0.3:
        ttl, length = 2000, rng.uniform(600, 900)
    if kind == "crowd":
        length = rng.uniform(20, 150)  # so that the others wait meanwhile
    words = []
    daemon = tree = False
    ending = rng.random()
    if ending < 0.02:
        length = ttl + 700
        words = rng.choice(([], ["deaf"]))
    elif ending < 0.04:
        daemon, tree = True, rng.random() < 0.5
        words = ["daemon=%.1f" % rng.uniform(10, 200)]
    elif ending < 0.05:
        words = ["die"]
    plan = Plan(ttl, grace, ["ms=%.1f" % length] + words + ["exit=%d" % rng.choice((0, 0, 1, 7, 42))], None, daemon)
    plan.tree = tree or rng.random() < 0.1
    draw_wait(plan, rng, kind)
    length = draw_kind(plan, rng, kind, length)
    plan.chaos = draw_chaos(plan, rng, kind, length, options) if kind != "convoy" else ("nothing", "spawn", 0, 0)
    return plan


def draw_wait(plan, rng, kind):
    if kind == "crowd":  # if its head is silent, nobody who leaves or comes is to wake the others
        return
    draw = rng.random()
    if draw < (0.5 if kind == "nonblock" else 0.05):
        plan.wait = 0
    elif draw < 0.25 and kind != "convoy":
        plan.wait = rng.choice((50, 200, 500, 2000))


def draw_kind(plan, rng, kind, length):
    """Returns how long the command may be."""
    if kind == "readers and writers" and rng.random() < 0.7:
        plan.mode = "shared"
    elif kind == "slots" and rng.random() < 0.95:
        plan.mode = "slots:3"
    elif kind == "scripts":
        plan.how = rng.choice(("attach", "acquire", "run"))
        if plan.how != "run":
            plan.tree = plan.daemon = False
            plan.words = [word for word in plan.words if not word.startswith(("daemon", "deaf"))]
        if plan.how == "acquire":
            plan.ttl = 2000
            length = min(length, 100)  # nobody stops a script at the end of such a lease
            plan.words[0] = "ms=%.1f" % length
    elif kind == "held" and rng.random() < 0.3:
        plan.hold = rng.choice((50, 150, 300))
    elif kind == "daily":
        plan.once = rng.choice((300, 700, 1500))
    elif kind == "extended" and rng.random() < 0.5:
        if rng.random() < 0.5:
            plan.words += ["extend=%.1f" % (length * rng.uniform(0, 1))]
        else:
            plan.options += ["--heartbeat"]
            plan.words += ["beats=60"]
    return length


def draw_chaos(plan, rng, kind, length, options):
    """Most are left alone, so that the rest can be told from them; in a convoy all, so that its order can be judged."""
    names, weights = zip(*DEEDS.items())
    what = rng.choices(names, weights)[0] if rng.random() < 0.2 else "nothing"
    if kind == "crowd" and rng.random() < 0.1:
        what = rng.choice(GROUPS)
    if options.only:  # so that a seed that was found with few faults is one with many of these
        chosen = [name for name in names if name in options.only]
        what = rng.choice(chosen) if chosen and rng.random() < 0.3 else "nothing"
    if plan.how != "run" and what not in ("nothing", "kill", "remove", "pause"):
        what = "nothing"
    if what == "limit":
        plan.limit = rng.choice(LIMITS)
    elif what == "clock":
        plan.wall = rng.choice((-86400, -3600, -5, 5, 3600, 86400))
    elif what == "elsewhere":
        plan.elsewhere = rng.choice(("boot-id", "time"))
    elif what == "flood":  # beyond the end of the lease, where dlock has to stop the command all the same
        length = rng.choice((length, plan.ttl + 1500))
        plan.words = ["ms=%.1f" % length] + plan.words[1:] + ["steady"]
    since = "spawn" if rng.random() < 0.3 else "start"
    if since == "spawn":
        after = rng.uniform(0, 150)
    else:  # not so short that it is over before it can be done
        length = max(length, rng.uniform(50, 300)) if what not in ("nothing", "limit", "clock", "elsewhere") else length
        plan.words[0] = "ms=%.1f" % length
        after = rng.uniform(0, length)
    number = rng.choice(GROUP_SIZES) if what in GROUPS else int(rng.choice(SIGNALS if what == "signal" else SIGNALS[:7]))
    return what, since, after / 1000, number


class Contender:
    """One of those who want a lock, over and over."""

    def __init__(self, stage, lock, number, kind, options):
        self.stage, self.lock, self.kind, self.options = stage, lock, kind, options
        self.rng = random.Random("%s/%s/%s/%d" % (options.seed, stage.name, lock, number))
        # How many of its runs are of the next format: a lock goes over to it with the first one that takes it.
        self.newer = random.Random("%s/%s/%s" % (options.seed, stage.name, lock)).choice((0.01, 0.05, 0.2, 0.5))

    def plan(self):
        plan = self.draw()
        if plan.mode.startswith("slots") and not self.stage.slots:
            plan.mode = "shared"
        if self.options.two_formats:
            plan.newer = self.rng.random() < self.newer
        return plan

    def draw(self):
        return (takes if self.options.plan == "takes" else ends_of_leases)(self.rng, self.options, self.kind)
