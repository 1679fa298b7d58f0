"""Acquiring an exclusive lock and a shared one, and refusals."""

from table import *

REQUEST = record("b")
FIRST_TAKE = {"lock": "B", "lock ends": at(TTL), **meta(fence=us(0), owner="B", record=REQUEST, unended="1")}
# After a lock was acquired once and released.
ONCE = released()
AGAIN = {"lock": "B", "lock ends": at(TTL), "meta fence": us(0), "meta takes": 2, "meta owner": "B", "meta record": REQUEST, "meta unended": "1",
         "meta ends": at(TTL + KEPT)}
A = held_by("A", "a")
FIRST_FORMAT = held_by("A", "a", stored=record_1("a"), format=1)
BY_A = held(TTL, record("a"))
OTHERS = {"lock": "X", "lock ends": at(TTL)}
PAUSED = {"meta pause_ends": at(20000), "meta paused_by": "root@host", "meta pause_why": "repairs"}
PAUSE = {"paused": Left(20000), "paused_by": "root@host", "pause_why": "repairs"}
LOST = {"meta run": run(0, "lost"), "meta history": past("lost", ""), "meta runs": 1, "meta failures": 1, "meta success": ""}
HIGHEST = 9007199254740991

FREE = [
    row("the first take of all", {}, take("B"), taken(), FIRST_TAKE, plain=True),
    row("a lock that was released", ONCE, take("B"), taken(), AGAIN, plain=True),
    row("what it asks for is written", ONCE, take("B", ttl=5000, hold=3000, detached="1", waited=70, message="why"), taken(5000),
        {**AGAIN, "lock ends": at(5000), "meta ends": at(5000 + KEPT), "meta waited_ms": 70,
         "meta record": record("b", ttl="5000", hold=at(3000), detached="1", message="why")}, plain=True),
    row("waits are added up", {**ONCE, "meta waited_ms": 40}, take("B", waited=70), taken(), {**AGAIN, "meta waited_ms": 110}, plain=True),
    row("no runs are to be remembered", ONCE, take("B", remember=0), taken(),
        {**AGAIN, "meta unended": "", "meta kept": 0, "meta ends": at(TTL + DAYS_30)}, plain=True),
    row("no runs are to be remembered, and some are", {**ONCE, **LOST, "meta success": run(2, "status 0")}, take("B", remember=0), taken(),
        {**AGAIN, "meta unended": "", "meta kept": 0, "meta ends": at(TTL + DAYS_30), **gone(*LOST)}, plain=True),
    row("runs are to be remembered, and some are", {**ONCE, **LOST}, take("B"), taken(), AGAIN, plain=True),
    row("meta of the first format", without(ONCE, "meta format"), take("B"), taken(), {**AGAIN, "meta format": FORMAT}, plain=True),
    row("held in the first format", FIRST_FORMAT, take("B"), held(TTL, said(record("a", format=1)))),
    row("held in the first format: no text says more than its field", held_by("A", "a", stored=record_1("a", user="u\npid 1", message="50%"), format=1),
        take("B"), held(TTL, said(record("a", format=1, user="u?pid 1", message="50%25")))),
    row("it was held in the first format, and its lease has ended", without(FIRST_FORMAT, "lock"), take("B"), taken(),
        {**AGAIN, **LOST, "meta format": FORMAT}),
    row("a newer format", {**ONCE, "meta format": NEWER}, take("B"), ["newer", NEWER]),
    row("the last holder's lease ended before it released", without(A, "lock"), take("B"), taken(), {**AGAIN, **LOST}),
    row("and the runs before that one are counted", {**without(A, "lock"), "meta failures": 3, "meta runs": 5, "meta success": run(2, "status 0")},
        take("B"), taken(), {**AGAIN, **LOST, "meta failures": 4, "meta runs": 6, "meta success": run(2, "status 0")}),
    row("and the history has one more, whose length is not known", {**without(A, "lock"), "meta run": run(2, "status 0"), "meta history": past("status 0")}, take("B"), taken(),
        {**AGAIN, **LOST, "meta history": past("lost", "") + past("status 0")}),
    row("and no runs were to be remembered", {**without(A, "lock"), "meta kept": 0}, take("B"), taken(), {**AGAIN, "meta kept": KEPT}),
    row("and its record cannot be read", {**without(A, "lock"), "meta record": "?"}, take("B"), taken(), AGAIN),
    row("the fence is the last one's next if the clock is behind", {**ONCE, "meta fence": us(600000)}, take("B"), taken(fence=us(600000)),
        {**AGAIN, "meta fence": us(600000), "meta ends": at(TTL + KEPT + 600000)}, plain=True),
    row("the last fence is no number", {**ONCE, "meta fence": "x"}, take("B"), taken(), AGAIN, plain=True),
    row("the last fence is not a number that counts", {**ONCE, "meta fence": "nan"}, take("B"),
        ["unusable", "{dlock:job}:meta", "its fence has reached its maximum"], plain=True),
    row("the last fence but one", {**ONCE, "meta fence": HIGHEST - 1}, take("B"), taken(fence=HIGHEST),
        {**AGAIN, "meta fence": HIGHEST, "meta ends": Has("")}, plain=True),
    row("the last fence", {**ONCE, "meta fence": HIGHEST}, take("B"), ["unusable", "{dlock:job}:meta", "its fence has reached its maximum"], plain=True),
    row("the last fence, to share it", {**ONCE, "meta fence": HIGHEST}, share("B"),
        ["unusable", "{dlock:job}:meta", "its fence has reached its maximum"]),
    row("meta is no hash", {"meta": ["x"]}, take("B"), ["unusable", "{dlock:job}:meta", "it is not a hash"]),
    row("this take was given up", {**ONCE, "meta withdrawn": "y - \nb - \n"}, take("B"), ["unusable", "dlock:job", "this take was given up"]),
    row("another take was given up", {**ONCE, "meta withdrawn": "y - \nab - \nbc - \n"}, take("B"), taken(), AGAIN),
    row("this take was released", {**ONCE, "meta spent": "b B 900\n"}, take("B"), ["unusable", "dlock:job", "this take was given up"]),
    row("another take of this token was released", {**ONCE, "meta spent": "z B 900\n"}, take("B"), taken(), AGAIN, plain=True),
    row("the queue cannot be read", {**ONCE, "queue": ["x"]}, take("B"), taken(), AGAIN, plain=True),
]

