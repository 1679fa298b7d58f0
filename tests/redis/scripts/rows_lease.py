"""Who holds the lock: the truth table of standing() in holders.lua, by check; then check, share and extend themselves."""

from table import *

A = held_by("A", "a")
SPENT = {"meta spent": "a A 900\n"}
FORCED = {"meta forced": "a A root@host\n"}
BY_FORCE = "forced root@host"
ANOTHER = {**A, "lock": "X"}
NONE = without(A, "lock")
# A's share has ended; B's has not, or B has none.
ENDED = sharer("A", "a", left=-2000)
B = sharer("B", "b")
B_ENDED = sharer("B", "b", left=-1000)


def standing(name, state, answer, token="A", take_id="a", **other):
    return row(name, state, check(token, take_id, **other), answer)


STANDING = [
    # The lock's value is the token.
    standing("the token, of another take", held_by("A", "b"), ["other", ""]),
    standing("the token, of another take, and this one was released", {**held_by("A", "b"), **SPENT}, ["released", ""]),
    standing("the token, of another take, and a request released this one",
             {**held_by("A", "b"), "meta requests": "req a -\n"}, ["released", ""]),
    standing("the token, of another take, and another token's was released",
             {**held_by("A", "b"), "meta spent": "z A 900\n", "meta requests": "a z -\n"}, ["other", ""]),
    standing("the token, of another take, since this one was taken away", {**held_by("A", "b"), **FORCED}, ["other", BY_FORCE]),
    standing("the token, of another take, but no take is asked for", held_by("A", "b"), ours(TTL), take_id=""),
    standing("the token, of this take", A, ours(TTL)),
    standing("the token, of this take, by the two keys of a holder", A, ours(TTL), keys=2),
    standing("the token, of this take, which was released and is kept", held_by("A", "a", stored=record("a", released=True)), ["released", ""]),
    standing("the token, which was released and is kept, and no take is asked for",
             held_by("A", "a", stored=record("a", released=True)), ["released", ""], take_id=""),
    standing("the token, which was not released, says so", held_by("A", "a", stored=record_1("a", released=False)), ours(TTL)),
    standing("the token, and meta's is another's", {**held_by("Z", "z"), "lock": "A"}, ours(TTL)),
    standing("the token, and no meta", {"lock": "A", "lock ends": at(TTL)}, ours(TTL)),
    standing("the token, and meta is no hash", {"lock": "A", "lock ends": at(TTL), "meta": ["x"]}, ours(TTL)),
    standing("the token, without an end", without(A, "lock ends"), ["ours", -1, -1, "exclusive", 0, -1]),
    # It is shared, and this client has no share.
    standing("shared by others", shared(B), ["other", ""]),
    standing("shared by others, and released by this one", shared(B, **{"spent": "a A 900\n"}), ["released", ""]),
    standing("shared by others, and taken away", {**shared(B), **FORCED}, ["other", BY_FORCE]),
    standing("shared by others, and taken away, by the token alone", {**shared(B), **FORCED}, ["other", BY_FORCE], take_id=""),
    standing("shared by others, whose leases have all ended", shared(B_ENDED), ["gone", ""]),
    standing("shared, and the set of holders has gone", shared(), ["other", ""]),
    standing("shared, and the set of holders is of another type", {**shared(), "holders": ["x"]}, ["other", ""]),
    # This client has one.
    standing("a share", shared(sharer("A", "a"), B), ours(TTL, "shared")),
    standing("a share, by the token alone", shared(sharer("A", "a"), B), ours(TTL, "shared"), take_id=""),
    standing("a slot", shared(sharer("A", "a", slot=2), mode="slots", slots=3), ours(TTL, "slots", 3, 2)),
    standing("a share, without meta", without(shared(sharer("A", "a")), "meta"), ours(TTL, "shared", 0)),
    standing("a share, of another take", shared(sharer("A", "b")), ["other", ""]),
    standing("a share, of another take, and this one was released", {**shared(sharer("A", "b")), **SPENT}, ["released", ""]),
    standing("a share, released and kept", shared(sharer("A", "a", released=True)), ["released", ""]),
    standing("a share whose record cannot be read, by the set", {**shared(sharer("A", "a")), "holder:A": "?"}, ours(TTL, "shared")),
    standing("a share whose record is of another type, by the set",
             {**without(shared(sharer("A", "a")), "holder:A"), "holder:A": ["x"]}, ours(TTL, "shared")),
    standing("a share whose record is of a newer format, by the set", shared(sharer("A", "a", format=str(NEWER))), ours(TTL, "shared")),
    standing("a share whose record cannot be read, and is not in the set", {**shared(B), "holder:A": "?"}, ["other", ""]),
    standing("a share whose record cannot be read, ended", {**shared(ENDED, B), "holder:A": "?"}, ["other", ""]),
    standing("a share whose record cannot be read, in the set for ever",
             {**shared(sharer("A", "a")), "holder:A": "?", "holders A": "inf"}, ["ours", Has(r"^9\d{15}$"), Has(r"^9\d{15}$"), "shared", 0, -1]),
    standing("no record, though it is in the set", without(shared(sharer("A", "a")), "holder:A"), ["other", ""]),
    standing("a share that has ended", shared(ENDED, B), ["gone", "ended"]),
    standing("a share that has ended, as all have", shared(ENDED, B_ENDED), ["gone", "ended"]),
    standing("a share that has ended, and was taken away", {**shared(ENDED, B), **FORCED}, ["gone", BY_FORCE]),
    standing("a share that has ended, by the token alone, and was taken away", {**shared(ENDED, B), **FORCED}, ["gone", BY_FORCE], take_id=""),
    standing("a share that has ended, and another of the token was released",
             {**shared(ENDED, B), "meta spent": "z A 900\n"}, ["gone", "ended"], take_id=""),
    standing("a share that has ended while it was kept", shared(sharer("A", "a", left=-2000, released=True), B), ["other", ""]),
    standing("a share of an earlier round", shared(sharer("A", "a", round="dlock:shared:4000"), B), ["gone", "ended"]),
    standing("shared, after an exclusive lock of this take", shared(B, owner="A", record=record("a")), ["gone", "ended"]),
    standing("shared, after an exclusive lock of this token", shared(B, owner="A", record=record("a")), ["gone", "ended"], take_id=""),
    standing("shared, after an exclusive lock of this take, by two keys", shared(B, owner="A", record=record("a")), ["gone", "ended"], keys=2),
    standing("a share, by two keys: it is not known", shared(sharer("A", "a"), B), ["other", ""], keys=2),
    standing("shared, after an exclusive lock of another take", shared(B, owner="A", record=record("b")), ["other", ""]),
    standing("shared, after an exclusive lock that was released", {**shared(B, owner="A", record=""), **SPENT}, ["released", ""]),
    standing("shared, after one that was kept, but of this take", shared(B, owner="A", record=record("a", released=True)), ["other", ""]),
    # Another value.
    standing("another's, since this one's lease has ended", ANOTHER, ["other", "ended"]),
    standing("another's, since this one's lease has ended, by the token alone", ANOTHER, ["other", "ended"], take_id=""),
    standing("another's, since this one's lease has ended, though another of the token was released",
             {**ANOTHER, "meta spent": "z A 900\n"}, ["other", "ended"], take_id=""),
    standing("another's, and another take of this token was the last", {**held_by("A", "b"), "lock": "X"}, ["other", ""]),
    standing("another's, and this one was released", {**released("A"), **SPENT, "lock": "X"}, ["released", ""]),
    standing("another's, and the token was released", {**released("A"), **SPENT, "lock": "X"}, ["released", ""], take_id=""),
    standing("another's, and another token was released", {**released("Z"), "lock": "X"}, ["other", ""], take_id=""),
    standing("another's, and one was kept", {**held_by("A", "a", stored=record("a", released=True)), "lock": "X"}, ["other", ""]),
    standing("another's, since this one was taken away", {**ANOTHER, **FORCED}, ["other", BY_FORCE]),
    standing("another's, since another take was taken away", {**ANOTHER, "meta forced": "b A root@host\n"}, ["other", "ended"]),
    standing("another's, of another type", {**NONE, "lock": ["x"]}, ["other", "ended"]),
    standing("another's, and nothing is known", {"lock": "X"}, ["other", ""]),
    # None.
    standing("none, since this one's lease has ended", NONE, ["gone", "ended"]),
    standing("none, since this one's lease has ended, by the token alone", NONE, ["gone", "ended"], take_id=""),
    standing("none, since this one's was taken away", {**NONE, **FORCED}, ["gone", BY_FORCE]),
    standing("none, and this one was released", {**released("A"), **SPENT}, ["released", ""]),
    standing("none, and a request has released this take", released("A", spent="z A 900\n", requests="r1 y -\nreq a -\n"), ["released", ""]),
    standing("none, and another take of this token was the last", without(held_by("A", "b"), "lock"), ["gone", ""]),
    standing("none, and one whose token begins alike was released", released("AB", spent="ab AB 900\n"), ["gone", ""], take_id=""),
    standing("none, and one whose token has signs of a pattern was released", released("A+1", spent="a A+1 900\n"), ["released", ""],
             token="A+1", take_id=""),
    standing("none, and nothing is known", {}, ["gone", ""]),
    standing("a newer format", {**A, "meta format": NEWER}, ["newer", NEWER]),
    standing("a format that is no number: the first", {**A, "meta format": "x"}, ours(TTL)),
    standing("meta may not be read", A, ["ERROR", Has("HMGET")])._replace(denied="hmget"),
    standing("the lock may not be read", A, ["ERROR", Has("GET")])._replace(denied="get"),
    standing("the set may not be read", {**shared(B), "holder:A": "?"}, ["ERROR", Has("ZSCORE")])._replace(denied="zscore"),
    standing("the set may not be gone through", shared(B), ["ERROR", Has("ZRANGE")])._replace(denied="zrange"),
]

