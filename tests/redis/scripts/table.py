"""The language of the tables of the Lua scripts: what is stored about a lock, what a script is asked, what it answers.

The stored data are a dict of places, which the tests both read and write:

  lock                  the value of the lock's own key (a list: the key is of another type)
  KEY ends              when a key expires: lock, meta, holders, slots, counts, queue, waiters, holder:TOKEN
  meta FIELD            "record" is a dict, if it can be read
  holder:TOKEN          the record of a sharer, likewise
  holders MEMBER        "TOKEN" or "SLOT TOKEN": when its lease ends
  slots                 the slots that are taken
  counts FIELD
  queue ID              when this waiter came
  waiters ID            what is known of this waiter: waiter()
  hears ID              not stored: this waiter listens on its channel

Times are on the server's clock, from the moment of the call: at(), and us() in microseconds.
"""

import collections
import pathlib
import re

SOURCE = pathlib.Path(__file__).parents[3] / "src"
FORMAT = int(re.search(r"#define STORE_FORMAT (\d+)", (SOURCE / "lock/format.h").read_text(encoding="utf-8")).group(1))
HISTORY_MOST, ROW_SIZE = map(int, re.search(r"HISTORY_MOST = (\d+), HISTORY_SIZE = HISTORY_MOST \* (\d+)", (SOURCE / "lock/run_memory.h").read_text(encoding="utf-8")).groups())
HISTORY_SIZE = HISTORY_MOST * ROW_SIZE
NEWER = FORMAT + 1
TTL = 60000
DAYS_30 = 2592000000  # META_KEPT_MS
LOST_KEPT = 86400000  # LOST_KEPT_MS
KEPT = 4000000000  # how long runs are remembered, unless a row says otherwise
GONE = None

Row = collections.namedtuple("Row", "name before call answer changes hears denied watched writes plain")
Call = collections.namedtuple("Call", "script keys own words")
# A moment: `ms` from the call, `unit` of the number that is stored.
Moment = collections.namedtuple("Moment", "ms unit")
# The rest of a time, in ms.
Left = collections.namedtuple("Left", "ms")
Has = collections.namedtuple("Has", "text")


class Json(dict):
    """A record in format 1."""


class Said(dict):
    """The minimum that a record says."""



def at(ms):
    return Moment(ms, "ms")


def us(ms):
    return Moment(ms, "us")


def row(name, before, call, answer, changes=None, hears=None, denied="", watched=(), writes=False, plain=False):
    """hears: the messages of each waiter that is called. denied: a command that the caller may not use. watched: keys of
    which the server tells the caller when another client touches them afterwards (others may be as well). writes: replicas
    hear of the call, though nothing may change. plain: the plain way of the script decides. All that `changes` does not name stays as it is."""
    return Row(name, before, call, answer, changes or {}, hears or {}, denied, watched, writes, plain)


# --- what is stored ------------------------------------------------------

def record(take, **other):
    """A holder, as its acquire writes it; empty fields are left out."""
    fields = {"take": take, "since": "1000", "host": "h", "boot": "b", "pid": "7", "start": "70", "pid_space": "4", "user": "u", "command": "c",
              "message": "m", "ttl": str(TTL), "format": str(FORMAT), **other}
    return {name: value for name, value in fields.items() if value != ""}


def record_1(take, **other):
    """The same in format 1: JSON."""
    return Json({"format": "1", "take": take, "host": "h", "boot": "b", "pid": "7", "start": "70", "user": "u", "command": "c",
                 "since": "1000", "ttl": str(TTL), "hold": "0", "detached": "", "space": "4", "message": "m", **other})


def run(ended, how, since=1000):
    """A run of such a holder."""
    return "\t".join([str(since), str(ended), how, "7", "u", "h", "c"])


def past(how, length=1500, since=1000, ttl=TTL, host="h"):
    """Its row in the history; length "": not known."""
    return "\t".join([str(since), str(length), how, str(ttl), host]) + "\n"


def meta(**fields):
    """What every acquire leaves behind."""
    return {"meta ends": at(TTL + KEPT), **{"meta " + field: value for field, value in {
        "format": FORMAT, "fence": "5000", "mode": "exclusive", "slots": "0", "takes": "1", "waited_ms": "0", "kept": KEPT,
        **fields}.items() if value is not None}}


def held_by(token, take, left=TTL, stored=None, **fields):
    """An exclusive lock; `stored`: its record."""
    return {"lock": token, "lock ends": at(left),
            **meta(owner=token, record=record(take) if stored is None else stored, unended="1", **fields)}


def released(token="Z", **fields):
    """A lock that was held exclusively, and is free."""
    return meta(**{"owner": token, "record": "", "unended": "", "spent": "z %s 900\n" % token, "losses": "0", "held_ms": "0", **fields})


ROUND = "dlock:shared:5000"


def sharer(token, take, left=TTL, slot=-1, **other):
    """One holder of a shared lock."""
    return {"holder:" + token: record(take, **{"fence": "5000", "slot": slot, "round": ROUND, "ends": at(left), **other}),
            "holder:%s ends" % token: at(left + LOST_KEPT),
            "holders " + ("%d " % slot if slot >= 0 else "") + token: at(left)}


