#!/usr/bin/env python3
"""Make every call of dlock to the C library fail, one at a time, and judge what comes of it.

    python3 tests/faults/fault_walk.py [OPTIONS] PATH-TO-DLOCK PATH-TO-FAIL_NTH.SO

A first run of each scenario counts its calls (tests/helpers/fail_nth.c); then it is run once for each
function, each number of a call and each way to fail. What must hold whatever fails:

  - the command runs only while its lock is held, and dlock never answers 0 for one that did not end under it
  - no lock and no lock file is left, no process, no crash, no hang
  - the exit status is a documented one, and a failure says what it is about
  - what interrupts a call, or moves a part of the bytes, changes nothing

What may be otherwise, and why, is in EXCUSED. Exit status 1: something was not as it must be.
A finding is printed with a --case that repeats it.
"""

import argparse
import collections
import errno
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from fault_lab import Failure, Lab
from figures import Table, add_options, write_figures
from fault_scenarios import SCENARIOS, judge

PAGE_SIZE, SLOTS, NAME_SIZE = 8192, 160, 32
EAI_MEMORY, EAI_AGAIN, EAI_SYSTEM = -10, -3, -11
CLOCK_REALTIME, CLOCK_BOOTTIME = 0, 7

# How each function fails: errnos, or what it returns. Functions that are not listed here are not walked.
ERRORS = {
    errno.ENOMEM: "malloc calloc realloc reallocarray mmap64 open_memstream setenv pthread_mutex_init pthread_attr_init "
    "poll ppoll getpwuid localtime_r gmtime_r inotify_add_watch epoll_ctl socketpair",
    errno.EIO: "close fclose fflush fgets getdelim __getdelim read write pread64 pwrite64 fstat64 stat64 lstat64 fstatat64 "
    "readdir64 closedir unlink unlinkat rename renameat ftruncate ftruncate64 readlink __realpath_chk lseek64 statfs64 fstatfs64 chdir "
    "flock isatty tcgetpgrp ioctl getsockopt access dup2 dup3 dlopen open open64 openat64 __open64_2 fopen64 opendir",
    errno.EMFILE: "open open64 openat64 __open64_2 fopen64 opendir fdopendir fdopen dup2 dup3 pipe2 eventfd signalfd timerfd_create "
    "inotify_init1 epoll_create1 socket accept4 socketpair fcntl fcntl64 syscall mkostemp64",
    errno.EACCES: "open open64 openat64 fopen64 mkdir access unlink",
    errno.ENOSPC: "write pwrite64 posix_fallocate64 mkdir mkostemp64 inotify_add_watch open64",
    errno.EAGAIN: "fork clone pthread_create execvp splice",
    errno.ENOLCK: "fcntl fcntl64 flock",
    errno.ECONNRESET: "send recv sendmsg recvmsg",
    errno.EPIPE: "send write",
    errno.ECONNREFUSED: "connect",
    errno.ENOENT: "connect execvp getcwd",
    errno.EINVAL: "munmap setsockopt getpeername bind listen shutdown timerfd_settime prctl sigaction sigprocmask sigpending "
    "splice pthread_attr_setstacksize pthread_sigmask pthread_kill gettimeofday nanosleep gethostname clock_gettime",
    errno.ENOSYS: "syscall getrandom",
    errno.EPERM: "kill clone setsid getpgid syscall prctl fchmod setrlimit setrlimit64",
    errno.ECHILD: "waitpid waitid",
    EAI_AGAIN: "getaddrinfo",
    EAI_MEMORY: "getaddrinfo getnameinfo",
}
# Interrupted by a signal that has a handler, or by a debugger: dlock must try again.
INTERRUPTED = "read write send recv sendmsg recvmsg poll ppoll waitpid nanosleep getrandom"
PARTIAL = "read send recv write"
# An exhausted resource stays exhausted.
EXHAUSTED = {
    errno.ENOMEM: "malloc calloc realloc poll",
    errno.EMFILE: "open open64 openat64 fopen64 opendir socket eventfd",
    errno.EIO: "read pwrite64 pread64 fcntl64",
    errno.ECONNRESET: "send recv",
    errno.ECONNREFUSED: "connect",
    errno.EAGAIN: "fork pthread_create",
    errno.EPERM: "kill syscall",
    errno.EINVAL: "clock_gettime",
}
CLOCKS = (("ahead", CLOCK_BOOTTIME), ("ahead", CLOCK_REALTIME), ("back", CLOCK_REALTIME))
# Resource limits by name, each with its range and step. "" is no limit.
LIMITS = {
    "NOFILE": (3, 14, 1),
    "AS": (3 << 20, 16 << 20, 1 << 19),
    "FSIZE": (0, 900, 300),
    "STACK": (128 << 10, 256 << 10, 64 << 10),
    "NPROC": (0, 2, 1),
}


