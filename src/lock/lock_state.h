/* The state of a lock as its store knows it, for --status, --list and --force-release. Do not trust
 * the text in it, which other processes wrote. */
#ifndef DLOCK_LOCK_LOCK_STATE_H
#define DLOCK_LOCK_LOCK_STATE_H

#include "lock/lease.h"
#include "lock/result.h"
#include "lock/run_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One of the holders of a lock. */
struct lock_owner {
    char token[TOKEN_SIZE];
    struct holder holder; /* `known` is false if a client that is not dlock holds the lock */
    int64_t fence;        /* 0: unknown */
    int slot;             /* -1: none */
    struct duration ttl;  /* TTL when the lock was acquired; 0: unknown */
    struct duration hold_left;
};

/* Counters of a lock, for as long as the store keeps them. Redis drops them 30 days after the lock
 * was last acquired. */
struct lock_counts {
    int64_t takes;     /* how often the lock was acquired */
    int64_t conflicts; /* not acquired: the lock was held, and the caller did not wait */
    int64_t timeouts;  /* not acquired: the lock was held until the end of the caller's wait */
    int64_t losses;    /* a holder found that it had lost the lock */
    int64_t waited_ms; /* total time that waiters have waited */
    int64_t held_ms;   /* total time that the lock was held, counted at each release */
};

/* The most waiters that a store reports. */
enum { WAITERS_SHOWN = 20 };

struct lock_waiter {
    int64_t since_wall_ms; /* 0: unknown */
    pid_t pid;             /* 0: unknown */
    enum lock_mode mode;
    int slots; /* number of slots, for MODE_SLOTS */
    char host[256];
    char user[64];
    char message[MESSAGE_MOST + 1];
};

struct lock_state {
    char key[LOCK_KEY_SIZE];
    bool unusable; /* another program uses the lock's keys; nothing else is known */
    int64_t newer; /* the format if it is newer than ours (nothing else is known then); or 0 */
    bool locked;
    enum lock_mode mode;       /* MODE_EXCLUSIVE if free, or held by a client that is not dlock */
    int slots;                 /* number of slots, for MODE_SLOTS; otherwise 0 */
    int waiters;               /* processes that wait for the lock; -1: unknown */
    struct lock_waiter *queue; /* the first known waiters, in the order of the queue */
    size_t queue_count;
    struct pause pause;
    struct lock_owner *owners; /* none if the lock is free */
    size_t owner_count;
    int64_t last_fence;       /* fencing token of the last holder; 0: unknown */
    int64_t released_wall_ms; /* time of the last release; 0: unknown */
    char last_owner[TOKEN_SIZE];
    struct lock_counts counts;
    struct run_memory memory; /* a run whose lease has ended without a release counts as lost */
};

/* Writes the user and host of this process, as "USER@HOST", for --force-release and --pause. */
void lock_forcer(char text[FORCER_SIZE]);

/* Sets *why to the message that `by` ("USER@HOST") took the lock away with --force-release. */
void lock_forced(struct errmsg *why, const char *by);

/* Initializes the state with `count` owners, whose details the caller fills in. Returns false if
 * memory is short. */
bool lock_state_init(struct lock_state *state, const char *key, size_t count);

/* Frees what the state points to, and resets the state. */
void lock_state_free(struct lock_state *state);

/* `looked` is the result of reading the state of a lock for a list. If the lock is unusable, or has
 * a newer format than dlock's own, returns LOCK_OK instead of LOCK_INVALID, so that the list goes
 * on. */
enum lock_result lock_state_of_list(struct lock_state *state, const char *key,
                                    enum lock_result looked);

/* Which locks to list, and the function that is called for each. */
struct listing {
    const char *prefix;  /* the beginning of the keys */
    const char *pattern; /* glob(7) pattern for the rest of the key; NULL: any */
    bool all;            /* also list free locks that remember a run */
    bool (*visit)(void *data, const struct lock_state *); /* returns false to stop the list */
    void *data;
};

/* True if a list shows the lock: if it is held or paused, if its format is newer than dlock's own,
 * or, with `all`, if it remembers a run. */
bool lock_state_is_listed(const struct lock_state *state, bool all);

/* The owner with this token; NULL if there is none. */
const struct lock_owner *lock_state_owner(const struct lock_state *state, const char *token);

/* The keys of the locks that a search has found. */

struct key_list {
    char **keys;
    size_t count, room;
};

/* Adds a copy of `key`. False if memory is short. */
bool key_list_add(struct key_list *list, const char *key);

/* Sorts the keys by their bytes, and removes duplicates. */
void key_list_sort(struct key_list *list);

/* Frees the contents, and leaves the list empty. */
void key_list_free(struct key_list *list);

#endif
