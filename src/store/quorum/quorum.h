/* Several stores that keep one lock together: it is held by the client that has it in a
 * majority of them. Declarations that the files of the quorum share. */
#ifndef DLOCK_STORE_QUORUM_QUORUM_H
#define DLOCK_STORE_QUORUM_QUORUM_H

#include "redis/url.h"
#include "store/backend.h"
#include "store/quorum/fanout.h"

enum { QUORUM_LEAST = 3, QUORUM_MOST = CREW_MOST };

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
    char owed[TOKEN_SIZE]; /* MEMBER_OWES: the id of that take */
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
    struct lease lease;    /* the lease that a round is about */
    enum extend_how how;   /* of extend() */
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
};

static inline struct quorum *quorum_of(struct backend *backend)
{
    return (struct quorum *)(void *)backend;
}

/* The results of the members in the last round. */
struct quorum_count {
    int ok;
    int held;   /* by another */
    int lost;   /* gone, another's, released */
    int bad;    /* refused, or no use */
    int silent; /* no answer */
    int open;   /* still asked */
};

/* During a round of the fan-out. A member that is not asked has no lock of ours, or was
 * released before. */
struct quorum_count quorum_count_fanout(const struct quorum *quorum, const struct fanout *crew);

/* By the last results of all members. */
struct quorum_count quorum_count_all(const struct quorum *quorum);

/* LOCK_OK if a majority has done what the last round asked; otherwise *why says why not. */
enum lock_result quorum_answer(const struct quorum *quorum, bool cancelled, struct errmsg *why);

typedef bool quorum_wanted(const struct quorum *quorum, const struct quorum_member *member);

/* A majority's verdict on a lease after a round that has asked all servers that
 * `may_have` it, before their standing changes by it. With *why set: LOCK_OK; LOCK_GONE,
 * LOCK_FOREIGN or LOCK_RELEASED if those that have not lost it are no majority; otherwise
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

/* The same after a release: the members that it has not reached. */
void quorum_note_left(struct quorum *quorum);

/* The judge for a question that may take its time: once there is a verdict, the slow
 * members get some more time. */
struct duration quorum_judge(const void *data, const struct fanout *crew);

/* Asks the wanted members (NULL: all) and keeps their results; the others keep theirs.
 * Returns whether the caller was cancelled. */
bool quorum_round(struct quorum *quorum, struct fanout *crew, fanout_ask *ask, fanout_judge *judge,
                  struct bound bound, quorum_wanted *wanted);

/* A round of its own. LOCK_OK; LOCK_SYSTEM with *why set: no server was asked. */
enum lock_result quorum_ask(struct quorum *quorum, fanout_ask *ask, fanout_judge *judge,
                            struct bound bound, quorum_wanted *wanted, bool *cancelled,
                            struct errmsg *why);

/* How much more time the slow members get: as much as the others have taken since
 * `start`, within these limits. */
struct duration quorum_grace(struct deadline start, struct duration least, struct duration most);

/* A limit in milliseconds that suits near servers would cut short all distant ones: time
 * for so many rounds of the others, least to 1 s. */
struct duration quorum_rounds(const struct quorum *quorum, int rounds, struct duration least);

/* After a round that has asked all for a verdict. */
void quorum_learn_pace(struct quorum *quorum, const struct fanout *crew);

#endif