# Functions of the C library that dlock calls and that are not walked, and why.
NOT_WALKED = {
    "cannot fail": "abort _exit exit free freeaddrinfo globfree getauxval getenv secure_getenv getegid geteuid getgid getpgrp getpid getppid getuid setlocale "
    "strerror xpg_strerror_r gai_strerror errno_location ctype_b_loc ctype_tolower_loc ctype_toupper_loc nl_langinfo qsort "
    "random jrand48 srandom tzset umask stack_chk_fail libc_start_main libc_current_sigrtmax libc_current_sigrtmin time signal "
    "sigaddset sigemptyset sigfillset sigismember unsetenv rewind ferror fileno raise dirname inet_pton fnmatch strftime "
    "explicit_bzero sysconf dlerror dlsym assert_fail cxa_finalize gmon_start ITM_deregisterTMCloneTable ITM_registerTMCloneTable "
    "bind_textdomain_codeset textdomain dcgettext gettext bindtextdomain",
    "works on memory alone": "memchr memcmp memcpy memmem memmove memset stpcpy strcasecmp strcat strchr strcasestr strcmp strcpy strcspn strlen strncasecmp "
    "strncmp strncpy strchrnul strpbrk strrchr strsep strspn strstr strtod strtoimax strtok_r strtol strtoll strtoul strtoull wcwidth mbrtowc mbsrtowcs iconv "
    "snprintf sprintf vsnprintf iconv_close bcmp rawmemchr memrchr strnlen",
    "writes to a buffer, whose fflush() or fclose() fails": "fprintf printf fputc fputs putc puts putchar fwrite vfprintf",
    "gets its memory from malloc(), which fails": "cxa_atexit register_atfork atexit asprintf vasprintf strdup strndup glob",
    "fails as a short file does, which the readers of files know": "fscanf getc fgetc",
    "fails only where it is misused": "mallopt pthread_attr_destroy pthread_detach pthread_join pthread_mutex_destroy pthread_mutex_lock "
    "pthread_mutex_unlock getresuid getresgid",
    "fails each time, where nothing is left to take": "sigtimedwait",
    "refuses, where it fails, what it would refuse for another session": "getsid",
    "is called only with borrowed rights, where nothing is preloaded": "getxattr",
    "is of popt's, for programs with a setuid bit or for other character sets": "setgid setuid iconv_open",
}


# The C library has a function under several names: prefixes are underscores and the C standard that it follows,
# suffixes are for large files, 64-bit time and checks of sizes. The library, the processor and the compiler's
# options decide which of them a program calls.
VARIANT = re.compile(r"^_*(?:isoc\w+?_)?(.+?)(?:64|_time64|_chk|_2)*_*$")


def plain_name(symbol):
    """Returns strtoul for __isoc23_strtoul, open for __open64_2, stat for __stat64_time64."""
    return VARIANT.match(symbol)[1]


def unknown_calls(program):
    """The calls of the program that no list here has."""
    thought_of = {plain_name(name) for names in (*ERRORS.values(), *NOT_WALKED.values()) for name in names.split()}
    listing = subprocess.run(["nm", "-D", "--undefined-only", program], capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1].partition("@")[0] for line in listing.splitlines()}
    return sorted(symbol for symbol in symbols if plain_name(symbol) not in thought_of)


def ways(function):
    """Every way in which a function fails: (kind, number)."""
    for error, names in ERRORS.items():
        if function in names.split():
            yield "error", error
    if function in INTERRUPTED.split():
        yield "error", errno.EINTR
    if function in PARTIAL.split():
        yield "short", 0
    for error, names in EXHAUSTED.items():
        if function in names.split():
            yield "rest", error
    if function == "clock_gettime":
        yield from CLOCKS


