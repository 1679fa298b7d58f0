"""What is reported about a lock, and its removal by force."""

from table import *

LOOK = ("mode", "slots", "waiters", "fence", "owner", "released", "paused", "paused_by", "pause_why", "takes", "conflicts", "timeouts", "losses",
        "waited_ms", "held_ms", "failures", "runs", "skips", "run", "success", "history", "first")


def looked(*owners, **other):
    answer = {name: "" for name in LOOK}
    answer.update({name: 0 for name in ("slots", "waiters", "paused", "takes", "conflicts", "timeouts", "losses", "waited_ms", "held_ms", "skips")},
                  first=[])
    answer.update(other)
    return ["lock", *(answer[name] for name in LOOK), list(owners)]


def owner(token, take, left=TTL, fence=5000, slot=None, released=False, hold=0, **other):
    """One that is known."""
    share = {} if slot is None else {"slot": slot}
    return [token, Left(left), hold, said(record(take, released=released or "", fence=fence, **share, **other))]


def stranger(token, left=TTL):
    return [token, Left(left) if left > 0 else left, 0, ""]


A = held_by("A", "a")
HELD_A = {"mode": "exclusive", "fence": 5000, "takes": 1}
SHARED_A = {"mode": "shared", "fence": 5000, "takes": 1}
PAUSED = {"meta pause_ends": at(20000), "meta paused_by": "root@host", "meta pause_why": "repairs"}
LOST = {"run": run(0, "lost"), "history": past("lost", ""), "failures": 1, "runs": 1}
A_WAITER = Said({**WHO, "came": at(-5000), "mode": "exclusive", "slots": 0})


def look_at(name, state, *owners, **answer):
    return row(name, state, look(), looked(*owners, **answer))