# A request that is repeated because its reply was lost.
LOST_REPLY = [
    row("it was taken", A, take("A", again=True), taken(fence=5000), writes=True),
    row("it was taken some time ago", held_by("A", "a", left=20000), take("A", again=True), taken(20000, fence=5000)),
    row("it was taken, but this is not asked again", A, take("A"), BY_A),
    row("another take of this token", held_by("A", "x", stored=record("x")), take("A", again=True), held(TTL, record("x"))),
    row("it was taken, and released already", held_by("A", "a", stored=record("a", released=True)), take("A", again=True),
        held(TTL, record("a", released=True))),
    row("another's", A, take("B", again=True), BY_A),
    row("another's, of another kind", {**A, "lock": "X"}, take("A", again=True), held(TTL)),
    row("it was not taken, and is free", ONCE, take("B", again=True), taken(), AGAIN, plain=True),
    row("it was taken by a token of its own, and meta has gone: taken anew", {"lock": "b", "lock ends": at(1000)}, take("b", again=True), taken(),
        {**FIRST_TAKE, "lock": "b", "meta owner": "b"}),
    row("the token is not its own, and meta has gone", {"lock": "B", "lock ends": at(1000)}, take("B", again=True), held(1000)),
    row("a token of its own, and meta has gone, but this is not asked again", {"lock": "b", "lock ends": at(1000)}, take("b"), held(1000)),
    row("a token of its own, and meta is another's", {**A, "lock": "b"}, take("b", again=True), taken(),
        {**AGAIN, **LOST, "lock": "b", "meta owner": "b"}),
    row("a token of its own, meta is another's, and paused: released all the same", {**A, **PAUSED, "lock": "b"}, take("b", again=True),
        held(-1, ask=Left(20000), **PAUSE), gone("lock", "lock ends")),
    row("a token of its own, and meta is there", held_by("b", "b"), take("b", again=True), taken(fence=5000)),
]

