"""A stage of the campaign: a store of locks that dlock uses, and the faults that it can have.

A stage that keeps its locks elsewhere is a new class in stages.py. Its calls come from a thread of its own, one
after the other; only remove() may be called from another one at the same time, and may fail with OSError or
RuntimeError while the servers are away. The modules of this directory import each other by their plain names.
"""

import random
from typing import Callable, NamedTuple, Optional


class Fault(NamedTuple):
    name: str
    # Whether dlock promises no exclusion across it: an overlap that it explains is reported, but is not wrong.
    may_lose: bool
    # Plays it, drawing only from that generator. Returns words for the log, or None.
    begin: Callable[[random.Random], Optional[str]]
    # Heals it. May be called again, and without begin().
    end: Callable[[], None]


class Stage:
    name = ""
    # Whether dlocks in other namespaces, with another boot id or boot clock, count as other hosts here.
    namespaces = False
    # Whether exclusion is promised; False if faults of may_lose have been played.
    exclusive = True
    # Whether fences keep rising across those faults too.
    fence_survives = True
    # Whether --slots is available.
    slots = True
    # Whether waiters are served in the order in which they came, and how soon the next one gets a free lock.
    in_order = True
    progress = 1.0
    # Whether remove() also removes a pause of the lock.
    removal_resumes = False
    # Whether a lock that remove() has returned is lost completely, and not only on some servers of a quorum.
    surely_removed = True
    # How long a lock may stay on a server that was down at its release, in seconds: until its lease ends.
    stands_on = 0.0
    # The most seconds by which a fault sets back the store's clock: earlier locks last longer.
    sets_back = {}  # name of the fault -> seconds
    # Faults after which a dlock that polled meanwhile is no longer called: it polls for the rest of its wait.
    deafens = ()
    # What the last fault affected, if not the whole store: names of locks, otherwise None.
    touched = None
    # Whether the last fault may have lost locks, although it is of a kind that does not.
    lost = False
    # Exit statuses of dlock during a fault or just after it, in addition to 69 (which no deafening fault excuses).
    may_give = {}  # name of the fault -> statuses

    def arguments(self):
        """The options of dlock that select this store."""
        raise NotImplementedError

    def looking(self):
        """The options for actions that acquire nothing."""
        return [option for option in self.arguments() if not option.startswith("--wait-replicas")]

    def faults(self):
        """All faults that are available here, as a list of Fault."""
        raise NotImplementedError

    def heal(self):
        """Ends all faults, starts what is down, and waits until it serves; raises RuntimeError if that takes more than 20 s."""
        raise NotImplementedError

    def locks(self):
        """The names of the current locks, and of everything else that should not outlive them."""
        raise NotImplementedError

    def remove(self, lock):
        """Deletes the lock; returns its owner token, a list if servers had different ones, or None."""
        raise NotImplementedError

    def is_held_by(self, lock, pid):
        """Whether this frozen process holds the lock and keeps it meanwhile."""
        return False

    def close(self):
        """Ends the servers and removes what they used."""
        raise NotImplementedError