STATE = [
    look_at("nothing is known", {}),
    look_at("held", A, owner("A", "a"), **HELD_A),
    look_at("held, detached, and to be kept", held_by("A", "a", stored=record("a", detached="1", hold=at(5000))),
            owner("A", "a", detached="1", hold=Left(5000)), **HELD_A),
    look_at("held, and the time for which it is to be kept is over", held_by("A", "a", stored=record("a", hold=at(-5000))), owner("A", "a"),
            **HELD_A),
    look_at("released, and kept", held_by("A", "a", stored=record("a", released=True)), owner("A", "a", released=True), **HELD_A),
    look_at("held without an end", without(A, "lock ends"), ["A", -1, *owner("A", "a")[2:]], **HELD_A),
    look_at("held by a client of another kind", {"lock": "X", "lock ends": at(TTL)}, stranger("X"), mode="exclusive"),
    look_at("held by a client of another kind, since a lease has ended", {**A, "lock": "X"}, stranger("X"), **{**HELD_A, **LOST}),
    look_at("held by a value of another type", {"lock": ["x"]}, stranger("", -1), mode="exclusive"),
    look_at("held, and its record cannot be read", held_by("A", "a", stored="?"), stranger("A"), **HELD_A),
    look_at("held, and its record says the least", held_by("A", "a", stored={"take": "a"}),
            ["A", Left(TTL), 0, said({"take": "a", "fence": 5000})], **HELD_A),
    look_at("held in the first format", held_by("A", "a", stored=record_1("a")), owner("A", "a", format=1), **HELD_A),
    look_at("released", released("A", spent="a A 900\nz Z 800\n", losses=2, held_ms=50, waited_ms=60), fence=5000, takes=1, owner="A", released=900,
            losses=2, held_ms=50,
            waited_ms=60),
    look_at("removed by force later than that", released("A", spent="a A 900\n", removed=1000), fence=5000, takes=1, owner="A", released=1000),
    look_at("removed by force before that", released("A", spent="a A 900\n", removed=800), fence=5000, takes=1, owner="A", released=900),
    look_at("removed by force, and never released", meta(removed=800), fence=5000, takes=1, released=800),
    look_at("a release that is not known", released("A", spent="x"), fence=5000, takes=1),
    look_at("counts of refused clients are added", {**A, "meta losses": 1, "meta waited_ms": 10, "meta held_ms": 3, "counts conflicts": 2,
            "counts timeouts": 3,
                                                     "counts losses": 4, "counts waited_ms": 50}, owner("A", "a"),
            **HELD_A, conflicts=2, timeouts=3, losses=5, waited_ms=60, held_ms=3),
    look_at("counts of another type", {**A, "counts": ["x"]}, owner("A", "a"), **HELD_A),
    look_at("runs", released("A", run=run(3, "status 1"), success=run(2, "status 0"), failures=1, runs=4, spent=None), fence=5000, takes=1,
            run=run(3, "status 1"), success=run(2, "status 0"), failures=1, runs=4),
    look_at("the history", released("A", run=run(2, "status 1"), history=past("status 1") + past("status 0"), spent=None), fence=5000, takes=1,
            run=run(2, "status 1"), history=past("status 1") + past("status 0")),
    look_at("a history that an older dlock has left, which was to remember nothing", released("A", history=past("status 0"), spent=None),
            fence=5000, takes=1),
    look_at("the history, and a lease that has ended", {**without(A, "lock"), "meta run": run(2, "status 0"), "meta history": past("status 0")}, fence=5000, takes=1,
            **{**LOST, "history": past("lost", "") + past("status 0")}),
    look_at("skips since the last success", {**released("A", success=run(2, "status 0"), spent=None), "counts skips": 3, "counts skips_of": 2},
            fence=5000, takes=1,
            success=run(2, "status 0"), skips=3),
    look_at("skips before the last success", {**released("A", success=run(2, "status 0"), spent=None), "counts skips": 3, "counts skips_of": 1},
            fence=5000, takes=1,
            success=run(2, "status 0")),
    look_at("skips before any success", {**A, "counts skips": 3, "counts skips_of": ""}, owner("A", "a"), **HELD_A, skips=3),
    look_at("a lease that has ended", without(A, "lock"), fence=5000, takes=1, **LOST),
    look_at("a lease that has ended, whose run is remembered", {**without(A, "lock"), "meta unended": ""}, fence=5000, takes=1),
    look_at("a lease that has ended, and no runs are remembered", {**without(A, "lock"), "meta kept": "0"}, fence=5000, takes=1),
    look_at("a lease that has ended, of an unknown holder", {**without(A, "lock"), "meta record": "?"}, fence=5000, takes=1),
    look_at("paused", {**released(spent=None), **PAUSED}, fence=5000, takes=1, paused=Left(20000), paused_by="root@host", pause_why="repairs"),
    look_at("a pause that is over", {**released(spent=None), **PAUSED, "meta pause_ends": at(-1000)}, fence=5000, takes=1),
    row("free, and meta is no hash", {"meta": ["x"]}, look(), ["unusable", "{dlock:job}:meta", "it is not a hash"]),
    row("free, and the fence is at its end", meta(fence=2 ** 53 - 1), look(), ["unusable", "{dlock:job}:meta", "its fence has reached its maximum"]),
    look_at("meta is no hash", {"lock": "A", "lock ends": at(TTL), "meta": ["x"]}, stranger("A"), mode="exclusive"),
    row("a newer format", {**A, "meta format": NEWER}, look(), ["newer", NEWER]),
]