REFUSED = [
    row("held", A, take("B"), BY_A),
    row("held, and how long the last runs took", {**A, "meta run": run(2, "status 0"), "meta history": past("status 0")}, take("B"), held(TTL, record("a"), history=past("status 0"))),
    row("held, to be shared", A, share("B"), BY_A),
    row("held by a shell that has detached it", held_by("A", "a", stored=record("a", detached="1")), take("B"), held(TTL, record("a", detached="1"))),
    row("held without an end", without(A, "lock ends"), take("B"), held(-1, record("a"))),
    row("released, and kept", held_by("A", "a", stored=record("a", released=True)), take("B"), held(TTL, record("a", released=True))),
    row("held by a client of another kind", OTHERS, take("B"), held(TTL)),
    row("held by a client of another kind since ours ended", {**A, "lock": "X"}, take("B"), held(TTL)),
    row("held by a value of another type", {"lock": ["x"]}, take("B"), held(-1)),
    row("held, and the record cannot be read", held_by("A", "a", stored="?"), take("B"), held(TTL)),
    row("a conflict is counted", A, take("B", refusal="conflict"), BY_A,
        {"counts conflicts": 1, "counts skips": 1, "counts skips_of": "", "counts ends": at(KEPT)}),
    row("a timeout is counted, and how long it waited", {**A, "counts timeouts": 4, "counts waited_ms": 5, "counts skips": 2, "counts skips_of": ""},
        take("B", refusal="timeout", waited=70), BY_A,
        {"counts timeouts": 5, "counts skips": 3, "counts waited_ms": 75, "counts ends": at(KEPT)}),
    row("counts are kept for 30 days at least", {**A, "meta kept": 1}, take("B", refusal="conflict"), BY_A,
        {"counts conflicts": 1, "counts skips": 1, "counts skips_of": "", "counts ends": at(DAYS_30)}),
    row("skips are those since the last success",
        {**A, "meta success": run(2222, "status 0"), "counts skips": 7, "counts skips_of": "1111"}, take("B", refusal="conflict"), BY_A,
        {"counts conflicts": 1, "counts skips": 1, "counts skips_of": "2222", "counts ends": at(KEPT)}),
    row("and no others are added to them",
        {**A, "meta success": run(2222, "status 0"), "counts skips": 7, "counts skips_of": "2222"}, take("B", refusal="conflict"), BY_A,
        {"counts conflicts": 1, "counts skips": 8, "counts ends": at(KEPT)}),
    row("skips are not counted if no runs are remembered", {**A, "meta kept": "0"}, take("B", refusal="conflict"), BY_A,
        {"counts conflicts": 1, "counts ends": at(DAYS_30)}),
    row("skips that are no number begin anew", {**A, "counts skips": "x", "counts skips_of": ""}, take("B", refusal="conflict"), BY_A,
        {"counts conflicts": 1, "counts skips": 1, "counts ends": at(KEPT)}),
    row("a queue of another type: how many wait is not known", {**A, "queue": ["x"]}, take("B"), held(TTL, record("a"), ahead=-1)),
    row("counts of another type hinder nothing", {**A, "counts": ["x"]}, take("B", refusal="conflict"), BY_A, {"counts ends": at(KEPT)}),
    row("paused", {**ONCE, **PAUSED}, take("B"), held(-1, ask=Left(20000), **PAUSE)),
    row("paused, to be shared", {**ONCE, **PAUSED}, share("B"), held(-1, ask=Left(20000), **PAUSE)),
    row("the pause is over", {**ONCE, **PAUSED, "meta pause_ends": at(-1000)}, take("B"), taken(), AGAIN),
    row("the pause is no number", {**ONCE, **PAUSED, "meta pause_ends": "x"}, take("B"), taken(), AGAIN),
    row("paused for ever", {**ONCE, **PAUSED, "meta pause_ends": "inf"}, take("B"),
        held(-1, ask=Has(r"^90\d{14}$"), **{**PAUSE, "paused": Has(r"^90\d{14}$")})),
    row("held, and paused for longer", {**held_by("A", "a", left=5000), **PAUSED}, take("B"), held(5000, record("a"), ask=Left(20000), **PAUSE)),
    row("held, and paused for less", {**A, **PAUSED}, take("B"), held(TTL, record("a"), **PAUSE)),
    row("held without an end, and paused", {**without(A, "lock ends"), **PAUSED}, take("B"), held(-1, record("a"), **PAUSE)),
    row("paused, and taken already: the reply was lost", {**A, **PAUSED}, take("A", again=True), taken(fence=5000)),
]

