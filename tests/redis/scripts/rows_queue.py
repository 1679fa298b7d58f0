"""The queue: who joins it and how, whose turn it is, who is dropped, who is called."""

from table import *

HOUR = 3600000
A = held_by("A", "a")
BY_A = held(TTL, record("a"))
FREE = released("Z")
FREED_BY_B = {"lock": "B", "lock ends": at(TTL), "meta fence": us(0), "meta takes": 2, "meta owner": "B", "meta record": record("b"),
              "meta unended": "1", "meta ends": at(TTL + KEPT)}
IN_QUEUE = {"queue b": us(0), "waiters b": waiter(asked=0), "queue ends": at(HOUR), "waiters ends": at(HOUR)}
MUTE_QUEUE = {**IN_QUEUE, "waiters b": waiter(listens=False, asked=0)}
HELD_60 = Has("^held (60000|59...)$")


def queue(token="B", **other):
    return take(token, **{"refusal": "queues", "listens": "1", **other})


def by_a(**other):
    return held(TTL, record("a"), **other)


JOIN = [
    row("the first one", A, queue(), BY_A, IN_QUEUE),
    row("it cannot listen", A, queue(listens="0"), BY_A, MUTE_QUEUE),
    row("it tries whether it may call others, and may", A, queue(listens="try"), BY_A, IN_QUEUE),
    row("it may not call others", A, queue(listens="try"), by_a(uncalled=Has("^PUBLISH: ")), MUTE_QUEUE, denied="publish"),
    row("it knows that it may call others", A, queue(), BY_A, IN_QUEUE, denied="publish"),
    row("it may not join", A, queue(), by_a(ahead=-1, uncalled=Has("^ZADD: ")),
        {"waiters b": waiter(listens=False, asked=0), "waiters ends": at(HOUR)}, denied="zadd"),
    row("it may not write of itself", A, queue(), by_a(uncalled=Has("^HSET: ")), {"queue b": us(0), "queue ends": at(HOUR)}, denied="hset"),
    row("the queue is of another type", {**A, "queue": ["x"]}, queue(), by_a(ahead=-1),
        {"waiters b": waiter(asked=0), "waiters ends": at(HOUR), "queue ends": at(HOUR)}),
    row("what it asks for is written", A, queue(mode="slots", slots=3), BY_A, {**IN_QUEUE, "waiters b": waiter(asked=0, mode="slots", slots=3)}),
    row("behind another", {**A, **waiting("w")}, queue(), by_a(ahead=1), IN_QUEUE),
    row("behind two", {**A, **waiting("w"), **waiting("v", came=-4000, listens=False)}, queue(), by_a(ahead=2), IN_QUEUE),
    row("the dead before it are dropped", {**A, **waiting("w", alive=False), **waiting("v", came=-4000, alive=False)}, queue(), BY_A,
        {**IN_QUEUE, **left_queue("w"), **left_queue("v")}),
    row("the dead behind the first are not looked at", {**A, **waiting("w"), **waiting("v", came=-4000, alive=False)}, queue(), by_a(ahead=2),
        IN_QUEUE),
    row("one behind dead ones is the first, and hears how long", {**A, **waiting("w", alive=False), **waiting("v", came=-4000)}, queue(),
        by_a(ahead=1),
        {**IN_QUEUE, **left_queue("w")}, {"v": [HELD_60]}),
    row("it asks again: it has its place by when it came", {**A, **waiting("w", came=-1000), **waiting("b", asked=-900)}, queue(came=us(-3000)),
        by_a(came=us(-3000)), {**IN_QUEUE, "queue b": us(-3000)}),
    row("it came later than now, by a clock that was set back", A, queue(came=us(5000)), BY_A, IN_QUEUE),
    row("it was called, and is refused: its turn is over", {**A, **waiting("b", turn=1000)}, queue(came=us(-5000)), by_a(came=us(-5000)),
        {**IN_QUEUE, "queue b": us(-5000)}),
    row("one that only asks counts those that wait", {**A, **waiting("w"), **waiting("v", alive=False)}, take("B"), by_a(ahead=2)),
    row("it gives up with a conflict", {**A, **waiting("b"), **waiting("v", came=-4000)}, take("B", refusal="conflict", came=us(-5000)),
        by_a(ahead=1, came=us(-5000)),
        {**left_queue("b"), "counts conflicts": 1, "counts skips": 1, "counts skips_of": "", "counts ends": at(KEPT)}, {"v": [HELD_60]}),
    row("it gives up behind another", {**A, **waiting("w"), **waiting("b", came=-4000)}, take("B", refusal="timeout", came=us(-4000), waited=1),
        by_a(ahead=1, came=us(-4000)),
        {**left_queue("b"), "counts timeouts": 1, "counts waited_ms": 1, "counts skips": 1, "counts skips_of": "", "counts ends": at(KEPT)}),
    row("one that never waited leaves no queue", {**A, **waiting("b")}, take("B", refusal="conflict"), by_a(ahead=1),
        {"counts conflicts": 1, "counts skips": 1, "counts skips_of": "", "counts ends": at(KEPT)}),
]


