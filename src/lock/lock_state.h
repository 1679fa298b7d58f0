/* The state of a lock as its store knows it, for --status, --list and --force-release. All text in
 * it comes from others. */
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
    struct holder holder; /* known: false for another client's lock */
    int64_t fence;        /* 0: unknown */
    int slot;             /* -1: none */
    struct duration ttl;  /* as set by the take; 0: unknown */
    struct duration hold_left;
};

/* Counted for as long as the store keeps them: on Redis, until 30 days after the last take. */
struct lock_counts {
    int64_t takes;     /* how often the lock was acquired */
    int64_t conflicts; /* not acquired: the lock was held, and the caller did not wait */
    int64_t timeouts;  /* not acquired: the lock was held until the end of the caller's wait */
    int64_t losses;    /* a holder found that it had lost the lock */
    int64_t waited_ms; /* by all waiters */
    int64_t held_ms;   /* by all holders that have released the lock */
};

/* A waiter. At most WAITERS_SHOWN of them are known. */
enum { WAITERS_SHOWN = 20 };

struct lock_waiter {
    int64_t since_wall_ms; /* 0: unknown */
    pid_t pid;             /* 0: unknown */
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS */
    char host[256];
    char user[64];
    char message[MESSAGE_MOST + 1];
};

struct lock_state {
    char key[LOCK_KEY_SIZE];
    bool unusable; /* its keys are another program's: nothing else is known */
    int64_t newer; /* the format, if it is newer than ours: nothing else is known; otherwise 0 */
    bool locked;
    enum lock_mode mode;       /* in force; MODE_EXCLUSIVE if free, or held by another client */
    int slots;                 /* of MODE_SLOTS, otherwise 0 */
    int waiters;               /* processes that wait for the lock; -1: unknown */
    struct lock_waiter *queue; /* the first waiters in order, as far as the store knows them */
    size_t queue_count;
    struct pause pause;
    struct lock_owner *owners; /* none if the lock is free */
    size_t owner_count;
    int64_t last_fence;       /* fence of the last take; 0: unknown */
    int64_t released_wall_ms; /* time of the last release; 0: unknown */
    char last_owner[TOKEN_SIZE];
    struct lock_counts counts;
    struct run_memory memory; /* a run whose lease has ended without a release counts as lost */
};

/* The caller of --force-release or --pause, as "USER@HOST". */
void lock_forcer(char text[FORCER_SIZE]);

/* Sets the message that `by` ("USER@HOST") took the lock away. */
void lock_forced(struct errmsg *why, const char *by);

/* Makes room for `count` empty owners. False if memory is short. */
bool lock_state_init(struct lock_state *state, const char *key, size_t count);

/* Frees what the state points to, and resets the state. */
void lock_state_free(struct lock_state *state);

/* For lists, which also show locks that cannot be used or have a newer format: turns the failure of
 * a look at such a lock into LOCK_OK. */
enum lock_result lock_state_of_list(struct lock_state *state, const char *key,
                                    enum lock_result looked);

/* Which locks to list, and the function that gets them. */
struct listing {
    const char *prefix;  /* of the keys */
    const char *pattern; /* a glob(7) that the rest of the key matches; NULL: anything */
    bool all;            /* also free locks that remember a run */
    bool (*visit)(void *data, const struct lock_state *); /* per lock; false: no further lock */
    void *data;
};

/* True if a list shows the lock: it is held or paused, or its format is newer; or, with `all`, it
 * remembers a run. */
bool lock_state_is_listed(const struct lock_state *state, bool all);

/* The owner with this token; NULL if there is none. */
const struct lock_owner *lock_state_owner(const struct lock_state *state, const char *token);

/* The keys of locks that a search has found, before dlock looks at each. */

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