# A record that this client would not write says nothing: only the token counts. Otherwise it belongs to another acquire.
RECORDS = [standing(name, held_by("A", "b", stored=stored), ["other", ""] if known else ours(TTL)) for name, stored, known in (
    ("a record as it is written", record("b"), True),
    ("without all but its take", {"take": "b"}, True),
    ("with a field that is unknown", record("b", more="text"), True),
    ("a slot", record("b", slot=0), True),
    ("the last slot", record("b", slot=2147483647), True),
    ("no slot", record("b", slot=-1), True),
    ("a slot that is too high", record("b", slot=2147483648), False),
    ("a slot below none", record("b", slot=-2), False),
    ("half a slot", record("b", slot=0.5), False),
    ("a slot that is no number", record("b", slot="nan"), False),
    ("no take", without(record("b"), "take"), False),
    ("a newer format", record("b", format=str(NEWER)), False),
    ("no format", record("b", format=""), True),
    ("no lines", "5", False),
    ("format 1", record_1("b"), True),
    ("format 1, with an unknown field", record_1("b", more=5), True),
    ("format 1, with a field that is an object", record_1("b", more={"x": 5}), False),
    ("format 1, with a field that is null", record_1("b", host=None), False),
    ("format 1, a slot", record_1("b", slot=0), True),
    ("format 1, a slot that is too high", record_1("b", slot=2147483648), False),
    ("format 1, no take", Json(without(record_1("b"), "take")), False),
    ("format 1, and a newer one", record_1("b", format=str(NEWER)), False),
    ("format 1, without its number", Json(without(record_1("b"), "format")), True),
    ("no JSON", "{", False),
    ("a list", "[1]", False),
    ("empty", "", False))]


