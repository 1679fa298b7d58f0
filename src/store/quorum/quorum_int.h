/* Several stores that keep one lock together: the client that has the lock in a majority of them
 * holds it. This header declares what the files of the quorum share. */
#ifndef DLOCK_STORE_QUORUM_QUORUM_INT_H
#define DLOCK_STORE_QUORUM_QUORUM_INT_H

#include "redis/url.h"
#include "store/backend.h"

#include <pthread.h>

enum { QUORUM_LEAST = 3, QUORUM_MOST = 15 };

/* Results as sets of bits. */
enum {
    RESULT_OK = 1 << LOCK_OK,
    RESULT_HELD = 1 << LOCK_HELD, /* the lock is held by another client */
    RESULT_PAST = 1 << LOCK_GONE | 1 << LOCK_FOREIGN | 1 << LOCK_ENDED | 1 << LOCK_RELEASED,
    RESULT_MISCONFIGURED = 1 << LOCK_REFUSED | 1 << LOCK_INVALID,
    RESULT_BAD = RESULT_MISCONFIGURED | 1 << LOCK_CANT_CREATE | 1 << LOCK_SYSTEM, /* permanent */
    RESULT_SILENT = 1 << LOCK_UNAVAILABLE | 1 << LOCK_CANCELLED,
    RESULT_FAILED = RESULT_BAD | RESULT_SILENT,
};

/* The standing of this process's lease on one server. The lock is held as long as a majority grants
 * the lease, even if these servers cannot be asked at the moment. A server that has never granted
 * the lease, or has lost it, may grant the lock to another client. Each standing is one bit, for
 * sets of standings. */
enum member_standing {
    MEMBER_WITHOUT = 1,  /* no lease there: never granted, or lost since */
    MEMBER_OWES = 2,     /* a request for the lock may still take effect there, and must be
                          * released */
    MEMBER_GRANTS = 4,   /* has granted the lease (may have, if the lease belongs to another
                          * process) */
    MEMBER_RELEASED = 8, /* the lock was released there, by any process; do not request it there
                          * again */
    MEMBER_LACKS = MEMBER_WITHOUT | MEMBER_OWES,
};

/* A set of members, one bit for each. */
typedef unsigned member_set;
#define QUORUM_ALL (~0U)

/* One of the servers, and what is known about it. */
struct quorum_member {
    struct quorum *quorum;
    member_set bit; /* the bit of this member */
    struct backend *store;
    char url[sizeof((struct redis_url *)0)->shown]; /* as shown to people */
    enum member_standing standing;
    struct lease lease;    /* the lease as stored on this server; deadline 0: no lease */
    struct deadline until; /* MEMBER_OWES: when the lease of the request `owed` ends; 0: none */
    char owed[TOKEN_SIZE]; /* MEMBER_OWES: the id of the request that must be released */

    /* From the last round that asked this member: */
    bool asked;
    bool done; /* the result has arrived */
    enum lock_result result;
    struct errmsg why;       /* the reason for the result */
    struct holder holder;    /* the holder, if the result is LOCK_HELD */
    struct lock_state state; /* the state that look() has found */
    struct pause pause;      /* the pause that take() or look() has found */
    bool started;            /* a separate thread asks this member */
    pthread_t thread;
};

/* What a round (store/quorum/round.c) asks the members. */
struct quorum_question {
    /* Asks one server, usually in a separate thread; `about` is the same for all members. */
    enum lock_result (*ask)(struct quorum_member *member, void *about, struct bound bound);
    void *about;
    /* Returns how much longer to wait for the members that have not answered; QUORUM_WAITS means
     * until the bound. Called with the mutex held: at the start, and after each answer by the
     * thread that got it. NULL: always QUORUM_WAITS. */
    struct duration (*patience)(const struct quorum *quorum);
    member_set who;
};

#define QUORUM_WAITS ((struct duration){INT64_MAX})

struct quorum {
    struct backend base;
    int count;
    int need; /* a majority */

    /* The takes. */
    struct lock_request request; /* the last request, with the take_id below */
    char first_id[TOKEN_SIZE];   /* the take id of the first take */
    char take_id[TOKEN_SIZE];    /* the take id of the last take; always begins with first_id */
    int takes;
    int splits;            /* consecutive refusals in which no client had a majority */
    struct deadline again; /* when to ask again for a lock that is held */

    /* While the lock is held. */
    struct deadline join_at;    /* when to ask members without the lock to grant it, too */
    struct duration join_pause; /* the pause before join_at */
    int news_fd;                /* an epoll descriptor that reports the members' news; -1: none */

    struct errmsg note, warning; /* what base.note and base.warning point to */
    unsigned noted;              /* the members that the note is about, one bit each */
    struct duration pace;        /* how long the last round took to reach a verdict */

    /* The round: see store/quorum/round.c. */
    const struct quorum_question *question;
    struct bound bound;
    struct deadline start;
    struct deadline cut;     /* when the wait for the members ends */
    struct deadline decided; /* when `cut` was first set in this round */
    int cut_fd;              /* a timerfd that expires at `cut` */
    int cancel_fd;           /* ends all waits: an epoll(7) of cut_fd and the caller's cancel_fd */
    pthread_mutex_t mutex;