TWO = shared(sharer("A", "a", left=30000, slot=0), sharer("B", "b", left=20000, slot=2, detached="1"), mode="slots", slots=3)
SHARES = [
    look_at("shared", shared(sharer("A", "a")), owner("A", "a"), **SHARED_A),
    look_at("slots, the first to end first", TWO, owner("B", "b", 20000, slot=2, detached="1"), owner("A", "a", 30000, slot=0),
            mode="slots", slots=3, fence=5000, takes=1),
    look_at("a share that is kept", shared(sharer("A", "a", released=True)), owner("A", "a", released=True), **SHARED_A),
    look_at("a share that has ended", shared(sharer("A", "a"), sharer("O", "o", left=-1000)), owner("A", "a"), **{**SHARED_A, **LOST}),
    look_at("a share that has ended after its release", shared(sharer("A", "a"), sharer("O", "o", left=-1000, released=True)), owner("A", "a"),
            **SHARED_A),
    look_at("a share of an earlier round", shared(sharer("A", "a"), sharer("O", "o", round="dlock:shared:1")), owner("A", "a"), owner("O", "o"),
            **{**SHARED_A, **LOST}),
    look_at("a share whose record has gone", without(shared(sharer("A", "a")), "holder:A"), stranger("A"), **SHARED_A),
    look_at("shared, without meta", without(shared(sharer("A", "a")), "meta"), stranger("", 90000), mode="shared"),
    look_at("shared, and the set has gone", without(shared(sharer("A", "a")), "holders"), stranger("", 90000), **SHARED_A),
    look_at("all shares have ended", shared(sharer("A", "a", left=-1000)), **{**SHARED_A, **LOST}),
    look_at("all shares have ended, and the lock's key as well", without(shared(sharer("A", "a", left=-1000)), "lock"),
            **{**SHARED_A, **LOST, "mode": ""}),
    look_at("an exclusive one, and old shares", {**A, **sharer("O", "o", left=-1000)}, owner("A", "a"), **HELD_A),
    look_at("an exclusive lease ended before it was shared", shared(sharer("A", "a"), owner="X", record=record("x"), unended="1"), owner("A", "a"),
            **{**SHARED_A, **LOST}),
]

MANY = both(*(waiting("w%02d" % i, came=-9000 + i) for i in range(22)))
WAITERS = [
    look_at("one waits", {**A, **waiting("w")}, owner("A", "a"), **HELD_A, waiters=1, first=[A_WAITER]),
    look_at("for a slot", {**A, **waiting("w", mode="slots", slots=3)}, owner("A", "a"), **HELD_A, waiters=1, first=[Said({**A_WAITER, "mode": "slots", "slots": 3})]),
    look_at("without a place to listen", {**A, **waiting("w", listens=False, alive=False)}, owner("A", "a"), **HELD_A, waiters=1, first=[A_WAITER]),
    look_at("the dead are not counted", {**A, **waiting("v", alive=False), **waiting("w"), **waiting("u", listens=False, asked=-5000)},
            owner("A", "a"),
            **HELD_A, waiters=1, first=[A_WAITER]),
    look_at("in their order", {**A, **waiting("w", came=-2000), **waiting("v", came=-3000, mode="shared")}, owner("A", "a"), **HELD_A, waiters=2,
            first=[Said({**A_WAITER, "came": at(-3000), "mode": "shared"}), Said({**A_WAITER, "came": at(-2000)})]),
    look_at("20 are shown", {**A, **MANY}, owner("A", "a"), **HELD_A, waiters=22,
            first=[Said({**A_WAITER, "came": at(-9000 + i)}) for i in range(20)]),
    look_at("one who says nothing of itself", {**A, **waiting("w"), "waiters w": "%d 1 5 0 exclusive 0" % FORMAT}, owner("A", "a"), **HELD_A,
            waiters=1,
            first=[{"came": at(-5000), "mode": "exclusive", "slots": 0}]),
    look_at("one of format 1", {**A, **waiting("w"), "waiters w": '1 1 5 0 exclusive 0 ["h","7","u","m"]'}, owner("A", "a"), **HELD_A, waiters=1,
            first=[A_WAITER]),
    look_at("one of format 1, who says less", {**A, **waiting("w"), "waiters w": '1 1 5 0 exclusive 0 [5,null,"u\\npid 1"]'}, owner("A", "a"), **HELD_A, waiters=1,
            first=[{"came": at(-5000), "mode": "exclusive", "slots": 0, "user": "u?pid 1"}]),
    look_at("the queue is of another type", {**A, "queue": ["x"]}, owner("A", "a"), **HELD_A, waiters=-1),
]

