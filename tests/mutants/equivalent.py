"""Mutations that change nothing visible, as `make mutants` has drawn them, and why. They are not judged.

file: the line with the mistake, or "FUNCTION: STATEMENT -> ;" for a statement that is left out: why
"""

EQUIVALENT = {
    "src/run/watch.c": {
        "if (watch->news_fd > 0 && watch->quit_fd >= 0 && watch->store_fd >= 0 &&":
            "descriptor 0 is always open",
    },
    "src/lock/fields.c": {
        "return used + percent_encode(text + (used <= size ? used : 0), used < size ? size - used : 0,":
            "if used is size, there is no room, and nothing is written",
    },
    "src/lock/run_memory.c": {
        "*end = (struct run_end){RUN_NONE, 1, 0};":
            "an end that is not known is shown without a status",
    },
    "src/store/file/file.c": {
        "off_t next = data > 0 ? data / LOCK_RECORD_SIZE : errno == ENXIO ? places : number;":
            "the first place is never looked for behind a hole",
        "inotify_add_watch(fd, path, IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF | change) < 1)":
            "the kernel numbers watches from 1 on",
        "lock_file_read_place: (void)poll(NULL, 0, 1); -> ;":
            "a record that is being written is read again a millisecond later",
    },
    "src/run/acquisition.c": {
        "search_outer: lock_state_free(&state); -> ;":
            "the memory is freed when the process ends",
        "if (wait->request.waits || holder->shares || holder->pause.left.ns > 1 || !(ended || unknown))":
            "a pause of one nanosecond is over before anything is done",
    },
    "src/store/file/memory.c": {
        "(void)number_parse(text[FENCE], 1, INT64_MAX, &runs->success.fence);":
            "a fence that is not read is 0",
        "(void)poll(NULL, 0, 2);":
            "a torn copy is read again a millisecond later",
        "return sum != 0 ? sum : 2;":
            "one slot in 2^64 has the sum 0",
        "if (tries > 1)":
            "the second of many tries comes a millisecond earlier",
        "if (!(atomic_compare_exchange_weak(&entry->fence, &last, fence)))":
            "once the fence is there, the next exchange fails, and the loop ends",
        "memory_entry: atomic_store(&entry->used, wall_now_ms()); -> ;":
            "whoever begins an entry notes its use a moment later",
    },
    "src/store/file/rules.c": {
        "holder->ahead = -2;":
            "every negative number means that the place in the queue is not known",
    },
    "src/store/file/dir_backend.c": {
        "if (backend->waiter.ticket.number >= 0) {":
            "a dlock without a ticket has nothing to leave",
    },
    "src/store/file/exact.c": {
        "*holder = (struct holder){.shares = found->shares, .ahead = -2};":
            "every negative number means that the place in the queue is not known",
    },
    "src/store/file/queue.c": {
        "if (waiter->ticket.number >= 0)":
            "a waiter without a ticket has nothing to unlock",
        "if (!waiter->behind.running || waiter->behind_number == before->number) {":
            "the thread ends when the waiter before leaves, and the next call starts another one",
        "return found->number >= from && found->number <= to; /* otherwise the lock is not a ticket */":
            "a lock that the kernel finds in this range begins before its end",
        "for (int64_t from = 1; count < most && find_first(file, from, NUMBERS, &tickets[count]);":
            "the first ticket has the number 1",
        "return own->number > 0 ? count(file, floor_of(entry), own->number) : count(file, 1, NUMBERS);":
            "the first ticket has the number 1",
    },
    "src/store/redis/take.c": {
        "(void)number_parse(text + 6, 0, REDIS_MS_MOST, &ms);":
            "the new first waiter asks within a second anyway, and now a little sooner",
        "int64_t ms = left - TICK_MS <= most ? left - TICK_MS : most;":
            "if both are equal, one is set to the other",
        'redis_command_add(&call->words, request->fence > 1 && request->end.boot_ns > 0 ? "1" : "");':
            "a fence is 0 or a time in microseconds",
        'redis_command_add(&call->words, request->fence > 0 && request->end.boot_ns > 1 ? "1" : "");':
            "an end is 0 or a time in nanoseconds",
        "bool queues = stays && redis->place.came > 1 && !called;":
            "the time when the waiter came, in microseconds, is 0 or far above 1",
        "struct duration random = {duration_jittered(DURATION_S(1)).ns - NS_PER_S / 3};":
            "a random delay of up to a second is longer by a sixth of a second",
        'char part[TOKEN_SIZE - sizeof "wake:"];':
            "a request's id is a UUID, much shorter than the longest token",
    },
    "src/store/quorum/lease.c": {
        "if (__builtin_popcount(with) <= quorum->need) {":
            "servers beyond the majority get the fence now, and not only at the next check of the lease",
        "forget_lost: quorum->join_pause = join_interval; -> ;":
            "only the pause after the next request to join is shorter",
    },
    "src/store/redis/scripts/release.lua": {
        "if left < 0 or left >= hold then left = hold end":
            "if both are equal, one is set to the other",
    },
    "src/store/redis/scripts/queue.lua": {
        "return try('ZRANGE', queue, place - 1, place + 1)[1]":
            "only the first of the answer is used",
    },
    "src/store/redis/scripts/check.lua": {
        "if call('PTTL', meta) <= kept then call('PEXPIRE', meta, whole(kept)) end":
            "the expiry is set to what it is",
    },
}


def line_of(mutant):
    line = mutant.after.strip()
    return "%s: %s" % (mutant.function, mutant.what) if line in (";", "do end") else line


def why_equivalent(mutant):
    """Why the mutation changes nothing; None: it must be judged."""
    return EQUIVALENT.get(mutant.file, {}).get(line_of(mutant))
