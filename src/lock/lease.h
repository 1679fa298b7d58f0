/* A lease: a lock that we hold until a deadline. Also the request to a backend,
 * and the holder of a lock that we could not acquire. */
#ifndef DLOCK_LOCK_LEASE_H
#define DLOCK_LOCK_LEASE_H

#include "lock/lock_name.h"
#include "lock/run_memory.h"
#include "process/procfs.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* No lease is longer than this when it is taken or extended. */
enum { LEASE_MOST_DAYS = 30 };
#define LEASE_MOST DURATION_S(INT64_C(86400) * LEASE_MOST_DAYS)

/* Of --message, in bytes. */
enum { MESSAGE_MOST = 256 };

/* "USER@HOST", of struct holder. */
enum { FORCER_SIZE = 64 + 256 };

/* Until it ends, nobody takes the lock; its holders keep it. */
struct pause {
    struct duration left; /* 0: the lock is not paused */
    char by[FORCER_SIZE];
    char message[MESSAGE_MOST + 1];
};

enum lock_mode {
    MODE_EXCLUSIVE, /* one holder */
    MODE_SHARED,    /* any number of holders, no exclusive one */
    MODE_SLOTS,     /* at most this many holders, each in a slot of its own */
};

/* "exclusive", "shared", "slots": as in records, keys and --json. */
const char *lock_mode_name(enum lock_mode mode);

/* The mode of this name; false if there is none. */
bool lock_mode_parse(const char *name, enum lock_mode *mode);

enum refusal {
    REFUSED_HELD,   /* a holder has the lock, or its --hold-at-least goes on */
    REFUSED_QUEUED, /* the lock is free: earlier waiters come first */
    REFUSED_DONE,   /* by once_per; since_wall_ms, host: of the run that was a success */
};

/* The holder of a lock, for people to read and for records. All of it is
 * foreign text if it comes from a server or a file. */
struct holder {
    bool known;    /* false: another client's lock, with no details */
    bool expires;  /* true if `left` is known */
    bool shares;   /* one of several, in a mode other than MODE_EXCLUSIVE */
    bool detached; /* no process holds it: --acquire */
    bool kept;     /* it has released the lock, or ended: only --hold-at-least keeps others out */
    enum refusal refusal; /* of a request for the lock */
    int ahead;            /* how many earlier waiters; -1: not known */
    int slots,
        slots_taken; /* in force, and how many of them have a holder; 0: it is held in another mode */
    struct duration left;
    int64_t since_wall_ms; /* 0: unknown */
    pid_t pid;             /* 0: unknown */
    int64_t pid_start; /* field 22 of /proc/PID/stat: a later process with its pid has another */
    int64_t pid_space; /* proc_pid_space() of the process that gave the pid; 0: unknown */
    char take_id[TOKEN_SIZE]; /* of the take that has the lock; "": unknown */
    char host[256];
    char boot_id[40];
    char user[64];
    char command[128]; /* the command's argv[0] */
    char message[MESSAGE_MOST + 1];
    struct pause pause; /* whether it has a holder or not */
};

/* The request to a backend. The strings belong to the caller and live as long
 * as the backend does. */
struct lock_request {
    const char *name;
    const char *key;
    const char *token;
    const char *take_id; /* no other run has it; the token may be one that the user chose */
    struct duration ttl;
    struct deadline
        end; /* of a lease that goes on elsewhere: shortens the TTL as it is sent; 0: nothing does */
    struct duration hold_at_least; /* others are kept out this long, however soon it is released */
    struct duration once_per; /* refused if the last success began less than that ago; 0: never */
    struct duration remember; /* how long the run is remembered; 0: not at all */
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS */
    bool
        detached; /* no process of ours stays to hold it: it lasts until its deadline or its release */
    bool waits;             /* if refused, the caller asks again, and is in the queue */
    bool attended;          /* a user is watching: what is shown of the holder should be fresh */
    bool last;              /* if this is refused, it is given up: counted as conflict or timeout */
    struct duration waited; /* so far */
    struct holder self;
};

