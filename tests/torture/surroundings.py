"""What surrounds a dlock from its start, drawn for its run: limits, a clock, a sandbox, namespaces."""

import os
import subprocess
import time

from orphans import command_of, family
from servers import spawn, write_clock

# Soft limits, for prlimit(1): most of them leave dlock enough, some do not; a sanitizer gets none of memory.
LIMITS = tuple("--nofile=%d:1024" % number for number in (3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24))
if not os.environ.get("SANITIZER"):
    LIMITS += tuple("--as=%d:unlimited" % (megabytes << 20) for megabytes in (4, 6, 8, 12, 16, 32, 64))
    LIMITS += tuple("--stack=%d:unlimited" % (kilobytes << 10) for kilobytes in (128, 256, 512))
# The wall clock is wrong by this many seconds.
CLOCKS = (-86400, -3600, -5, 5, 3600, 86400)
UMASKS = ("0", "077", "0177", "0277", "0777")
# For refuse_call: calls that dlock can do without, and calls that it needs.
CALLS = ("clone3", "inotify_add_watch", "inotify_init1", "pidfd_open", "pidfd_send_signal", "vfork")
NEEDED = ("timerfd_create",)
CALLS_REFUSED = tuple("%s:%s" % (error, call) for error in ("EPERM", "ENOSYS") for call in CALLS + NEEDED)
# The boot clock of another time namespace is ahead by this many seconds.
AHEAD = 7200
TICK = 0.02
IN_MOUNTS = ["unshare", "-m", "sh", "-c"]
# Kinds that are not available everywhere, with a value to try each.
TRIALS = {"umask": "0", "refuse_call": "EPERM:vfork", "hidepid": None, "boot_id": None, "boot_clock": None}


class Surroundings:
    """Each kind is a method that returns the words before a command and additions to its environment."""

    def __init__(self, work, helpers):
        self.work, self.helpers = work, helpers
        self.boot_id_file = os.path.join(work, "boot_id")
        with open(self.boot_id_file, "w", encoding="ascii") as file:
            file.write("11111111-1111-1111-1111-111111111111\n")
        # Its child keeps the namespace, and ends with it.
        self.keeper = spawn(["unshare", "-T", "--boottime", str(AHEAD), "-f", "--kill-child", "sleep", "infinity"])
        self.keeper_of_time = None
        while self.keeper.poll() is None and self.keeper_of_time is None:
            time.sleep(TICK)
            self.keeper_of_time = next((pid for pid in family(self.keeper.pid) if command_of(pid).startswith("sleep")), None)
        self.missing = {what for what, value in TRIALS.items() if not works(getattr(self, what)(value)[0] + ["true"])}

    def of(self, deed):
        """What that method returns, or None if the kind is not available here."""
        what = deed.what.replace("-", "_")
        return None if what in self.missing else getattr(self, what)(deed.value)

    @staticmethod
    def limit(value):
        return ["prlimit", value], {}

    def clock(self, value):
        home = os.path.join(self.work, "clock%d" % value)
        os.makedirs(home, exist_ok=True)
        write_clock(home, value)
        return [], {"T": home, "LD_PRELOAD": os.environ["TORTURE_WALL_CLOCK"]}

    @staticmethod
    def umask(value):
        # Root may read everything whatever the mode, so this would change nothing for root.
        as_owner = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        return as_owner + ["sh", "-c", 'umask "$1" && shift && exec "$@"', "sh", value], {}

    def refuse_call(self, value):
        return [os.path.join(self.helpers, "refuse_call")] + value.split(":"), {}

    @staticmethod
    def hidepid(_value):
        """/proc hides what the process may not trace: all dlocks but itself and what it has started."""
        return ["setpriv", "--bounding-set=-sys_ptrace"] + IN_MOUNTS + [
            'mount -t proc -o hidepid=2,gid=65534 proc /proc && exec "$@"', "sh"], {}

    def boot_id(self, _value):
        return IN_MOUNTS + ['mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"', "sh",
                            self.boot_id_file], {}

    def boot_clock(self, _value):
        return ["nsenter", "--time=/proc/%s/ns/time" % self.keeper_of_time], {"TORTURE_AHEAD": str(AHEAD)}

    def close(self):
        self.keeper.kill()
        self.keeper.wait()


def works(words):
    try:
        return subprocess.call(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except FileNotFoundError:
        return False