def reserved(ask=1500, ahead=1, **other):
    """The lock is free, and kept for a waiter."""
    return held(-1, ask=Left(ask), reserved="1", ahead=ahead, **other)


W, V = waiting("w"), waiting("v", came=-4000)
CALLED_W = {"waiters w": waiter(turn=1500)}
POLLER = {"listens": False, "alive": False}
TURN = [
    row("the first waiter is called", {**FREE, **W}, take("B"), reserved(), CALLED_W, {"w": ["turn"]}),
    row("and one behind it, which may have to act in its stead", {**FREE, **W, **V}, take("B"), reserved(ahead=2),
        {**CALLED_W, "waiters v": waiter(turn=1500)}, {"w": ["turn"], "v": ["turn"]}),
    row("and none behind the one that asks", {**FREE, **W, **waiting("b", came=-4500), **V}, queue(came=us(-4500)), reserved(came=us(-4500)),
        {**CALLED_W, **IN_QUEUE, "queue b": us(-4500)}, {"w": ["turn"]}),
    row("nor one that is called already", {**FREE, **W, **waiting("v", came=-4000, turn=700), **waiting("u", came=-3000, turn=-100)}, take("B"),
        reserved(ahead=3), CALLED_W, {"w": ["turn"]}),
    row("nor one in a newer format", {**FREE, **W, **waiting("v", came=-4000, number=NEWER)}, take("B"), reserved(ahead=2), CALLED_W, {"w": ["turn"]}),
    row("one behind it that cannot listen has its turn until it should have asked",
        {**FREE, **W, **waiting("v", came=-4000, asked=-1000, **POLLER)}, take("B"), reserved(ahead=2),
        {**CALLED_W, "waiters v": waiter(listens=False, asked=-1000, turn=3500)}, {"w": ["turn"]}),
    row("and one more joins the queue", {**FREE, **W}, queue(), reserved(), {**CALLED_W, **IN_QUEUE}, {"w": ["turn"]}),
    row("those behind it are called as far as the 65th place", {**FREE, **both(*(waiting("t%02d" % i, came=-9000 + i) for i in range(67)))},
        take("B"), reserved(ahead=67), {"waiters t%02d" % i: waiter(turn=1500) for i in range(65)}, {"t%02d" % i: ["turn"] for i in range(65)}),
    row("it was called already", {**FREE, **waiting("w", turn=700)}, take("B"), reserved(700)),
    row("its turn is over: dropped", {**FREE, **waiting("w", turn=-100)}, take("B"), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("its turn is over: the next are called", {**FREE, **waiting("w", turn=-100), **V, **waiting("u", came=-3000)}, take("B"), reserved(ahead=2),
        {**left_queue("w"), "waiters v": waiter(turn=1500), "waiters u": waiter(turn=1500)}, {"v": ["turn"], "u": ["turn"]}),
    row("their turn is over: dropped, and the next takes it",
        {**FREE, **both(*(waiting("t%02d" % i, came=-9000 + i, turn=-100) for i in range(64))), **waiting("b", came=-4000)},
        queue(came=us(-4000)), taken(), {**FREED_BY_B, **left_queue("b"), **both(*(left_queue("t%02d" % i) for i in range(64)))},
        {"b": ["near"], **{"t%02d" % i: ["near"] for i in range(8, 64)}}),
    row("its turn would be too long, by a clock that was set back: over", {**FREE, **waiting("w", turn=5000)}, take("B"), taken(),
        {**FREED_BY_B, **left_queue("w")}),
    row("its turn is as long as may be", {**FREE, **waiting("w", turn=4400)}, take("B"), reserved(4400)),
    row("dead: dropped", {**FREE, **waiting("w", alive=False)}, take("B"), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("dead: the next is called", {**FREE, **waiting("w", alive=False), **V}, take("B"), reserved(),
        {**left_queue("w"), "waiters v": waiter(turn=1500)}, {"v": ["held -2", "turn"]}),
    row("dead, and one has its turn", {**FREE, **waiting("w", alive=False), **waiting("v", came=-4000, turn=700)}, take("B"), reserved(700),
        left_queue("w"), {"v": ["held -2"]}),
    row("one that cannot listen counts until it should have asked", {**FREE, **waiting("w", asked=-1000, **POLLER)}, take("B"), reserved(3500),
        {"waiters w": waiter(listens=False, asked=-1000, turn=3500)}),
    row("nearly as long", {**FREE, **waiting("w", asked=-4300, **POLLER)}, take("B"), reserved(200),
        {"waiters w": waiter(listens=False, asked=-4300, turn=200)}),
    row("and no longer", {**FREE, **waiting("w", asked=-4600, **POLLER)}, take("B"), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("nor if it has asked in the future", {**FREE, **waiting("w", asked=1000, **POLLER)}, take("B"), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("whoever listens counts, however long ago it asked", {**FREE, **waiting("w", asked=-999999)}, take("B"), reserved(),
        {"waiters w": waiter(asked=-999999, turn=1500)}, {"w": ["turn"]}),
    row("nothing is known of it: dropped", without({**FREE, **W}, "waiters w"), take("B"), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("it gave up: dropped", {**FREE, **W, "waiters w": "gone"}, take("B"), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("nothing can be dropped: nobody is called", {**FREE, **waiting("w", alive=False)}, take("B"), taken(), FREED_BY_B, denied="zrem"),
    row("nothing can be dropped of what is over", {**FREE, **waiting("w", turn=-100)}, take("B"), taken(), FREED_BY_B, denied="zrem"),
    row("whether it lives cannot be known: it counts", {**FREE, **waiting("w", alive=False)}, take("B"), reserved(), CALLED_W, denied="pubsub"),
    row("a newer format that listens: called, and nobody else may have it", {**FREE, **waiting("w", number=NEWER)}, take("B"), ["newer", NEWER], {},
        {"w": ["turn"]}),
    row("a newer format that does not listen: dropped", {**FREE, **waiting("w", alive=False, number=NEWER)}, take("B"), taken(),
        {**FREED_BY_B, **left_queue("w")}),
    row("a newer format that cannot be read further", {**FREE, **W, "waiters w": "%d and more" % NEWER}, take("B"), ["newer", NEWER], {},
        {"w": ["turn"]}),
    row("a newer format while it is held", {**A, **waiting("w", number=NEWER)}, take("B"), by_a(ahead=1)),
    row("the first one takes it", {**FREE, **waiting("b", turn=700)}, queue(came=us(-5000)), taken(), {**FREED_BY_B, **left_queue("b")},
        plain=True),
    row("the first one takes it without having been called", {**FREE, **waiting("b")}, queue(came=us(-5000)), taken(),
        {**FREED_BY_B, **left_queue("b")}, plain=True),
    row("the first one takes it, and the next hears how long", {**FREE, **waiting("b"), **V}, queue(came=us(-5000)), taken(),
        {**FREED_BY_B, **left_queue("b")}, {"v": [HELD_60]}, plain=True),
    row("the first one takes it, and the next is dead", {**FREE, **waiting("b"), **waiting("w", came=-4500, alive=False), **V}, queue(came=us(-5000)),
        taken(),
        {**FREED_BY_B, **left_queue("b"), **left_queue("w")}, {"v": [HELD_60]}, plain=True),
    row("the dead before it are dropped", {**FREE, **waiting("w", alive=False), **waiting("b", came=-4000)}, queue(came=us(-4000)), taken(),
        {**FREED_BY_B, **left_queue("w"), **left_queue("b")}),
    row("it comes behind another, and has joined the queue", {**FREE, **W, **waiting("b", came=-4000, asked=-900)}, queue(came=us(-4000)),
        reserved(came=us(-4000)),
        {**CALLED_W, **IN_QUEUE, "queue b": us(-4000)}, {"w": ["turn"]}),
    row("one that takes it was not in the queue", {**FREE, **waiting("w", alive=False)}, queue(), taken(), {**FREED_BY_B, **left_queue("w")}),
    row("paused: nobody is called", {**FREE, **W, "meta pause_ends": at(20000)}, take("B"),
        held(-1, ask=Left(20000), ahead=1, paused=Left(20000))),
    row("a slot of a free lock: the first waiter is called", {**FREE, **W}, slot_of(2, "B"), reserved(), CALLED_W, {"w": ["turn"]}),
    row("--once-per: the first waiter is called", {**FREE, **W}, take("B", once_per=1000), reserved(), CALLED_W, {"w": ["turn"]}),
]

S = sharer("A", "a")
THREE = shared(sharer("A", "a", slot=0), sharer("C", "c", left=20000, slot=1), mode="slots", slots=3)


def no_join(left=TTL, ask=None, mode="shared", by="a", **other):
    return held(left, record(by), mode, ask=Left(ask or left), **{"ahead": 1, **other})


def join_b(slot=-1, **changes):
    return {"holder:B": record("b", fence=us(0), slot=slot, round=ROUND, ends=at(TTL)), "holder:B ends": at(TTL + LOST_KEPT),
            "holders " + ("%d B" % slot if slot >= 0 else "B"): at(TTL), "meta fence": us(0), "meta takes": 2, "meta ends": at(TTL + KEPT), **changes}


SHARED = [
    row("nobody overtakes one that waits for all holders", {**shared(S), **W}, share("B"), no_join()),
    row("if that has not asked lately it must show that it lives", {**shared(S), **waiting("w", asked=-1100)}, share("B"), no_join(ask=1500),
        {"waiters w": waiter(asked=-1100, turn=1500)}, {"w": ["turn"]}),
    row("nor if it has asked in the future", {**shared(S), **waiting("w", asked=5000)}, share("B"), no_join(ask=1500),
        {"waiters w": waiter(asked=5000, turn=1500)}, {"w": ["turn"]}),
    row("it does not fit: those behind it are not called", {**shared(S), **waiting("w", asked=-1100), **waiting("v", came=-4000)}, share("B"),
        no_join(ask=1500, ahead=2), {"waiters w": waiter(asked=-1100, turn=1500)}, {"w": ["turn"]}),
    row("it did not: dropped, and those behind it must show the same", {**shared(S), **waiting("w", turn=-100), **waiting("v", came=-4000, asked=-1100),
        **waiting("u", came=-3000)}, share("B"), no_join(ask=1500, ahead=2),
        {**left_queue("w"), "waiters v": waiter(asked=-1100, turn=1500), "waiters u": waiter(turn=1500)}, {"v": ["turn"], "u": ["turn"]}),
    row("it did not: dropped, and the next one joins", {**shared(S), **waiting("w", turn=-100)}, share("B"), taken(), join_b(**left_queue("w"))),
    row("one that would share it, too, is called", {**shared(S), **waiting("w", mode="shared")}, share("B"), no_join(ask=1500),
        {"waiters w": waiter(mode="shared", turn=1500)}, {"w": ["turn"]}),
    row("one that waits for a slot is called", {**THREE, **waiting("w", mode="slots", slots=3)}, slot_of(3, "B"),
        no_join(20000, 1500, "slots", "c", slots=3, slots_taken=2), {"waiters w": waiter(mode="slots", slots=3, turn=1500)}, {"w": ["turn"]}),
    row("one that waits for another number of slots is not", {**THREE, **waiting("w", mode="slots", slots=2)}, slot_of(3, "B"),
        no_join(20000, None, "slots", "c", slots=3, slots_taken=2)),
    row("one that would share slots is not", {**THREE, **waiting("w", mode="shared", slots=3)}, slot_of(3, "B"),
        no_join(20000, None, "slots", "c", slots=3, slots_taken=2)),
    row("no slot is free: nobody is called", {**shared(sharer("A", "a", slot=0), mode="slots", slots=1), **waiting("w", mode="slots", slots=1)},
        slot_of(1, "B"),
        no_join(mode="slots", slots=1, slots_taken=1)),
    row("a newer format waits: nobody joins", {**shared(S), **waiting("w", number=NEWER)}, share("B"), no_join()),
    row("the first in the queue joins, and the next is called",
        {**shared(S), **waiting("b", mode="shared"), **waiting("w", came=-4000, mode="shared")},
        queue(mode="shared", came=us(-5000)), taken(), join_b(**left_queue("b"), **{"waiters w": waiter(mode="shared", turn=1500)}), {"w": ["turn"]}),
    row("the first in the queue joins, and the next waits for all", {**shared(S), **waiting("b", mode="shared"), **waiting("w", came=-4000)},
        queue(mode="shared", came=us(-5000)), taken(), join_b(**left_queue("b"))),
    row("the first in the queue shares a free lock, and the next is called",
        {**FREE, **waiting("b", mode="shared"), **waiting("w", came=-4000, mode="shared")}, queue(mode="shared", came=us(-5000)), taken(),
        {**join_b(**left_queue("b")), "holder:B": record("b", fence=us(0), slot=-1, round=Has("^dlock:shared:"), ends=at(TTL)),
         "lock": Has("^dlock:shared:"), "lock ends": at(1.5 * TTL), "holders ends": at(TTL + LOST_KEPT), "meta mode": "shared",
         "waiters w": waiter(mode="shared", turn=1500)}, {"w": ["turn"]}),
    row("the first gives up, and the next fits", {**shared(S), **waiting("b"), **waiting("w", came=-4000, mode="shared")}, give_up("B", "b"),
        ["other", ""],
        {**left_queue("b"), "meta withdrawn": "b - \n", "waiters w": waiter(mode="shared", turn=1500)},
        {"w": ["turn"]}),
    row("the first gives up, and no slot is free for the next",
        {**shared(sharer("A", "a", slot=0), mode="slots", slots=1), **waiting("b"), **waiting("w", came=-4000, mode="slots", slots=1)},
        give_up("B", "b"),
        ["other", ""], {**left_queue("b"), "meta withdrawn": "b - \n"}),
    row("the first gives up, and a slot is free, since a lease has ended",
        {**shared(sharer("A", "a", slot=0), sharer("C", "c", slot=1, left=-1000), mode="slots", slots=2), **waiting("b"),
         **waiting("w", came=-4000, mode="slots", slots=2)}, give_up("B", "b"),
        ["other", ""], {**left_queue("b"), "meta withdrawn": "b - \n", "waiters w": waiter(mode="slots", slots=2, turn=1500)}, {"w": ["turn"]}),
    row("all leases have ended: the lock's key goes, and the waiter is called", {**shared(sharer("A", "a", left=-1000)), **W}, take("B"),
        reserved(), {"lock": GONE, "lock ends": GONE, **CALLED_W}, {"w": ["turn"]}),
    row("its record has gone, and it was the only one: the waiter is called", {**without(shared(sharer("b", "b")), "holder:b"), **W},
        share("b", again=True),
        reserved(), {"lock": GONE, "lock ends": GONE, "holders b": GONE, "holders ends": GONE, **CALLED_W}, {"w": ["turn"]}),
]

def crowd(count):
    return both(*(waiting("w%d" % i, came=-9000 + i) for i in range(1, count + 1)))


LEFT_B = {**left_queue("b"), "meta withdrawn": "b - \n"}
OTHER = ["other", ""]
SEEN = queue(came=us(-9500), unseen="1")
SEES = by_a(came=us(-9500)), {**IN_QUEUE, "queue b": us(-9500)}
NEAR = [
    row("the eighth hears that it is near, if it is an older dlock", {**A, **crowd(9), **waiting("b", came=-9500)}, give_up("B", "b"), OTHER, LEFT_B,
        {"w1": [HELD_60], "w8": ["near"]}),
    row("the 65th hears that it is one of those that look", {**A, **crowd(66), **waiting("b", came=-9500)}, give_up("B", "b"), OTHER, LEFT_B,
        {"w1": [HELD_60], "w8": ["near"], "w65": ["seen"]}),
    row("whoever it is that leaves", {**A, **crowd(9), **waiting("b", came=-1000)}, give_up("B", "b"), OTHER, LEFT_B, {"w8": ["near"]}),
    row("seven are left: nobody does", {**A, **crowd(7), **waiting("b", came=-9500)}, give_up("B", "b"), OTHER, LEFT_B, {"w1": [HELD_60]}),
    row("one that has not heard that others ask says that it does", {**A, **waiting("b", came=-9500), **crowd(2)}, SEEN, *SEES,
        {"w1": ["seen"], "w2": ["seen"]}),
    row("to those before it as well", {**A, **crowd(1), **waiting("b", came=-4000)}, queue(came=us(-4000), unseen="1"), by_a(came=us(-4000), ahead=1),
        {**IN_QUEUE, "queue b": us(-4000)}, {"w1": ["seen"]}),
    row("to 65 with itself", {**A, **waiting("b", came=-9500), **crowd(66)}, SEEN, *SEES, {"w%d" % i: ["seen"] for i in range(1, 65)}),
    row("one that asks for another reason says nothing", {**A, **waiting("b", came=-9500), **crowd(2)}, queue(came=us(-9500)), *SEES),
    row("it takes the lock: nobody needs to hear that", {**FREE, **waiting("b", came=-9500), **crowd(2)}, SEEN, taken(),
        {**FREED_BY_B, **left_queue("b")}, {"w1": [HELD_60]}, plain=True),
]

TABLES = {"join the queue": JOIN, "turn": TURN, "turn to share": SHARED, "near": NEAR}