# The last success began at 1,000,000 by the clock of its host.
DONE_BEFORE = {**ONCE, "meta success": run(1600000, "status 0", since=1000000), "meta failures": 0, "meta runs": 0}
DONE = ["done", 1000000, "h"]
SKIPPED = {"counts skips": 1, "counts skips_of": 1600000, "counts ends": at(KEPT)}
ONCE_PER = [
    row("done lately", DONE_BEFORE, take("B", since=1500000, once_per=500001), DONE, SKIPPED),
    row("done just so long ago", DONE_BEFORE, take("B", since=1500000, once_per=500000), taken(),
        {**AGAIN, "meta record": record("b", since="1500000")}),
    row("by a clock that is ahead", DONE_BEFORE, take("B", since=500000, once_per=500001), DONE, SKIPPED),
    row("by a clock that is ahead by just so much", DONE_BEFORE, take("B", since=500000, once_per=500000), taken(),
        {**AGAIN, "meta record": record("b", since="500000")}),
    row("nobody asks whether it is done", DONE_BEFORE, take("B", since=1500000), taken(), {**AGAIN, "meta record": record("b", since="1500000")}, plain=True),
    row("never done", ONCE, take("B", since=1500000, once_per=500001), taken(), {**AGAIN, "meta record": record("b", since="1500000")}),
    row("a success that cannot be read", {**ONCE, "meta success": "x"}, take("B", since=1500000, once_per=500001), taken(),
        {**AGAIN, "meta record": record("b", since="1500000")}),
    row("a success of which only the begin can be read", {**ONCE, "meta success": "1000000"}, take("B", since=1500000, once_per=500001),
        ["done", 0, ""], {**SKIPPED, "counts skips_of": ""}),
    row("done lately, and held", {**DONE_BEFORE, **without(A, "meta ends")}, take("B", since=1500000, once_per=500001), DONE, SKIPPED),
    row("done lately, and not to be refused as held", {**DONE_BEFORE, **without(A, "meta ends")},
        take("B", since=1500000, once_per=500001, refusal="conflict"), DONE, SKIPPED),
    row("done lately, to be shared", DONE_BEFORE, share("B", since=1500000, once_per=500001), DONE, SKIPPED),
    row("one that waits has waited, and leaves the queue", {**DONE_BEFORE, **waiting("b")},
        take("B", since=1500000, once_per=500001, came=us(-5000), waited=70), DONE, {**SKIPPED, **left_queue("b"), "counts waited_ms": 70}),
    row("none is remembered any more", {**DONE_BEFORE, "meta kept": "0"}, take("B", since=1500000, once_per=500001), DONE, {}),
]

# --- fences of a quorum ---------------------------------------------------

def fenced(case, last, proposed, fence, **joins):
    """A request that proposes a fence, or joins with one, for a lock whose last fence is `last`."""
    ends = {"meta ends": at(TTL + KEPT + 600000)} if fence == us(600000) else {}
    return row(case, {**ONCE, "meta fence": last}, take("B", fence=proposed, **joins), taken(fence=fence), {**AGAIN, "meta fence": fence, **ends},
               plain=True)


FENCES = [
    fenced("a proposed fence of the last second", 5000, us(-800), us(-800)),
    fenced("a proposed fence that is older", 5000, us(-1200), us(0)),
    fenced("a proposed fence ahead of the clock", 5000, us(200), us(0)),
    fenced("a proposed fence below the last one", us(-400), us(-800), us(-400)),
    fenced("a proposed fence, and the last one is ahead of the clock", us(600000), us(-500), us(600000)),
    row("a proposed fence where none is known", {}, take("B", fence=us(-500)), taken(), FIRST_TAKE, plain=True),
    fenced("the fence of a lease that joins", 5000, 6000, 6000, joins="1"),
    fenced("the fence of a lease that joins, ahead of the clock", 5000, us(600000), us(600000), joins="1"),
    fenced("a lease that joins has a lower fence", 5000, 4000, 5000, joins="1"),
    row("the fence of a lease that joins where none is known", {}, take("B", fence=6000, joins="1"), taken(fence=6000),
        {**FIRST_TAKE, "meta fence": 6000}, plain=True),
]

# --- shared --------------------------------------------------------------