# --- check: the fence of a quorum ----------------------------------------

AHEAD = us(5000000)  # 5000 s ahead of the clock: its number in microseconds
CHECK = [
    row("a higher fence is written", A, check("A", "a", 6000, keys=2), ours(TTL), {"meta fence": 6000}),
    row("the same fence is not", A, check("A", "a", 5000, keys=2), ours(TTL)),
    row("a lower one is not", A, check("A", "a", 4000, keys=2), ours(TTL)),
    row("a fence that is no number is lower than all", {**A, "meta fence": "x"}, check("A", "a", 1, keys=2), ours(TTL), {"meta fence": 1}),
    row("and so is none", without(A, "meta fence"), check("A", "a", 1, keys=2), ours(TTL), {"meta fence": 1}),
    row("not if it is another's", ANOTHER, check("A", "a", 6000, keys=2), ["other", "ended"]),
    row("not if meta is no hash", {"lock": "A", "lock ends": at(TTL), "meta": ["x"]}, check("A", "a", 6000), ours(TTL)),
    row("meta lasts as long as it must", {**A, "meta ends": at(TTL)}, check("A", "a", 6000), ours(TTL), {"meta fence": 6000, "meta ends": at(KEPT)}),
    row("and 30 days at least", {**A, "meta ends": at(TTL), "meta kept": 1}, check("A", "a", 6000), ours(TTL),
        {"meta fence": 6000, "meta ends": at(DAYS_30)}),
    row("and until the clock has passed the fence", {**A, "meta ends": at(KEPT + 4999000)}, check("A", "a", AHEAD), ours(TTL),
        {"meta fence": AHEAD, "meta ends": at(KEPT + 5000000)}),
    row("but no shorter", {**A, "meta ends": at(KEPT + 5001000)}, check("A", "a", AHEAD), ours(TTL), {"meta fence": AHEAD}),
    row("a share's record has it as well", shared(sharer("A", "a"), B), check("A", "a", 6000), ours(TTL, "shared"),
        {"meta fence": 6000, "holder:A": {**sharer("A", "a")["holder:A"], "fence": 6000}, "holder:A ends": at(TTL + LOST_KEPT)}),
    row("a share's record lasts as long as runs are remembered", {**shared(sharer("A", "a")), "holder:A ends": at(TTL)},
        check("A", "a", 6000), ours(TTL, "shared"),
        {"meta fence": 6000, "holder:A": {**sharer("A", "a")["holder:A"], "fence": 6000}, "holder:A ends": at(TTL + LOST_KEPT)}),
    row("a share's record goes with it if no runs are remembered", shared(sharer("A", "a"), kept=0), check("A", "a", 6000), ours(TTL, "shared"),
        {"meta fence": 6000, "holder:A": {**sharer("A", "a")["holder:A"], "fence": 6000}, "holder:A ends": at(TTL)}),
    row("a share whose record cannot be read has none", {**shared(sharer("A", "a")), "holder:A": "?"}, check("A", "a", 6000), ours(TTL, "shared"),
        {"meta fence": 6000}),
]

