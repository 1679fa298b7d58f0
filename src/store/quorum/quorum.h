/* Several stores that keep one lock together: it is held by the client that has it in a
 * majority of them. Declarations that the files of the quorum share. */
#ifndef DLOCK_STORE_QUORUM_QUORUM_H
#define DLOCK_STORE_QUORUM_QUORUM_H

#include "redis/url.h"
#include "store/backend.h"
#include "util/array.h"

#include <pthread.h>

enum { QUORUM_LEAST = 3, QUORUM_MOST = 15 };

/* What a look is for. */
enum look_for { LOOK_AT, LOOK_LIST, LOOK_REMOVE };

struct quorum;
struct quorum_member;

/* Asks this server. Runs in its thread. */
typedef enum lock_result quorum_ask(struct quorum *quorum, struct quorum_member *member,
                                    struct bound bound);

/* How much longer to wait for those that have not answered. Called after each answer, by
 * the thread that got it, with the mutex held. */
typedef struct duration quorum_patience(const struct quorum *quorum);

#define QUORUM_WAITS ((struct duration){INT64_MAX})

typedef bool quorum_wanted(const struct quorum *quorum, const struct quorum_member *member);

/* The standing of our lease on one of the servers. It is a lock as long as a majority
 * grants it, even if these cannot be asked at the moment; a server that has never granted
 * it, or has lost it, may grant it to another. */
enum member_standing {
    MEMBER_WITHOUT, /* it has no lock of ours: it never granted one, or has lost it */
    MEMBER_OWES,    /* a take of ours may still be carried out, and must be released */
    MEMBER_GRANTS,
    MEMBER_RELEASED, /* by us, or by another process with our token: it is not taken there again */
};

/* One of the servers, and what is known about it. */
struct quorum_member {
    struct quorum *quorum;
    struct backend *store;
    char url[sizeof((struct redis_url *)0)->shown]; /* as it is shown */
    enum lock_result result;                        /* from the last round that asked it */
    struct errmsg why;                              /* of the result */
    struct holder holder;                           /* if it is LOCK_HELD */
    enum member_standing standing;
    struct lease lease;    /* as this server has it; deadline 0: it has none */
    bool chosen;           /* for the round */
    struct duration worth; /* how long a release waits for it, once there is a verdict */
    struct deadline joins; /* when to try again to acquire the lock here as well */
    struct deadline until; /* MEMBER_OWES: the end of that take's lease; 0: it was not granted */
    char owed[TOKEN_SIZE]; /* MEMBER_OWES: the id of that take */
    bool asked, done;      /* in the round, which has its result */
    bool started;          /* a thread of its own */
    pthread_t thread;
    struct lock_state state; /* what a look has found */
    struct key_list keys;    /* what a list has found */
    bool short_of_memory;    /* for that */
};

struct quorum {
    struct backend base;
    int count;
    int need; /* a majority */
    struct quorum_member members[QUORUM_MOST];
    struct lock_request request; /* the last one, with our own take id */
    char first_id[TOKEN_SIZE],
        take_id[TOKEN_SIZE]; /* of the first and of the last take: the one begins as the other */
    int takes;
    struct lease lease;      /* the lease that a round is about */
    enum extend_how how;     /* of extend() */
    const char *key;         /* of look(), force_release() and pause() */
    enum look_for looks_for; /* of a look */
    const struct pause *pause;
    const char *prefix, *pattern; /* of list() */
    bool all;
    struct deadline start; /* of the round */
    struct duration pace;  /* time from start to verdict of the last round */
    bool has_others;       /* of the round: if one fails, another may do */
    int splits;            /* how often in a row it was refused though no client has a majority */
    struct deadline again; /* when to ask again for a lock that is held */
    struct errmsg note, warning; /* what base.note and base.warning point to */
    unsigned noted;              /* the members that the note is about, one bit each */
    struct duration join_pause;  /* when to ask members without the lock again; 0: all have it */
    int lacking;                 /* how many these were last */
    int news_fd;                 /* an epoll(7) of the members' own; -1: none */
    int cut_fd;    /* a timerfd: when it expires, unfinished members are no longer waited for */
    int cancel_fd; /* for all waits: an epoll(7) of cut_fd and of the caller's own */
    pthread_mutex_t mutex;
    quorum_ask *ask; /* of the round */
    quorum_patience *patience;
    struct bound bound;
    struct deadline cut;
    struct deadline decided; /* when patience has set the first cut */
};

static inline struct quorum *quorum_of(struct backend *backend)
{
    return (struct quorum *)(void *)backend;
}

/* The results of the members in the last round. */
struct quorum_count {
    int ok;
    int held;             /* by another */
    int lost;             /* gone, another's, released */
    int bad;              /* refused, or no use */
    int refused, invalid; /* of these */
    int silent;           /* no answer */
};

/* During a round, of those that have answered. A member that is not asked has no lock of
 * ours, or was released before. */
struct quorum_count quorum_count_round(const struct quorum *quorum);

/* By the last results of all members. */
struct quorum_count quorum_count_all(const struct quorum *quorum);

/* LOCK_OK if a majority has done what the last round asked; otherwise *why says why not. */
enum lock_result quorum_answer(const struct quorum *quorum, bool cancelled, struct errmsg *why);