def first(slot=-1, **changes):
    """The first share of a free lock that was acquired once."""
    mine = record("b", fence=us(0), slot=slot, round=Has(r"^dlock:shared:\d{16}$"), ends=at(TTL))
    return {"lock": Has(r"^dlock:shared:\d{16}$"), "lock ends": at(1.5 * TTL), "holder:B": mine, "holder:B ends": at(TTL + LOST_KEPT),
            "holders " + ("%d B" % slot if slot >= 0 else "B"): at(TTL), "holders ends": at(TTL + LOST_KEPT),
            **({"slots": (slot,), "slots ends": at(TTL + LOST_KEPT), "meta mode": "slots"} if slot >= 0 else {"meta mode": "shared"}),
            "meta fence": us(0), "meta takes": 2, "meta ends": at(TTL + KEPT), **changes}


def joined(slot=-1, slots=None, **changes):
    """One more holder beside one."""
    return {"holder:B": record("b", fence=us(0), slot=slot, round=ROUND, ends=at(TTL)), "holder:B ends": at(TTL + LOST_KEPT),
            "holders " + ("%d B" % slot if slot >= 0 else "B"): at(TTL), "meta fence": us(0), "meta takes": 2, "meta ends": at(TTL + KEPT),
            **({"slots": slots} if slots else {}), **changes}


S = sharer("A", "a")
TWO = shared(sharer("A", "a", slot=0), sharer("C", "c", left=20000, slot=2), mode="slots", slots=3)


def refused_share(left=TTL, by=None, mode="shared", **other):
    return held(left, record("a") if by is None else by, mode, **other)


SHARED = [
    row("the first of all", {}, share("B"), taken(), {**first(), **meta(fence=us(0), mode="shared")}),
    row("the first, after an exclusive lock", ONCE, share("B"), taken(), first()),
    row("the first, after one of the same token, which is history", released("B"), share("B"), taken(), first(**gone("meta owner", "meta record"))),
    row("the first, after a lease that ended", without(held_by("A", "a"), "lock"), share("B"), taken(), first(**LOST, **{"meta unended": ""})),
    row("the first of some slots", ONCE, slot_of(2, "B"), taken(slot=0), first(0, **{"meta slots": 2})),
    row("one more", shared(S), share("B"), taken(), joined()),
    row("one more, but the lock's expiry may not be read: nobody joins", shared(S), share("B"), ["ERROR", Has("ermission|user executing")],
        {"meta fence": us(0), "meta takes": 2, "meta ends": at(TTL + KEPT)}, denied="pttl"),
    row("one more, while it is held in the first format", shared(S, format=1), share("B"), refused_share()),
    row("one more, for which the lock must last longer", shared(S, left=TTL + 1000), share("B", ttl=2 * TTL), taken(2 * TTL),
        joined(**{"lock ends": at(3 * TTL), "holders ends": at(2 * TTL + LOST_KEPT), "holders B": at(2 * TTL), "holder:B ends": at(2 * TTL + LOST_KEPT),
                  "meta ends": at(2 * TTL + KEPT),
                  "holder:B": record("b", ttl=2 * TTL, fence=us(0), slot=-1, round=ROUND, ends=at(2 * TTL))})),
    row("one more, beside a longer lease", shared(sharer("A", "a", left=3 * TTL), left=2 * TTL), share("B"), taken(),
        joined(**{"lock ends": at(4.5 * TTL), "holders ends": at(3 * TTL + LOST_KEPT)})),
    row("the lowest free slot", TWO, slot_of(3, "B"), taken(slot=1), joined(1, (0, 1, 2))),
    row("the last slot", shared(sharer("A", "a", slot=0), mode="slots", slots=2), slot_of(2, "B"), taken(slot=1), joined(1, (0, 1))),
    row("no slot is free", shared(sharer("A", "a", left=20000, slot=0), sharer("C", "c", slot=1), mode="slots", slots=2), slot_of(2, "B"),
        refused_share(20000, mode="slots", slots=2, slots_taken=2)),
    row("the map of slots has gone: none is free", without(shared(sharer("A", "a", slot=0), mode="slots", slots=2), "slots"), slot_of(2, "B"),
        refused_share(mode="slots", slots=2, slots_taken=1)),
    row("this token has one already", shared(sharer("B", "x", left=20000), S), share("B"), refused_share(20000, record("x"))),
    row("this token has one already, released and kept", shared(sharer("B", "x", released=True), S), share("B"),
        refused_share(TTL, record("x", released=True))),
    row("this token has had one in an earlier round", shared(S, both({"holder:B": record("x", round="dlock:shared:1", ends=at(TTL))})), share("B"),
        taken(), joined()),
    row("exclusive, while it is shared", shared(S), take("B"), refused_share()),
    row("slots, while it is shared", shared(S), slot_of(2, "B"), refused_share()),
    row("shared, while it has slots", TWO, share("B"), refused_share(mode="slots", slots=3, slots_taken=2)),
    row("more slots than it has", TWO, slot_of(4, "B"), refused_share(mode="slots", slots=3, slots_taken=2)),
    row("exclusive: until the last lease ends", shared(sharer("A", "a", left=20000), sharer("C", "c", left=30000)), take("B"),
        refused_share(30000, record("c"))),
    row("an older format: no join", {**shared(S), "meta format": "0"}, share("B"), refused_share()),
    row("without meta: its mode is not known", without(shared(S), "meta"), share("B"), refused_share()),
    row("without the set: nobody joins until the lock's key goes", without(shared(S), "holders"), share("B"), held(1.5 * TTL, mode="shared")),
    row("without set and meta", {"lock": ROUND, "lock ends": at(1000)}, share("B"), held(1000, mode="shared")),
    row("all leases have ended: shared anew", shared(sharer("A", "a", left=-1000)), share("B"), taken(),
        first(**gone("holder:A", "holder:A ends", "holders A"), **{**LOST, "meta unended": ""})),
    row("all leases have ended: exclusive", shared(sharer("A", "a", left=-1000)), take("B"), taken(),
        {**AGAIN, "meta mode": "exclusive", **gone("holder:A", "holder:A ends", "holders A", "holders ends"), **LOST}),
    row("all leases have ended, and the holder had released", shared(sharer("A", "a", left=-1000, released=True)), take("B"), taken(),
        {**AGAIN, "meta mode": "exclusive", **gone("holder:A", "holder:A ends", "holders A", "holders ends")}),
    row("paused: nobody joins", {**shared(S), **PAUSED}, share("B"), refused_share(ask=Left(20000), **PAUSE)),
    row("paused for longer than its lease", {**shared(sharer("A", "a", left=5000)), **PAUSED}, share("B"),
        refused_share(5000, ask=Left(20000), **PAUSE)),
    row("the pause is over", {**shared(S), **PAUSED, "meta pause_ends": at(-1)}, share("B"), taken(), joined()),
]