struct lease {
    const char *name;
    const char *key;
    const char *token;
    const char *take_id; /* "": not known, the token alone shows that it is ours */
    bool outside;        /* another process took it: its mode and hold are not known here */
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS */
    int slot;  /* 0 to slots - 1; -1: none */
    struct duration ttl;
    struct duration set;   /* its length as last set: the TTL, or another client's change of it */
    int64_t fence;         /* rises with every take of the lock */
    struct deadline taken; /* before the take was sent */
    struct deadline deadline; /* from which on we may not hold it any more */
    struct deadline
        granted; /* that, as it was last set; the deadline is sooner while the store's clock is ahead */
    int64_t end_ms; /* its end on the store's own clock, as it was last set; 0: not known */
    struct deadline
        hold; /* until which others are kept out after the release; in the past: not at all */
    int64_t began_ms; /* wall clock: when it was known to be taken, which is when a run begins */
    bool lost;        /* it ended or was lost before the command did: counted at the release */
    struct duration remember; /* as requested */
    struct run_end end;       /* of its run: to be remembered at the release */
};

/* By how much a lease is shortened at its end, since two clocks never run
 * alike: 1 % of the TTL, at least 2 ms, at most 1 s. (As in Redlock's validity
 * time: redis.io, "Distributed Locks with Redis".) */
struct duration lease_drift(struct duration ttl);

/* Starts the lease, which was just taken: it counts from `before`, the moment before its take
 * was sent; its hold and its run count from now, as the request may have been long on its way. */
void lease_begin(struct lease *lease, const struct lock_request *request, struct deadline before,
                 int64_t fence);

/* How long before its end the worker under a lease is asked to stop: as --grace
 * says, or, if that is negative, a tenth of the lease as it was last set, at
 * most 10 s. */
struct duration lease_grace(struct duration set, struct duration given);

/* True if a lease that was last set to this lasts, more or less, as long as it
 * was taken for: a check that came late reports an extension as less. */
bool lease_is_as_taken(const struct lease *lease, struct duration set);

/* When the last tenth of a lease that ends at `deadline` begins. */
struct deadline lease_warning_time(const struct lease *lease, struct deadline deadline);

/* True if no more than that is left: too little to start a command with. */
bool lease_as_good_as_over(const struct lease *lease);

/* Takes in what a check reported: asked at `before`, answered at `after`, the store
 * keeps the lock `left` longer, until end_ms of its own clock.
 *
 *   end_ms differs      the lease was set to another length: that counts
 *   end_ms is the same  it was not; if `left` differs, the store's clock was set:
 *     `left` is more      the deadline stays
 *     `left` is less      the store keeps the lock no longer than that: the deadline
 *                         is sooner, until the clock is set back */
void lease_adopt(struct lease *lease, struct deadline before, struct deadline after,
                 struct duration left, int64_t end_ms);

/* The store has promised, asked at `before`, to keep the lock for `least`. */
void lease_extend(struct lease *lease, struct deadline before, struct duration least);

/* The lease ends no later than that. */
void lease_cut(struct lease *lease, struct deadline end);

/* When a holder's lease, and a pause, will just have ended; DEADLINE_NEVER: not known. */
struct deadline holder_end(const struct holder *holder);

/* Fills in host, boot id, pid, its start time, user and the command's name
 * (NULL: that of the process). pid 0 is this process. Whatever cannot be found
 * stays empty: it is for display. */
void holder_fill(struct holder *holder, pid_t pid, const char *command);

/* Fills in what gives its pid a meaning: this boot, and our pid namespace. */
void holder_fill_place(struct holder *holder);

/* True if the holder's pid means the same to us as to it: it is of our boot,
 * and of our pid namespace. Containers share the boot, dlock is pid 1 in many,
 * and two that start within 10 ms have the same start time. If one of both is
 * unknown, in a record or on this host, the answer is no: a process that is
 * wrongly taken for another waits, but one that wrongly takes another for
 * itself has no lock. */
bool holder_is_near(const struct holder *holder, const struct holder *self);

/* Whether the holder's process lives. */
enum process_life holder_life(const struct holder *holder);

/* The same of one whose process has yet to release the lock; PROCESS_UNKNOWN of others. */
enum process_life holder_life_held(const struct holder *holder);

/* True if it is that very process. */
bool holder_is_process(const struct holder *holder, const struct holder *self);

/* True if two stores report the same holder, even with little detail. The start
 * of the holding may differ by the time between two takes. */
bool holder_is_same(const struct holder *a, const struct holder *b);

#endif
