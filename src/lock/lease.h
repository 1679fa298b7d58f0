/* Leases: a lease is a lock that we hold until a deadline. This file also describes a request to a
 * backend, and the holder of a lock that we could not acquire. */
#ifndef DLOCK_LOCK_LEASE_H
#define DLOCK_LOCK_LEASE_H

#include "lock/lock_name.h"
#include "lock/run_memory.h"
#include "process/procfs.h"
#include "util/clock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The longest lease that can be acquired or set by an extension. */
enum { LEASE_MOST_DAYS = 30 };
#define LEASE_MOST DURATION_S(INT64_C(86400) * LEASE_MOST_DAYS)

/* The longest --message, in bytes. */
enum { MESSAGE_MOST = 256 };

/* Room for the user and host of a struct holder, as "USER@HOST". */
enum { FORCER_SIZE = 64 + 256 };

/* Until a pause ends, no process can acquire the lock. Its present holders keep the lock. */
struct pause {
    struct duration left; /* 0: the lock is not paused */
    char by[FORCER_SIZE];
    char message[MESSAGE_MOST + 1];
};

enum lock_mode {
    MODE_EXCLUSIVE, /* one holder */
    MODE_SHARED,    /* any number of holders, but no exclusive one */
    MODE_SLOTS,     /* a limited number of holders, each in its own slot */
};

/* Returns "exclusive", "shared" or "slots": the names in records, keys and --json. */
const char *lock_mode_name(enum lock_mode mode);

/* Sets *mode to the mode with this name. False if there is no such mode. */
bool lock_mode_parse(const char *name, enum lock_mode *mode);

enum refusal {
    REFUSED_HELD,   /* the lock is held, or --hold-at-least still keeps others out */
    REFUSED_QUEUED, /* the lock is free, but earlier waiters come first */
    REFUSED_DONE,   /* a run succeeded within --once-per; struct holder has its time and host */
};

/* The holder of a lock, as stored in records and shown to people. If it was read from a server or a
 * file, do not trust its text. */
struct holder {
    bool known;    /* false: a client that is not dlock holds the lock; no details are known */
    bool expires;  /* true if `left` is known */
    bool shares;   /* the mode is not MODE_EXCLUSIVE, so the lock may have several holders */
    bool detached; /* acquired with --acquire: no process holds the lock */
    bool kept; /* released, or the holder has ended, but --hold-at-least still keeps others out */
    enum refusal refusal;   /* why a request for the lock was refused */
    int ahead;              /* number of earlier waiters; -1: unknown */
    int slots, slots_taken; /* total and held slots; 0 unless the mode is MODE_SLOTS */
    struct duration left;
    int64_t since_wall_ms; /* 0: unknown */
    pid_t pid;             /* 0: unknown */
    int64_t pid_start;     /* start time, from /proc/PID/stat; the pid alone may be reused */
    int64_t pid_space;     /* proc_pid_space() of the process that reported the pid; 0: unknown */
    char take_id[TOKEN_SIZE]; /* id of the request that acquired the lock; "": unknown */
    char host[256];
    char boot_id[40];
    char user[64];
    char command[128]; /* the command's argv[0] */
    char message[MESSAGE_MOST + 1];
    /* These belong to the lock, whether or not it has a holder: */
    struct pause pause;
    struct typical typical; /* how long runs usually take; set if a request is refused */
};

/* A request to a backend to acquire a lock. The strings belong to the caller and live as long as
 * the backend does. */
struct lock_request {
    const char *name;
    const char *key;
    const char *token;
    const char *take_id; /* unique to this run, unlike a token that a user has chosen */
    struct duration ttl;
    /* The end of the lease, if other servers of a quorum have already granted the lease. This time
     * also limits the TTL that is sent. 0: the lease is new. */
    struct deadline end;
    struct duration hold_at_least; /* how long others are kept out, even after a release */
    struct duration once_per;      /* refuse if a success began more recently than this; 0: never */
    struct duration remember;      /* how long to remember the run; 0: not at all */
    enum lock_mode mode;
    int slots;     /* number of slots, for MODE_SLOTS */
    bool detached; /* no process stays to hold the lock (--acquire) */
    bool waits;    /* if refused, the caller stays in the queue and asks again */
    bool attended; /* a user is watching, so the displayed holder should be up to date */
    /* If this request is refused, the caller gives up, and the store counts a conflict or a
     * timeout. */
    bool last;
    struct duration waited; /* how long the caller has waited so far */
    int64_t fence; /* fencing token that a quorum proposes or, if `end` is set, has chosen; or 0 */
    struct holder self;
};