# --- share ---------------------------------------------------------------

AT_A = shared(sharer("A", "a"), B)
UNCLEAR = ["unclear"]


def of_share(name, answer=None, token="A", take_id="a", **places):
    return row(name, both(AT_A, {place.replace("_", ":"): value for place, value in places.items()}), check_share(token, take_id), answer or UNCLEAR)


def a_share(**other):
    return {**sharer("A", "a")["holder:A"], **other}


SHARE = [
    of_share("ours", ["ours", Left(TTL), at(TTL)]),
    of_share("ours, by the token alone", ["ours", Left(TTL), at(TTL)], take_id=""),
    of_share("of another take", take_id="b"),
    of_share("no record", token="C", take_id="c"),
    of_share("no JSON", holder_A="{"),
    of_share("no object", holder_A="5"),
    of_share("a newer format", holder_A=a_share(format=str(NEWER))),
    of_share("no format: the first", ["ours", Left(TTL), at(TTL)], holder_A=without(a_share(), "format")),
    of_share("released", holder_A=a_share(released=True)),
    of_share("of another round", holder_A=a_share(round="dlock:shared:1")),
    of_share("its lease has ended", holder_A=a_share(ends=at(-1000))),
    of_share("without an end", holder_A=without(a_share(), "ends")),
    of_share("the lock is another's", lock="X"),
    of_share("the lock is of another type", lock=["x"]),
    row("the lock has gone", without(AT_A, "lock"), check_share("A", "a"), UNCLEAR),
    row("neither lock nor round", without({**AT_A, "holder:A": without(a_share(), "round")}, "lock"), check_share("A", "a"), UNCLEAR),
    row("a record of another type", {**without(AT_A, "holder:A"), "holder:A": ["x"]}, check_share("A", "a"), UNCLEAR),
]

# --- extend --------------------------------------------------------------

