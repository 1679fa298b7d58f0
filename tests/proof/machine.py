"""The machine and the programs that a proof runs on."""

import os
import platform
import re
import shutil

from figures import first_line

# Programs that can replace redis-server: the kind, and what --version prints.
SERVERS = {"Redis 8": r"^Redis server v=8\.", "Valkey": r"^Valkey server v="}
PROGRAMS = ("gcc", "clang", "python3", "bats", "redis-server", "flock", "etcd", "consul", "sem")


def machine():
    release = platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(file.readline().split()[1]) >> 20
    return "%d processors, %d GB, %s, Linux %s, %s" % (
        len(os.sched_getaffinity(0)), memory + 1, platform.machine(), platform.release(), release)


class Servers:
    """Programs that speak the protocol of Redis, by kind: found on PATH, or given."""

    def __init__(self, named):
        self.paths = {}
        for path in [*named, *filter(None, map(shutil.which, ("redis-server", "valkey-server")))]:
            said = first_line(path, "--version")
            for kind, pattern in SERVERS.items():
                if re.search(pattern, said):
                    self.paths.setdefault(kind, os.path.abspath(path))

    def lacks(self, part):
        """Why this part cannot run here, or None."""
        absent = [program for program in part.needs if shutil.which(program) is None]
        if absent:
            return "needs %s, not installed" % ", ".join(absent)
        if part.server and part.server not in self.paths:
            return "no %s found; name its redis-server in PROOF_SERVERS" % part.server
        return None

    def environment(self, job, folder):
        """A directory in which this job's server is named redis-server."""
        environment = {name: value for name, value in os.environ.items() if not re.match("DLOCK|HELPERS$|MAKEFLAGS$|MFLAGS$|MAKELEVEL$", name)}
        path = self.paths.get(job.part.server)
        if path:
            links = os.path.join(folder, job.part.name)
            os.makedirs(links, exist_ok=True)
            if not os.path.lexists(os.path.join(links, "redis-server")):
                os.symlink(path, os.path.join(links, "redis-server"))
            environment["PATH"] = links + ":" + environment["PATH"]
        return environment