struct lease {
    const char *name;
    const char *key;
    const char *token;
    const char *take_id; /* "": unknown, so only the token shows that the lock is ours */
    bool outside;        /* another process acquired the lock, so `mode` and `hold` are unknown */
    enum lock_mode mode;
    int slots; /* number of slots, for MODE_SLOTS */
    int slot;  /* 0 to slots - 1; -1: none */
    struct duration ttl;
    struct duration set;   /* current length: the TTL, or the length that another client has set */
    int64_t fence;         /* fencing token; rises each time the lock is acquired */
    struct deadline taken; /* when the lease began: just before the lock was requested */
    struct deadline deadline; /* from this time on, we do not hold the lock */
    /* The deadline as last set. `deadline` is earlier if the store's clock was set forward. */
    struct deadline granted;
    int64_t end_ms;       /* end of the lease by the store's clock, as last set; 0: unknown */
    struct deadline hold; /* --hold-at-least keeps others out until this time (may be past) */
    int64_t began_ms;     /* start of the run (wall clock): when we learned that we had the lock */
    /* The lease ended or was lost before the command ended. The release counts this as a loss. */
    bool lost;
    struct duration remember; /* how long the store remembers the run */
    struct run_end end;       /* how the run ended; stored at the release */
};

/* The time that is cut off the end of a lease, because no two clocks run at the same rate: 1 % of
 * the TTL, at least 2 ms and at most 1 s. (Compare Redlock's validity time: redis.io, "Distributed
 * Locks with Redis".) */
struct duration lease_drift(struct duration ttl);

/* Starts the lease of a lock that was just acquired. The lease begins at `before`, the moment
 * before the request was sent. The run and the time of --hold-at-least begin now, because the
 * request may have taken a long time. */
void lease_begin(struct lease *lease, const struct lock_request *request, struct deadline before,
                 int64_t fence);

/* How long before the end of a lease the command is asked to stop: `given`, the value of --grace,
 * or, if that is negative, a tenth of `set` (the length of the lease), but at most 10 s. */
struct duration lease_grace(struct duration set, struct duration given);

/* True if `set` is close to the TTL with which the lease was acquired. Ignores a small difference:
 * if another client has extended the lease, `set` is what was left of it at the next check. */
bool lease_is_as_taken(const struct lease *lease, struct duration set);

/* When the last tenth of a lease that ends at `deadline` begins. */
struct deadline lease_warning_time(const struct lease *lease, struct deadline deadline);

/* True if a tenth of the lease or less is left, which is too little to start a command. */
bool lease_as_good_as_over(const struct lease *lease);

/* Adopts what a check of the lease reported. The check was sent at `before` and answered at
 * `after`. The store keeps the lock for `left`, until end_ms by the store's clock.
 *
 *   end_ms has changed   the lease was given another length, which we adopt
 *   end_ms is the same   the length is the same; if `left` differs, the store's clock was set:
 *     `left` is more       the deadline stays the same
 *     `left` is less       the store will drop the lock earlier, so the deadline is earlier
 *                          until the store's clock is set back */
void lease_adopt(struct lease *lease, struct deadline before, struct deadline after,
                 struct duration left, int64_t end_ms);

/* Extends the lease in memory. Call this after the store has promised, in reply to a request sent
 * at `before`, to keep the lock for at least `least`. */
void lease_extend(struct lease *lease, struct deadline before, struct duration least);

/* Lets the lease end no later than `end`. */
void lease_cut(struct lease *lease, struct deadline end);

/* When the holder's lease and the lock's pause have both ended; DEADLINE_NEVER: unknown. */
struct deadline holder_end(const struct holder *holder);

/* Fills in the host, boot id, pid, start time, user and command name (NULL: the name of the
 * process). pid 0 means this process. A value that cannot be found stays empty, because it is only
 * displayed. */
void holder_fill(struct holder *holder, pid_t pid, const char *command);

/* Fills in the boot id and the pid namespace, without which the pid means nothing. */
void holder_fill_place(struct holder *holder);

/* True if the holder's pid means the same process to us: we have the same boot and the same pid
 * namespace as the holder. The boot alone is not enough, because containers share it, dlock is pid
 * 1 in many of them, and two processes that start within 10 ms get the same start time. False if
 * the boot or the namespace is unknown, in the record or on this host. With a wrong "false", a
 * process merely waits. With a wrong "true", a process could mistake the holder for itself, and run
 * without the lock. */
bool holder_is_near(const struct holder *holder, const struct holder *self);

/* Whether the holder's process is alive. */
enum process_life holder_life(const struct holder *holder);

/* Like holder_life(), but returns PROCESS_UNKNOWN if the holder's process does not matter: the lock
 * was acquired with --acquire, is kept only by --hold-at-least, or is free. */
enum process_life holder_life_held(const struct holder *holder);

/* True if the holder is the process `self`. */
bool holder_is_process(const struct holder *holder, const struct holder *self);

/* True if two stores report the same holder. The times of acquisition are not compared, because the
 * holder's requests reached the stores at different times. */
bool holder_is_same(const struct holder *a, const struct holder *b);

#endif
