/* A lease: a lock that we hold until a deadline. Also the request to a backend, and the holder of a
 * lock that we could not acquire. */
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

/* Room for "USER@HOST" of a struct holder. */
enum { FORCER_SIZE = 64 + 256 };

/* Until the pause ends, no process can acquire the lock; its holders keep it. */
struct pause {
    struct duration left; /* 0: the lock is not paused */
    char by[FORCER_SIZE];
    char message[MESSAGE_MOST + 1];
};

enum lock_mode {
    MODE_EXCLUSIVE, /* one holder */
    MODE_SHARED,    /* any number of holders, no exclusive one */
    MODE_SLOTS,     /* at most a given number of holders, each in a slot of its own */
};

/* "exclusive", "shared", "slots": as in records, keys and --json. */
const char *lock_mode_name(enum lock_mode mode);

/* The mode of this name; false if there is none. */
bool lock_mode_parse(const char *name, enum lock_mode *mode);

enum refusal {
    REFUSED_HELD,   /* the lock is held, or --hold-at-least still keeps others out */
    REFUSED_QUEUED, /* the lock is free, but earlier waiters come first */
    REFUSED_DONE,   /* a run succeeded within once_per: since_wall_ms and host are that run's */
};

/* The holder of a lock, for people to read and for records. All text in it is foreign if it comes
 * from a server or a file. */
struct holder {
    bool known;    /* false: another client's lock, with no details */
    bool expires;  /* true if `left` is known */
    bool shares;   /* the mode is not MODE_EXCLUSIVE: the lock may have several holders */
    bool detached; /* no process holds it: --acquire */
    bool kept;     /* released, or its holder has ended: only --hold-at-least keeps others out */
    enum refusal refusal;   /* why a request for the lock was refused */
    int ahead;              /* number of earlier waiters; -1: unknown */
    int slots, slots_taken; /* slots in all, and held; 0: the mode is not MODE_SLOTS */
    struct duration left;
    int64_t since_wall_ms; /* 0: unknown */
    pid_t pid;             /* 0: unknown */
    int64_t pid_start; /* field 22 of /proc/PID/stat: a later process with this pid has another */
    int64_t pid_space; /* proc_pid_space() of the process that reported the pid; 0: unknown */
    char take_id[TOKEN_SIZE]; /* of the take that acquired the lock; "": unknown */
    char host[256];
    char boot_id[40];
    char user[64];
    char command[128]; /* the command's argv[0] */
    char message[MESSAGE_MOST + 1];
    /* Of the lock, whether or not it has a holder: */
    struct pause pause;
    struct typical typical; /* set if a request for the lock is refused */
};

/* The request to a backend. The strings belong to the caller and live as long as the backend
 * does. */
struct lock_request {
    const char *name;
    const char *key;
    const char *token;
    const char *take_id; /* unique to this run, while the token may be one that the user chose */
    struct duration ttl;
    /* For a server that joins a lease which other servers have granted: the end of that lease,
     * which also limits the TTL that is sent. 0: a new lease. */
    struct deadline end;
    struct duration hold_at_least; /* keeps others out this long, even after a release */
    struct duration once_per; /* refuse if the last success began less than this ago; 0: never */
    struct duration remember; /* how long the run is remembered; 0: not at all */
    enum lock_mode mode;
    int slots;              /* of MODE_SLOTS */
    bool detached;          /* no process of ours stays to hold the lock (--acquire) */
    bool waits;             /* if refused, the caller asks again and is in the queue */
    bool attended;          /* a user is watching: what dlock shows of the holder should be fresh */
    bool last;              /* the caller gives up if refused: counted as conflict or timeout */
    struct duration waited; /* so far */
    int64_t fence; /* proposed by a quorum: with `end`, the fence that the lease has; 0: none */
    struct holder self;
};