/* A majority's verdict on a lease after a round that has asked all servers that
 * `may_have` it, before their standing changes by it. With *why set: LOCK_OK; LOCK_GONE,
 * LOCK_FOREIGN, LOCK_RELEASED or LOCK_ENDED if those that have not lost it are no majority; otherwise
 * the reason why it is unknown. */
enum lock_result quorum_verdict(const struct quorum *quorum, quorum_wanted *may_have,
                                bool cancelled, struct errmsg *why);

/* True if our take has the lock there. */
bool quorum_grants(const struct quorum *quorum, const struct quorum_member *member);

/* If too few answer: LOCK_REFUSED, LOCK_INVALID or LOCK_SYSTEM if there would be no
 * majority even if all others came back; otherwise LOCK_UNAVAILABLE. */
enum lock_result quorum_failure(const struct quorum *quorum, struct errmsg *why);

/* Of `count` servers' values (a deadline, a fence): the highest that a majority reaches,
 * or all of them if they are fewer; sorts the values. */
int64_t quorum_has(const struct quorum *quorum, int64_t *values, int count);

/* The pause that a majority of the servers has; `pauses` are those of all members. */
struct pause quorum_paused(const struct quorum *quorum, const struct pause *const *pauses);

/* Until when a majority grants the lease. */
struct deadline quorum_deadline(const struct quorum *quorum);

/* Reports in base.note and base.warning the members that have a problem. */
void quorum_note(struct quorum *quorum, bool taken);

/* Reports in base.note the members that `what` has not reached. False if there are none. */
bool quorum_note_unreached(struct quorum *quorum, const char *what, const char *there);

/* The same after a release: the members that it has not reached. If a majority of them may
 * have the lock still, that is a warning. */
void quorum_note_left(struct quorum *quorum);

/* For a question that may take its time: once there is a verdict, the slow members get
 * some more time. */
struct duration quorum_judge(const struct quorum *quorum);

/* Before the first round. LOCK_OK; LOCK_SYSTEM with *why set. */
enum lock_result quorum_prepare_rounds(struct quorum *quorum, struct errmsg *why);

/* Asks the wanted members (NULL: all) at the same time, each in a thread but the last,
 * which the caller's thread asks, and waits for them as long as `patience` says, cut by
 * the bound. Then each of these has a result, LOCK_CANCELLED if it was cut short; the
 * others keep theirs. Returns whether the bound's own cancel descriptor is readable. */
bool quorum_round(struct quorum *quorum, quorum_ask *ask, quorum_patience *patience,
                  struct bound bound, quorum_wanted *wanted);

/* How much more time the slow members get: as much as the others have taken since
 * `start`, within these limits. */
struct duration quorum_grace(struct deadline start, struct duration least, struct duration most);

/* A limit in milliseconds that suits near servers would cut short all distant ones: time
 * for so many rounds of the others, least to 1 s. */
struct duration quorum_rounds(const struct quorum *quorum, int rounds, struct duration least);

/* After a round that has asked all for a verdict. */
void quorum_learn_pace(struct quorum *quorum);

/* --- store/quorum/take.c -------------------------------------------------- */

/* take() of store/backend.h. */
enum lock_result quorum_take(struct backend *backend, const struct lock_request *request,
                             struct lease *lease, struct holder *holder, struct bound bound,
                             struct errmsg *why);

/* Between two tries to have a server join, and before the first if it has lost the lock. */
extern const struct duration quorum_join_interval;

/* Makes a server without our lock take it as well, for the rest of the lease, which does
 * not become longer. Results as of check(), and LOCK_HELD. */
enum lock_result quorum_join(struct quorum *quorum, struct quorum_member *member,
                             struct bound bound);

/* Raises the fence of a server that has our lock to at least the lease's. Results as of
 * check(). */
enum lock_result quorum_raise_on(struct quorum *quorum, struct quorum_member *member,
                                 struct bound bound);

/* Releases what an earlier take may have left on this server. Results as of release();
 * nothing is owed any more if the server knows what became of it. */
enum lock_result quorum_settle(struct quorum *quorum, struct quorum_member *member,
                               struct bound bound);

/* True if there is anything to settle. */
bool quorum_owes(const struct quorum *quorum, const struct quorum_member *member);

/* Called for the last take, if no earlier one is owed: it is owed from now on. */
void quorum_owe(const struct quorum *quorum, struct quorum_member *member);

/* --- store/quorum/look.c: as in store/backend.h --------------------------- */

/* A lock on a minority is no lock: look() reports it in base.note, force_release()
 * removes it too. */
enum lock_result quorum_look(struct backend *backend, const char *key, struct lock_state *state,
                             struct bound bound, struct errmsg *why);
enum lock_result quorum_force_release(struct backend *backend, const char *key,
                                      struct lock_state *was, struct bound bound,
                                      struct errmsg *why);
enum lock_result quorum_pause(struct backend *backend, const char *key, const struct pause *pause,
                              struct bound bound, struct errmsg *why);
enum lock_result quorum_list(struct backend *backend, const char *prefix, const char *pattern,
                             bool all, bool (*visit)(void *data, const struct lock_state *),
                             void *data, struct bound bound, struct errmsg *why);

#endif