OLD = sharer("O", "o", left=-1000)
DROP_O = gone("holder:O", "holder:O ends", "holders O")
DROPPED = [
    row("a lease that has ended is dropped, and its run remembered as lost", shared(S, OLD), share("B"), taken(),
        joined(**DROP_O, **LOST, **{"meta unended": ""})),
    row("one that was released is not", shared(S, sharer("O", "o", left=-1000, released=True)), share("B"), taken(), joined(**DROP_O)),
    row("one without a record is not", without(shared(S, OLD), "holder:O"), share("B"), taken(), joined(**gone("holders O"))),
    row("one that has a lease by its record is dropped from the set alone",
        shared(S, {**OLD, "holder:O": {**OLD["holder:O"], "ends": at(TTL)}}), share("B"), taken(), joined(**gone("holders O"))),
    row("its slot is free", shared(sharer("A", "a", slot=1), sharer("O", "o", left=-1000, slot=0), mode="slots", slots=2), slot_of(2, "B"),
        taken(slot=0), joined(0, (0, 1), **gone("holder:O", "holder:O ends", "holders 0 O"), **LOST, **{"meta unended": ""})),
    row("20 at a time are dropped", shared(S, *(sharer("O%02d" % i, "o", left=-1000 - i, released=True) for i in range(22))), share("B"), taken(),
        joined(**{place: GONE for i in range(2, 22) for place in ("holder:O%02d" % i, "holder:O%02d ends" % i, "holders O%02d" % i)})),
    row("and of a free lock, the others go with the set",
        without(shared(*(sharer("O%02d" % i, "o", left=-1000 - i, released=True) for i in range(22))), "lock"), take("B"), taken(),
        {**AGAIN, "meta mode": "exclusive", "holders ends": GONE,
         **{place: GONE for i in range(2, 22) for place in ("holder:O%02d" % i, "holder:O%02d ends" % i)},
         **{"holders O%02d" % i: GONE for i in range(22)}}),
    row("an exclusive lock after an exclusive one looks for none", {**ONCE, "holders O": at(-1000)}, take("B", once_per=1), taken(), AGAIN),
    row("nor does an exclusive lock that is the first of all", {"holders O": at(-1000)}, take("B", once_per=1), taken(), FIRST_TAKE),
    row("a set of another type goes", {**ONCE, "meta mode": "shared", "holders": ["x"]}, take("B"), taken(), {**AGAIN, "meta mode": "exclusive", "holders": GONE}),
    row("one that is shared after an exclusive one does", {**ONCE, "holders O": at(-1000)}, share("B"), taken(), first(**gone("holders O"))),
    row("the map of slots goes as well", without(shared(sharer("O", "o", slot=1, left=-1000, released=True), mode="slots", slots=2), "lock"),
        share("B"), taken(), first(**gone("holder:O", "holder:O ends", "holders 1 O", "slots", "slots ends"), **{"meta slots": 0})),
]