struct lease {
    const char *name;
    const char *key;
    const char *token;
    const char *take_id; /* "": unknown; the token alone shows that the lock is ours */
    bool outside;        /* another process acquired it, so its mode and hold are unknown here */
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS */
    int slot;  /* 0 to slots - 1; -1: none */
    struct duration ttl;
    struct duration set;   /* length as last set: the TTL, or what another client changed it to */
    int64_t fence;         /* rises with every take of the lock */
    struct deadline taken; /* before the take was sent */
    struct deadline deadline; /* from then on we do not hold the lock */
    struct deadline granted;  /* as last set; `deadline` is sooner if the store's clock is ahead */
    int64_t end_ms;           /* the end as last set, on the store's clock; 0: unknown */
    struct deadline hold; /* --hold-at-least keeps others out until then; in the past: no hold */
    int64_t began_ms; /* wall clock: when we learned that we had acquired it; the run starts then */
    bool lost;        /* ended or lost before the command ended: counted at the release */
    struct duration remember; /* as requested */
    struct run_end end;       /* how its run ended: remembered at the release */
};

/* By how much a lease is shortened at its end, because no two clocks run at the same rate: 1 % of
 * the TTL, at least 2 ms, at most 1 s. (Compare Redlock's validity time: redis.io, "Distributed
 * Locks with Redis".) */
struct duration lease_drift(struct duration ttl);

/* Starts the lease of a lock that was just acquired. The lease counts from `before`, the moment
 * before the take was sent. Its hold and its run count from now, because the request may have taken
 * a long time. */
void lease_begin(struct lease *lease, const struct lock_request *request, struct deadline before,
                 int64_t fence);

/* How long before the end of a lease the command is asked to stop: `given`, the value of --grace,
 * or, if that is negative, a tenth of the lease as last set, at most 10 s. */
struct duration lease_grace(struct duration set, struct duration given);

/* True if `set` is about the TTL with which the lease was acquired. It need not be equal: a check
 * that came late reports an extension as shorter. */
bool lease_is_as_taken(const struct lease *lease, struct duration set);

/* When the last tenth of a lease that ends at `deadline` begins. */
struct deadline lease_warning_time(const struct lease *lease, struct deadline deadline);

/* True if only the last tenth or less is left: too little to start a command with. */
bool lease_as_good_as_over(const struct lease *lease);

/* Adopts what a check of the lease reported. The check was sent at `before` and answered at
 * `after`; the store keeps the lock `left` longer, until end_ms on its own clock.
 *
 *   end_ms has changed   the lease was set to another length, which is adopted
 *   end_ms is the same   the lease was not set; if `left` differs, the store's clock was set:
 *     `left` is more       the deadline stays
 *     `left` is less       the store keeps the lock no longer than that, so the deadline is
 *                          sooner, until the clock is set back */
void lease_adopt(struct lease *lease, struct deadline before, struct deadline after,
                 struct duration left, int64_t end_ms);

/* The store, asked at `before`, has promised to keep the lock for at least `least`. */
void lease_extend(struct lease *lease, struct deadline before, struct duration least);

/* Lets the lease end no later than `end`. */
void lease_cut(struct lease *lease, struct deadline end);

/* The first moment at which the holder's lease and the lock's pause are both over; DEADLINE_NEVER:
 * unknown. */
struct deadline holder_end(const struct holder *holder);

/* Fills in host, boot id, pid and its start time, user and command name (NULL: the process's name).
 * pid 0 is this process. Whatever cannot be found stays empty, because it is only displayed. */
void holder_fill(struct holder *holder, pid_t pid, const char *command);

/* Fills in what gives the holder's pid a meaning: this boot, and our pid namespace. */
void holder_fill_place(struct holder *holder);

/* True if the holder's pid means the same to us as to the holder: both are of one boot and one pid
 * namespace. Containers share the boot, dlock is pid 1 in many, and two processes that start within
 * 10 ms have the same start time. False if boot or namespace is unknown, in the record or on this
 * host. A process that wrongly takes the holder for another process merely waits. A process that
 * wrongly takes the holder for itself runs without the lock. */
bool holder_is_near(const struct holder *holder, const struct holder *self);

/* Whether the holder's process is alive. */
enum process_life holder_life(const struct holder *holder);

/* Like holder_life(), but PROCESS_UNKNOWN unless the holder's process must still release the
 * lock. */
enum process_life holder_life_held(const struct holder *holder);

/* True if the holder is the process `self`. */
bool holder_is_process(const struct holder *holder, const struct holder *self);

/* True if two stores report the same holder, even with little detail. The times of acquisition may
 * differ by the time between the holder's two requests. */
bool holder_is_same(const struct holder *a, const struct holder *b);

#endif