GONE_A = gone("lock", "lock ends")


def removed(name, state, answer, changes, hears=None, **words):
    return row(name, state, force(**words), answer, changes, hears)


NO_RUN = {"meta unended": ""}
LOST_RUN = {"meta unended": "", "meta run": run(0, "lost"), "meta history": past("lost", ""), "meta success": "", "meta failures": 1, "meta runs": 1}
BY = {"meta removed": 3000, "meta forced": "a A root@host\n"}
SAID = {"meta requests": Has(r'^req - \["lock",.*\]\n$')}
FORCE = [
    removed("held", A, looked(owner("A", "a"), **HELD_A), {**GONE_A, **BY, **SAID, **LOST_RUN}),
    removed("held, and its run has ended", {**A, "meta unended": ""}, looked(owner("A", "a"), **HELD_A), {**GONE_A, **BY, **SAID, **NO_RUN}),
    removed("held by one of which no runs are remembered", {**A, "meta kept": "0", "meta unended": ""}, looked(owner("A", "a"), **HELD_A),
            {**GONE_A, **BY, **SAID, **NO_RUN}),
    removed("the history is not said", {**A, "meta run": run(2, "status 0"), "meta history": past("status 0")}, looked(owner("A", "a"), **HELD_A, run=run(2, "status 0")),
            {**GONE_A, **BY, **SAID, **LOST_RUN, "meta history": past("lost", "") + past("status 0")}),
    removed("who removes it stays in one line", A, looked(owner("A", "a"), **HELD_A),
            {**GONE_A, **BY, **SAID, **LOST_RUN, "meta forced": "a A ro ot@host\n"},
            by="ro\not@host"),
    removed("others were removed before", {**A, "meta forced": "z Z x@y\n", "meta removed": 1000, "meta requests": "re - x\n"},
            looked(owner("A", "a"), **HELD_A, released=1000),
            {**GONE_A, **LOST_RUN, "meta removed": 3000, "meta forced": "a A root@host\nz Z x@y\n",
            "meta requests": Has(r'^req - \["lock",.*\]\nre - x\n$')}),
    removed("held, and its record cannot be read", held_by("A", "a", stored="?"), looked(stranger("A"), **HELD_A),
            {**GONE_A, **SAID, **NO_RUN, "meta removed": 3000, "meta forced": ""}),
    removed("held by a client of another kind", {"lock": "X", "lock ends": at(TTL)}, looked(stranger("X"), mode="exclusive"),
            {**GONE_A, **SAID, **NO_RUN, "meta removed": 3000, "meta forced": "", "meta ends": at(DAYS_30)}),
    removed("held by a client of another kind, and others were taken away before", {**A, "lock": "X", "meta unended": "", "meta forced": "z Z x@y\n"},
            looked(stranger("X"), **HELD_A), {**GONE_A, **SAID, "meta removed": 3000}),
    removed("held by a client of another kind, since a lease has ended", {**A, "lock": "X"}, looked(stranger("X"), **{**HELD_A, **LOST, "history": ""}),
            {**GONE_A, **SAID, **LOST_RUN, "meta removed": 3000, "meta forced": ""}),
    removed("a value of another type is no lock", {"lock": ["x"]}, ["unusable", "dlock:job", "it is no lock, but a list"], {}),
    row("a value of another type, which may not be asked for", {"lock": ["x"]}, force(),
        ["unusable", "dlock:job", "it is no lock, but a value of another type"], denied="type"),
    removed("another client's empty token", {"lock": "", "lock ends": at(TTL)}, looked(stranger(""), mode="exclusive"),
            {**GONE_A, **SAID, **NO_RUN, "meta removed": 3000, "meta forced": "", "meta ends": at(DAYS_30)}),
    removed("meta is no hash", {"lock": "A", "meta": ["x"]}, looked(stranger("A", -1), mode="exclusive"), GONE_A),
    removed("free", released("A", spent=None), looked(fence=5000, takes=1), {}),
    removed("nothing is known", {}, looked(), {}),
    removed("asked again, since the answer was lost", {**held_by("B", "b"), "meta requests": 'req - ["lock","as it was"]\n'}, ["lock", "as it was"],
            {}),
    removed("asked again, and what is remembered cannot be read", {**A, "meta requests": "req - x\n"}, looked(owner("A", "a"), **HELD_A),
            {**GONE_A, **BY, **LOST_RUN, "meta requests": Has(r'^req - \["lock",.*\]\nreq - x\n$')}),
    removed("asked again, and what is remembered is no list", {**A, "meta requests": "req - 5\n"}, looked(owner("A", "a"), **HELD_A),
            {**GONE_A, **BY, **LOST_RUN, "meta requests": Has(r'^req - \["lock",.*\]\nreq - 5\n$')}),
    removed("who waits is called, and not said", {**A, **waiting("w")}, looked(owner("A", "a"), **HELD_A, waiters=1),
            {**GONE_A, **BY, **SAID, **LOST_RUN, "waiters w": waiter(turn=1500)}, {"w": ["turn"]}),
    removed("shared: all of them", shared(sharer("A", "a"), sharer("B", "b", left=20000)),
            looked(owner("B", "b", 20000), owner("A", "a"), **SHARED_A),
            {**GONE_A, **SAID, **LOST_RUN, **gone("holders A", "holders B", "holders ends", "holder:A", "holder:A ends", "holder:B", "holder:B ends"),
             "meta failures": 2, "meta runs": 2, "meta history": 2 * past("lost", ""), "meta removed": 3000, "meta forced": "a A root@host\nb B root@host\n"}),
    removed("a slot", shared(sharer("A", "a", slot=1), mode="slots", slots=2),
            looked(owner("A", "a", slot=1), mode="slots", slots=2, fence=5000, takes=1),
            {**GONE_A, **BY, **SAID, **LOST_RUN, **gone("holders 1 A", "holders ends", "holder:A", "holder:A ends", "slots", "slots ends")}),
    removed("a share that is kept: its run has ended", shared(sharer("A", "a", released=True)), looked(owner("A", "a", released=True), **SHARED_A),
            {**GONE_A, **BY, **SAID, **NO_RUN, **gone("holders A", "holders ends", "holder:A", "holder:A ends")}),
    removed("a share without a record", without(shared(sharer("A", "a")), "holder:A"), looked(stranger("A"), **SHARED_A),
            {**GONE_A, **SAID, **NO_RUN, "meta removed": 3000, "meta forced": "", **gone("holders A", "holders ends")}),
    removed("the lock's key outlived the leases: nothing is taken away", shared(sharer("A", "a", left=-1000)), looked(**{**SHARED_A, **LOST, "history": ""}),
            {**GONE_A, **SAID, **LOST_RUN, "meta removed": "", "meta forced": "", **gone("holders A", "holders ends", "holder:A", "holder:A ends")}),
    removed("one share has ended: only the other is taken away", shared(sharer("A", "a"), sharer("O", "o", left=-1000)),
            looked(owner("A", "a"), **{**SHARED_A, **LOST, "history": ""}),
            {**GONE_A, **BY, **SAID, **LOST_RUN, "meta failures": 2, "meta runs": 2, "meta history": 2 * past("lost", ""),
             **gone("holders A", "holders O", "holders ends", "holder:A", "holder:A ends", "holder:O", "holder:O ends")}),
    row("a newer format", {**A, "meta format": NEWER}, force(), ["newer", NEWER]),
]

TABLES = {"look": STATE, "look at shares": SHARES, "look at waiters": WAITERS, "force": FORCE}