B_TAKEN = sharer("B", "b", left=20000)
LOST_SHARE = [
    row("it was taken", shared(B_TAKEN, S), share("B", again=True), taken(20000, fence=5000), writes=True),
    row("a slot was taken", shared(sharer("B", "b", slot=1), sharer("A", "a", slot=0), mode="slots", slots=2), slot_of(2, "B", again=True),
        taken(slot=1, fence=5000)),
    row("it was taken, and its record names no slot", {**shared(B_TAKEN, S), "holder:B": without(B_TAKEN["holder:B"], "slot")},
        share("B", again=True), taken(20000, fence=5000)),
    row("it was taken, and the mode is not that of the others any longer", shared(B_TAKEN, S), take("B", again=True), taken(20000, fence=5000)),
    row("it was taken, but this is not asked again", shared(B_TAKEN, S), share("B"), refused_share(20000, record("b"))),
    row("another take of this token", shared(sharer("B", "x", left=20000), S), share("B", again=True), refused_share(20000, record("x"))),
    row("released already, and kept", shared(sharer("B", "b", left=20000, released=True), S), share("B", again=True),
        refused_share(20000, record("b", released=True))),
    row("it was taken, and meta has gone: written again", without(shared(B_TAKEN, S), "meta"), share("B", again=True), taken(20000, fence=5000),
        meta(fence=5000, mode="shared")),
    row("its record has gone, but the token is its own: taken anew", without(shared(sharer("b", "b", left=20000), S), "holder:b"),
        share("b", again=True), taken(),
        {"holder:b": record("b", fence=us(0), slot=-1, round=ROUND, ends=at(TTL)), "holder:b ends": at(TTL + LOST_KEPT), "holders b": at(TTL),
         "meta fence": us(0), "meta takes": 2, "meta ends": at(TTL + KEPT)}),
    row("the same, and it was the only one: a new round", without(shared(sharer("b", "b", left=20000)), "holder:b"), share("b", again=True), taken(),
        {"lock": Has(r"^dlock:shared:\d{16}$"), "lock ends": at(1.5 * TTL),
        "holder:b": record("b", fence=us(0), slot=-1, round=Has(r"^dlock:shared:\d{16}$"), ends=at(TTL)),
         "holder:b ends": at(TTL + LOST_KEPT), "holders b": at(TTL), "holders ends": at(TTL + LOST_KEPT), "meta fence": us(0), "meta takes": 2,
         "meta ends": at(TTL + KEPT)}),
    row("the same, but this is not asked again: one of the set has no record", without(shared(sharer("b", "b", left=20000), S), "holder:b"),
        share("b"), taken(),
        {"holder:b": record("b", fence=us(0), slot=-1, round=ROUND, ends=at(TTL)), "holder:b ends": at(TTL + LOST_KEPT), "holders b": at(TTL),
         "meta fence": us(0), "meta takes": 2, "meta ends": at(TTL + KEPT)}),
    row("its record is there, and the token its own", shared(sharer("b", "b", left=20000), S), share("b", again=True), taken(20000, fence=5000)),
    row("all have ended, this one's as well: taken anew", shared(sharer("B", "b", left=-1000)), share("B", again=True), taken(),
        {**first(**LOST, **{"meta unended": ""})}),
]

TABLES = {"free": FREE, "lost reply": LOST_REPLY, "refused": REFUSED, "once-per": ONCE_PER, "fences": FENCES, "shared": SHARED, "dropped": DROPPED,
          "lost reply, shared": LOST_SHARE}
