/* A thread for each server of a quorum but one, which the caller's thread asks, for the
 * length of one round: all are asked at the same time, and the slow ones are cut short
 * once enough have answered. */
#ifndef DLOCK_STORE_QUORUM_FANOUT_H
#define DLOCK_STORE_QUORUM_FANOUT_H

#include "util/clock.h"
#include "util/exit_status.h"

#include <pthread.h>
#include <stdbool.h>

enum { CREW_MOST = 15 };

struct fanout;

/* Asks the server of this number. Runs in its thread. */
typedef enum lock_result fanout_ask(void *data, int number, struct bound bound);

/* How much longer to wait for those that have not answered. Called after each answer, by
 * the thread that got it, with the fan-out's mutex held. */
typedef struct duration fanout_judge(const void *data, const struct fanout *crew);

#define CREW_WAITS ((struct duration){INT64_MAX})

struct fanout_worker {
    struct fanout *crew;
    int number;
    pthread_t thread;
    bool started; /* a thread of its own */
    bool wanted;  /* in this round */
    bool done;
    enum lock_result result; /* if done */
};

struct fanout {
    int count;
    int cut_fd;    /* a timerfd: when it expires, unfinished members are no longer waited for */
    int cancel_fd; /* for all waits: an epoll(7) of cut_fd and of the caller's own */
    void *data;    /* for ask and judge */
    pthread_mutex_t mutex;
    fanout_ask *ask; /* of the round */
    fanout_judge *judge;
    struct bound bound;
    struct deadline cut;
    struct deadline decided; /* when the judge has set the first cut */
    struct fanout_worker workers[CREW_MOST];
};

/* Starts nothing yet. LOCK_OK; LOCK_SYSTEM with errno set: no descriptors. */
enum lock_result fanout_open(struct fanout *crew, int count, void *data);

/* Adds a member to the next round. */
void fanout_want(struct fanout *crew, int number);

/* Asks all wanted members, the last of them in the caller's thread, and waits for them as
 * long as `judge` says, cut by the bound. Then each has a result: LOCK_CANCELLED for
 * those cut short. Returns whether the bound's own cancel descriptor is readable. */
bool fanout_run(struct fanout *crew, fanout_ask *ask, fanout_judge *judge, struct bound bound);

void fanout_close(struct fanout *crew);

#endif
