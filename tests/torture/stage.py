"""What the campaign plays on: a store of locks that dlock is pointed at, and the faults that it can have.

A stage that keeps its locks elsewhere is a new class in stages.py. Its calls come from a thread of its own, one
after the other; only remove() may be called from another one at the same time, and may fail with OSError or
RuntimeError while the servers are away. The modules of this directory import each other by their plain names.
"""

import random
from typing import Callable, NamedTuple, Optional


class Fault(NamedTuple):
    name: str
    # Whether dlock does not promise exclusion across it: an overlap that it explains is shown, and not wrong.
    may_lose: bool
    # Does it, by that generator alone. Returns words for the log, or None.
    begin: Callable[[random.Random], Optional[str]]
    # Heals it. May be called again, and without a begin.
    end: Callable[[], None]


class Stage:
    name = ""
    # Whether a dlock in another namespace, which has another boot id or another boot clock, is something else here.
    namespaces = False
    # Whether exclusion is promised; False where faults of may_lose have been used.
    exclusive = True
    # Whether fences rise across those faults too.
    fence_survives = True
    # Whether --slots can be had.
    slots = True
    # Whether those who wait are served in the order in which they came, and how soon the next one has a free lock.
    in_order = True
    progress = 1.0
    # Whether a pause of the lock is in what remove() takes away.
    removal_resumes = False
    # Whether what remove() has last returned is lost by that, and not only on some servers of a quorum.
    surely_removed = True
    # How long a lock may stand on a server that was away when it was released, in seconds: until its lease ends.
    stands_on = 0.0
    # By how many seconds at most a fault sets back the clock of the store: what was taken before stands for longer.
    sets_back = {}  # name of the fault -> seconds
    # Faults after which a dlock that asked meanwhile is called no more: it looks by itself for as long as it waits.
    deafens = ()
    # What the last fault was done to, where it is not the whole store: names of locks, else None.
    touched = None
    # Whether the last fault may have lost locks, though it is one that does not.
    lost = False
    # Exit statuses that dlock may end with while a fault is on, or has just been, beside 69 (which no deafening one excuses).
    may_give = {}  # name of the fault -> statuses

    def arguments(self):
        """The options of dlock that choose this store."""
        raise NotImplementedError

    def looking(self):
        """Those for what takes no lock."""
        return [option for option in self.arguments() if not option.startswith("--wait-replicas")]

    def faults(self):
        """All faults that can be had here, as a list of Fault."""
        raise NotImplementedError

    def heal(self):
        """Ends all faults, starts what is down, and waits until it serves; raises RuntimeError if not in 20 s."""
        raise NotImplementedError

    def locks(self):
        """The names of the locks that are there now, and of whatever else should not outlive them."""
        raise NotImplementedError

    def remove(self, lock):
        """Deletes the lock; returns the owner token of whose it was, a list where servers had different ones, or None."""
        raise NotImplementedError

    def is_held_by(self, lock, pid):
        """Whether this process, which is frozen, has the lock and keeps it meanwhile."""
        return False

    def close(self):
        """Ends the servers and gives back what they used."""
        raise NotImplementedError