class Page:
    """What the tested processes share with this program."""

    def __init__(self, path):
        self.path = path
        self.clear()

    def clear(self):
        with open(self.path, "wb") as page:
            page.write(bytes(PAGE_SIZE))

    def read(self):
        with open(self.path, "rb") as page:
            data = page.read()
        reached, caller = struct.unpack_from("QQ", data)
        calls = {}
        for slot in range(SLOTS):
            name, count = struct.unpack_from("%dsQ" % NAME_SIZE, data, 16 + (NAME_SIZE + 8) * slot)
            if count:
                calls[name.rstrip(b"\0").decode()] = count
        return reached, caller, calls


def environment(page, library, failure):
    """What is added to dlock's own environment."""
    if failure is not None and failure.kind == "limit":
        return {}
    more = {"LD_PRELOAD": library, "FAIL_PAGE": page.path}
    if failure is not None:
        more.update(FAIL_CALL=failure.function, FAIL_AT=str(failure.at), FAIL_ERRNO=str(failure.number), FAIL_KIND=failure.kind)
    return more


def attempt(lab, scenario, failure):
    """Runs a scenario once. Returns what happened, and the page."""
    page = Page(os.path.join(lab.directory, "page"))
    run = lab.run(scenario, environment(page, lab.library, failure), failure)
    return run, page.read()


def failures(scenario, calls, options):
    """Everything to be walked in a scenario whose calls were counted."""
    for function, count in sorted(calls.items()):
        if options.functions and function not in options.functions:
            continue
        for kind, number in ways(function):
            if options.kinds and kind not in options.kinds:
                continue
            if kind == "ahead" and number == CLOCK_BOOTTIME and scenario.go is None:
                continue  # the kernel's timers do not follow that clock, and the end of the lease is an hour off
            numbers = range(1, count + 1)
            most = min(options.most, scenario.most if function != "clock_gettime" else 15)
            if kind == "rest":
                most = min(most, 4) # many of them take the full five seconds of a release
            elif number == errno.EINTR or kind in ("ahead", "back"):
                most = min(most, 12)
            if count > most and options.first:
                numbers = range(1, most + 1)
            elif count > most:
                numbers = sorted(random.Random(options.seed + scenario.name + function).sample(numbers, most))
            for at in numbers:
                yield Failure(function, at, kind, number)
    if not options.functions or "limits" in options.functions:
        for name, (least, most, step) in LIMITS.items():
            if name == "NPROC" and not (scenario.as_nobody and os.geteuid() == 0 and shutil.which("setpriv")):
                continue
            for value in range(least, most + 1, step):
                yield Failure(name, value, "limit", 0)


def describe(scenario, failure, caller, run, wrong, options):
    where = ""
    if caller and shutil.which("addr2line"):
        where = subprocess.run(
            ["addr2line", "-fs", "-e", options.dlock, hex(caller - 1)], capture_output=True, text=True, check=False
        ).stdout.split("\n")
        where = " in %s (%s)" % (where[0], where[1]) if len(where) > 1 and where[0] != "??" else ""
    how = failure.kind if failure.number == 0 else "%s %s" % (failure.kind, errno.errorcode.get(failure.number, failure.number))
    return "%s: %s\n    call %d of %s, %s%s\n    status %s, stderr %r, stdout %r, events %s\n    --case=%s:%s" % (
        scenario.name, "; ".join(wrong), failure.at, failure.function, how, where,
        run.status, run.stderr[:1500], run.stdout[-200:], run.events, scenario.name, failure.text(),
    )


def work(lab, scenarios, options, share, shares, report):
    """One worker: its share of the failures of each scenario."""
    deadline = time.monotonic() + (options.seconds or float("inf"))
    for number, scenario in enumerate(scenarios):
        # Each scenario has its share of the remaining time.
        end = time.monotonic() + (deadline - time.monotonic()) / (len(scenarios) - number)
        run, (_, _, calls) = attempt(lab, scenario, None)
        wrong = judge(lab, scenario, None, run)
        if wrong:
            report({"plain": scenario.name, "wrong": wrong, "text": "%s %r %r %s" % (run.status, run.stderr, run.stdout, run.events)})
            continue
        chosen = list(failures(scenario, calls, options))[share::shares]
        if options.seconds:
            random.Random(options.seed + scenario.name).shuffle(chosen)
        for failure in chosen:
            if time.monotonic() > end:
                break
            one(lab, scenario, failure, options, report)
        report({"scenario": scenario.name, "calls": sum(calls.values()), "functions": sorted(calls)})