    struct quorum_member members[];
};

/* Each member in turn. NOLINTBEGIN(bugprone-macro-parentheses): `member` is declared here. */
#define FOR_MEMBERS(member, quorum)                                  \
    for (__typeof__(*(quorum)->members) *member = (quorum)->members; \
         (member) < (quorum)->members + (quorum)->count; (member)++)
/* NOLINTEND(bugprone-macro-parentheses) */

static inline struct quorum *quorum_of(struct backend *backend)
{
    return (struct quorum *)(void *)backend;
}

/* --- store/quorum/round.c ------------------------------------------------ */

/* Call this before the first round. Returns LOCK_OK, or LOCK_SYSTEM with *why set. */
enum lock_result quorum_prepare_rounds(struct quorum *quorum, struct errmsg *why);

/* Asks the members in question->who at the same time: the last one in the caller's thread, each
 * other one in its own thread. Waits for them as long as question->patience and the bound allow.
 * Afterwards each of these members has a result (LOCK_CANCELLED if it had not answered in time);
 * the other members keep their last results. Returns true if the caller was cancelled:
 * bound.cancel_fd is readable. */
bool quorum_round(struct quorum *quorum, const struct quorum_question *question,
                  struct bound bound);

/* The usual `patience` of a question: once a majority has said yes, the slow members get some more
 * time; once the lease is lost, they get none. */
struct duration quorum_judge(const struct quorum *quorum);

/* The time that this many rounds would take at the current pace (quorum->pace), but at least
 * `least` and at most 1 s. A fixed limit that suits nearby servers would be too short for distant
 * ones. */
struct duration quorum_rounds(const struct quorum *quorum, int rounds, struct duration least);

/* Call this after a round: sets quorum->pace to the time that the round took to reach a verdict. */
void quorum_learn_pace(struct quorum *quorum);

/* During a round: the members that have not answered yet. */
member_set quorum_missing(const struct quorum *quorum);

/* The members with one of these standings. */
member_set quorum_members(const struct quorum *quorum, unsigned standings);

/* The members whose last result is in the set `results`. */
member_set quorum_answered(const struct quorum *quorum, unsigned results);
int quorum_count(const struct quorum *quorum, unsigned results);

/* Like quorum_count(), but during a round, when only some members have answered. For a member that
 * the round does not ask, the result is LOCK_GONE, or its last result if the lock was released
 * there. */
int quorum_count_round(const struct quorum *quorum, unsigned results);

/* LOCK_OK if a majority has done what the last round asked; otherwise *why gives the reason. */
enum lock_result quorum_answer(const struct quorum *quorum, bool cancelled, struct errmsg *why);

/* The majority's verdict on a lease. Call this after a round that has asked all servers that may
 * have had the lease (`may_have`), and before the answers change the standing of the members.
 * Returns LOCK_OK or, with *why set: LOCK_GONE, LOCK_FOREIGN, LOCK_RELEASED or LOCK_ENDED if the
 * servers that have not lost the lease are no majority; otherwise the reason why the verdict is
 * unknown. */
enum lock_result quorum_verdict(const struct quorum *quorum, member_set may_have, bool cancelled,
                                struct errmsg *why);

/* The result if too few servers answer: LOCK_UNAVAILABLE if the unreachable servers could complete
 * a majority by coming back; otherwise LOCK_REFUSED, LOCK_INVALID or LOCK_SYSTEM. */
enum lock_result quorum_failure(const struct quorum *quorum, struct errmsg *why);

/* Returns the highest of `count` values (deadlines, fences) that a majority of the servers reaches;
 * the lowest if there are fewer values than a majority. Sorts the values. */
int64_t quorum_has(const struct quorum *quorum, int64_t *values, int count);

/* Returns the pause that is set on a majority of the servers, or no pause if there is no such
 * majority. */
struct pause quorum_paused(const struct quorum *quorum);

/* The time until which a majority grants the lease. */
struct deadline quorum_deadline(const struct quorum *quorum);

/* Reports in base.note and base.warning the members that have a problem. */
void quorum_note(struct quorum *quorum, bool taken);

/* Reports in base.note the members that `what` (a release or the end of a pause) has not reached;
 * `there` is the consequence on these members. Returns false if all members were reached. */
bool quorum_note_unreached(struct quorum *quorum, const char *what, const char *there);

/* Like quorum_note_unreached(), after a release: warns if a majority of the servers may still have
 * the lock. */
void quorum_note_left(struct quorum *quorum);

/* --- store/quorum/lease.c: as in store/backend.h -------------------------- */

enum lock_result quorum_take(struct backend *backend, const struct lock_request *request,
                             struct lease *lease, struct holder *holder, struct bound bound,
                             struct errmsg *why);
enum lock_result quorum_check(struct backend *backend, struct lease *lease, struct bound bound,
                              struct errmsg *why);
enum lock_result quorum_extend(struct backend *backend, struct lease *lease, enum extend_how how,
                               struct bound bound, struct errmsg *why);
enum lock_result quorum_release(struct backend *backend, const struct lease *lease,
                                struct bound bound, struct errmsg *why);

#endif
