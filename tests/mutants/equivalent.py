"""Mistakes that change nothing anybody could see, as `make mutants` has drawn them, and why. They are not judged.

file: the line with the mistake: why
"""

EQUIVALENT = {
    "src/lock/fields.c": {
        "return used + percent_encode(text + (used <= size ? used : 0), used < size ? size - used : 0,":
            "if used is size, there is no room, and nothing is written",
    },
    "src/store/file/memory.c": {
        "if (!(atomic_compare_exchange_weak(&entry->fence, &last, fence)))":
            "once the fence is there, the next exchange fails, and the loop ends",
    },
    "src/store/file/queue.c": {
        "return own->number > 0 ? count(file, floor_of(entry), own->number) : count(file, 1, NUMBERS);":
            "the first ticket has the number 1",
    },
    "src/store/redis/scripts/check.lua": {
        "if call('PTTL', meta) <= kept then call('PEXPIRE', meta, whole(kept)) end":
            "the expiry is set to what it is",
    },
}


def why_equivalent(mutant):
    """Why the mistake changes nothing; None: it is to be judged."""
    return EQUIVALENT.get(mutant.file, {}).get(mutant.after.strip())