def shared(*sharers, left=1.5 * TTL, mode="shared", slots=0, **fields):
    """A lock that these share."""
    places = {place: value for each in sharers for place, value in each.items()}
    taken = tuple(sorted(int(place.split()[1]) for place in places if place.startswith("holders ") and len(place.split()) == 3))
    state = {"lock": ROUND, "lock ends": at(left), **meta(mode=mode, slots=str(slots), **fields), **places}
    state.update({"holders ends": at(TTL + LOST_KEPT)} if places else {})
    state.update({"slots": taken, "slots ends": at(TTL + LOST_KEPT)} if taken else {})
    return state


WHO = Said({"host": "h", "pid": "7", "user": "u", "message": "m"})


def waiter(listens=True, asked=-100, turn=0, mode="exclusive", slots=0, number=FORMAT):
    """turn: until when (ms from now); 0: it was not called."""
    return {"format": number, "listens": "01"[listens], "asked": at(asked), "turn": at(turn) if turn else "0", "mode": mode,
            "slots": str(slots), "who": WHO}


def waiting(name, came=-5000, alive=True, **what):
    """A waiter; `alive`: it listens on its channel, or would."""
    return {"queue " + name: us(came), "waiters " + name: waiter(**what), **({"hears " + name: True} if alive else {})}


def both(*states):
    return {place: value for state in states for place, value in state.items()}


def without(state, *places):
    """The same without these places, or all of these keys."""
    return {place: value for place, value in state.items()
            if not any(place == gone or place.startswith(gone + " ") for gone in places)}


def gone(*places):
    return {place: GONE for place in places}


def left_queue(name):
    return gone("queue " + name, "waiters " + name)


# --- what is asked, and answered -----------------------------------------

def take(token, name=None, ttl=TTL, again=False, since=1000, mode="exclusive", slots=0, hold=0, detached="", refusal="asks",
         waited=0, came=0, listens="0", message="m", remember=KEPT, once_per=0, unseen="",
         fence=0, joins=""):
    """name: the id of the take, `token` in small letters if it is not given."""
    name = name or token.lower()
    asked = record(name, since=str(since), detached=detached, message=message, ttl=str(ttl), format="")
    return Call("take", 8, token, [token, ttl, name, "1" if again else "0", asked, mode, slots, hold, refusal, waited, came, listens, remember,
                                   once_per, unseen, fence, joins])


def share(token, name=None, **other):
    return take(token, name, mode="shared", **other)


def slot_of(slots, token, name=None, **other):
    return take(token, name, mode="slots", slots=slots, **other)


def check(token, take_id, *fence, keys=4):
    return Call("check", keys, token, [token, take_id, *fence])


def extend(token, take_id, ttl, exactly=False, keys=4):
    return Call("extend", keys, token, [token, take_id, ttl, "1" if exactly else ""])


def check_share(token, take_id):
    return Call("share", 2, token, [take_id])


def release(token, take_id, wall=3000, hold=0, how="held", may_come=False, ended=2500, result="", began=1000, fence=0, outside=None, keys=8):
    """wall: the time of the release; `began`, `ended`: those of its run (0: as its record says); `fence`: its fence by the
    holder's clock; hold "": as requested when the lock was acquired."""
    return Call("release", keys, token, [token, take_id, wall, hold, how, "1" if may_come else "", ended, result, began if outside is None else 0, fence] +
                ([outside] if outside is not None else []))


def give_up(token, take_id, **other):
    """It is not known whether the lock was acquired."""
    return release(token, take_id, how="", **other)


def look():
    return Call("look", 8, "", [])


def force(request="req", wall=3000, by="root@host"):
    return Call("force", 8, "", [wall, request, by])


def pause(ms, by="root@host", why="repairs", request="req"):
    return Call("pause", 8, "", [ms, by, why, request])


def taken(left=TTL, slot=-1, fence=us(0)):
    return ["taken", fence, Left(left), slot, at(left)]


HELD = ("left", "ask", "mode", "reserved", "ahead", "came", "uncalled", "paused", "paused_by", "pause_why", "slots", "slots_taken", "history",
        "holder")


def said(of):
    """A record in a reply, which may also have its end and other fields; "" if there is none."""
    return Said(of) if of else ""


def held(left, by=None, mode="exclusive", **other):
    """Refused; `by`: the record of the holder, which has its fence if it shares the lock."""
    answer = {name: "" for name in HELD}
    if by and mode != "exclusive":
        by = {"fence": 5000, **by}
    answer.update(left=Left(left) if left > 0 else left, holder=said(by), mode=mode, ahead=0, came=us(0), paused=0)
    answer["ask"] = answer["left"]
    answer.update(other)
    return ["held", *(answer[name] for name in HELD)]


def ours(left, mode="exclusive", slots=0, slot=-1):
    return ["ours", Left(left), at(left), mode, slots, slot]


RELEASED = ["released", "now"]


def unwritten(why):
    """Released, but the record of the run could not be written."""
    return [*RELEASED, Has(r"(%s).* \(HSET\)$" % why)]