LONG = 300000
WITHOUT_END = without(A, "lock ends")
EXTEND = [
    row("a longer lease", A, extend("A", "a", LONG, keys=2), ours(LONG), {"lock ends": at(LONG), "meta ends": at(LONG + KEPT)}),
    row("a shorter one changes nothing", A, extend("A", "a", 30000, keys=2), ours(TTL)),
    row("but if just that is wanted", A, extend("A", "a", 30000, exactly=True, keys=2), ours(30000), {"lock ends": at(30000)}),
    row("a lock without an end gets one", WITHOUT_END, extend("A", "a", 30000, keys=2), ours(30000), {"lock ends": at(30000)}),
    row("meta that lasts longer stays", {**A, "meta ends": at(LONG + KEPT + 1000)}, extend("A", "a", LONG), ours(LONG), {"lock ends": at(LONG)}),
    row("meta stays for 30 days at least", {**A, "meta kept": 0}, extend("A", "a", DAYS_30 * 2), ours(DAYS_30 * 2),
        {"lock ends": at(DAYS_30 * 2), "meta ends": at(DAYS_30 * 3)}),
    row("meta without a fence is not prolonged", without(A, "meta fence"), extend("A", "a", LONG), ours(LONG), {"lock ends": at(LONG)}),
    row("no meta", {"lock": "A", "lock ends": at(TTL)}, extend("A", "a", LONG), ours(LONG), {"lock ends": at(LONG)}),
    row("another's", ANOTHER, extend("A", "a", LONG), ["other", "ended"]),
    row("of another take", A, extend("A", "b", LONG), ["other", ""]),
    row("gone", NONE, extend("A", "a", LONG), ["gone", "ended"]),
    row("released", {**released("A"), **SPENT}, extend("A", "a", LONG), ["released", ""]),
    row("a share", shared(sharer("A", "a"), B), extend("A", "a", LONG), ours(LONG, "shared"),
        {"holder:A": {**a_share(), "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "holders A": at(LONG), "lock ends": at(1.5 * LONG),
         "holders ends": at(LONG + LOST_KEPT), "meta ends": at(LONG + KEPT)}),
    row("a share while the lock lasts longer: the others are not told", shared(sharer("A", "a"), B, left=LONG + 1000), extend("A", "a", LONG),
        ours(LONG, "shared"),
        {"holder:A": {**a_share(), "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "holders A": at(LONG), "meta ends": at(LONG + KEPT)}),
    row("a shorter share changes nothing", shared(sharer("A", "a"), B), extend("A", "a", 30000), ours(TTL, "shared")),
    row("but if just that is wanted, and the lock stays as it is", shared(sharer("A", "a"), B), extend("A", "a", 1000, exactly=True),
        ours(1000, "shared"), {"holder:A": {**a_share(), "ends": at(1000)}, "holder:A ends": at(1000 + LOST_KEPT), "holders A": at(1000)}),
    row("a slot", shared(sharer("A", "a", slot=1), mode="slots", slots=2), extend("A", "a", LONG), ours(LONG, "slots", 2, 1),
        {"holder:A": {**a_share(), "slot": 1, "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "holders 1 A": at(LONG),
         "lock ends": at(1.5 * LONG), "holders ends": at(LONG + LOST_KEPT), "slots ends": at(LONG + LOST_KEPT), "meta ends": at(LONG + KEPT)}),
    row("a share that is not in the set does not come into it", without(shared(sharer("A", "a"), B, left=LONG * 2), "holders A"),
        extend("A", "a", LONG), ours(LONG, "shared"),
        {"holder:A": {**a_share(), "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "meta ends": at(LONG + KEPT)}),
    row("a share whose record cannot be read", {**shared(sharer("A", "a"), B, left=LONG * 2), "holder:A": "?"}, extend("A", "a", LONG),
        ours(LONG, "shared"), {"holders A": at(LONG), "meta ends": at(LONG + KEPT)}),
    row("a share that has ended", shared(ENDED, B), extend("A", "a", LONG), ["gone", "ended"]),
]

# --- what the server reports afterwards ----------------------------------

BOTH_A = shared(sharer("A", "a"), B, left=LONG + 1000)
WATCHED = [
    row("check", A, check("A", "a", keys=2), ours(TTL), watched=("lock", "meta")),
    row("check of a share", BOTH_A, check("A", "a"), ours(TTL, "shared"), watched=("lock", "holder:A")),
    row("check of a share, the quick one", BOTH_A, check_share("A", "a"), ["ours", Left(TTL), at(TTL)], watched=("lock", "holder:A")),
    row("extend", A, extend("A", "a", LONG, keys=2), ours(LONG), {"lock ends": at(LONG), "meta ends": at(LONG + KEPT)}, watched=("lock",)),
    row("extend, but it is long enough", A, extend("A", "a", 1000, keys=2), ours(TTL), watched=("lock",)),
    row("extend a share", BOTH_A, extend("A", "a", LONG), ours(LONG, "shared"),
        {"holder:A": {**a_share(), "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "holders A": at(LONG), "meta ends": at(LONG + KEPT)},
        watched=("lock", "holder:A")),
    row("extend a share, and the lock with it", shared(sharer("A", "a"), B), extend("A", "a", LONG), ours(LONG, "shared"),
        {"holder:A": {**a_share(), "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "holders A": at(LONG), "lock ends": at(1.5 * LONG),
         "holders ends": at(LONG + LOST_KEPT), "meta ends": at(LONG + KEPT)}, watched=("lock", "holder:A")),
    row("extend a share, and the lock with it, without meta", without(shared(sharer("A", "a"), B), "meta"), extend("A", "a", LONG),
        ours(LONG, "shared", 0),
        {"holder:A": {**a_share(), "ends": at(LONG)}, "holder:A ends": at(LONG + LOST_KEPT), "holders A": at(LONG), "lock ends": at(1.5 * LONG),
         "holders ends": at(LONG + LOST_KEPT)}, watched=("lock", "holder:A")),
    row("take, refused", A, take("B"), held(TTL, record("a")), watched=("lock",)),
]

TABLES = {"watched": WATCHED, "standing": STANDING, "records": RECORDS, "check": CHECK, "check of a share": SHARE, "extend": EXTEND}