def one(lab, scenario, failure, options, report):
    began = time.monotonic()
    run, (reached, caller, _) = attempt(lab, scenario, failure)
    wrong = judge(lab, scenario, failure, run)
    if wrong and failure.kind != "limit" and not reached:
        wrong = []  # nothing has failed: the plain run was judged
    line = {"scenario": scenario.name, "function": failure.function, "kind": failure.kind,
            "reached": bool(reached) or failure.kind == "limit",
            "status": run.status, "said": run.stderr[:200], "took": time.monotonic() - began, "number": failure.number, "at": failure.at}
    if wrong:
        line["wrong"] = wrong
        line["text"] = describe(scenario, failure, caller, run, wrong, options)
    report(line)


def worker(options, scenarios, share, shares, out):
    """The body of a forked worker, which has its own directory and servers."""
    directory = tempfile.mkdtemp(prefix="dlock-walk-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended

    def report(line):
        out.write(json.dumps(line) + "\n")
        out.flush()

    lab = Lab(directory, options.dlock, options.library)
    try:
        lab.open(scenarios)
        if options.case:
            name, _, text = options.case.partition(":")
            one(lab, next(s for s in SCENARIOS if s.name == name), Failure.parse(text), options, report)
        else:
            work(lab, scenarios, options, share, shares, report)
    finally:
        lab.close()
        shutil.rmtree(directory, ignore_errors=True)


def start_workers(options, scenarios):
    """Returns the reading end of a pipe for the workers' findings, and their pids."""
    reading, writing = os.pipe()
    pids = []
    shares = 1 if options.case else options.workers
    for share in range(shares):
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            status = 1
            try:
                with os.fdopen(writing, "w") as out:
                    worker(options, scenarios, share, shares, out)
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(status)
        pids.append(pid)
    os.close(writing)
    return os.fdopen(reading), pids


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dlock")
    parser.add_argument("library", help="tests/helpers/fail_nth.so")
    parser.add_argument("--scenarios", type=lambda text: text.split(","), help="of: " + " ".join(s.name for s in SCENARIOS))
    parser.add_argument("--functions", type=lambda text: text.split(","))
    parser.add_argument("--kinds", type=lambda text: text.split(","))
    parser.add_argument("--most", type=int, default=10000, help="calls of a function in a scenario; more are a sample")
    parser.add_argument("--first", action="store_true", help="the first calls, instead of a sample")
    add_options(parser, seed="dlock", seconds=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", help="repeats one finding")
    parser.add_argument("--log", help="every case, a JSON object a line")
    parser.add_argument("--unknown", action="store_true", help="print what dlock calls and is neither walked nor excused, and exit")
    options = parser.parse_args()
    options.dlock, options.library = os.path.abspath(options.dlock), os.path.abspath(options.library)
    return options


def main():
    options = parse_arguments()
    if options.unknown:
        print("\n".join(unknown_calls(options.dlock)))
        return 0
    scenarios = [s for s in SCENARIOS if not options.scenarios or s.name in options.scenarios]
    lines, pids = start_workers(options, scenarios)
    walked, statuses, findings, harmless, calls = 0, collections.Counter(), 0, 0, {}
    log = open(options.log, "w", encoding="utf-8") if options.log else None
    for text in lines:
        if log:
            log.write(text)
        line = json.loads(text)
        if "wrong" in line:
            findings += 1
            plain = "%s, nothing failing: %s: " % (line["plain"], line["wrong"]) if "plain" in line else ""
            print(plain + line["text"], flush=True)
        if "functions" in line:
            calls[line["scenario"]] = line["calls"]
        elif "kind" in line and line["reached"]:
            walked += 1
            statuses[line["status"]] += 1
    if log:
        log.close()
    broken = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0]
    print("%d scenarios with %d calls, %d failures walked; exit statuses: %s; %d findings" % (
        len(calls), sum(calls.values()), walked, " ".join("%s:%d" % pair for pair in sorted(statuses.items())), findings))
    write_figures(options.json, [Table("", ["scenarios", "calls in them", "failures made", "findings"], [
        ["{:,}".format(number) for number in (len(calls), sum(calls.values()), walked, findings)]])])
    return 1 if findings or broken or not walked else 0


if __name__ == "__main__":
    sys.exit(main())
