#include "run/acquisition.h"

#include "run/retry.h"
#include "util/clock.h"

#include <stdio.h>
#include <stdlib.h>

/* How long to retry a release; after that the lease expires by itself. No try starts in the last
 * interval: there is too little time left for an answer, and a server that has just said why it
 * cannot release the lock would be reported as one that did not answer. */
static const struct duration release_limit = {5 * NS_PER_S}, release_interval = {200 * NS_PER_MS};

/* Once the lease has ended, little is left to be released. The try that is under way is given up
 * after the first of these, and another one, over another connection, after the second. */
static const struct duration under_way_limit = {500 * NS_PER_MS}, once_more_limit = {1 * NS_PER_S};

bool acquisition_open(struct acquisition *acquisition, const char *owner, const char *command,
                      pid_t pid, int *status)
{
    struct errmsg why = {""};
    if (!signals_open(&acquisition->signals, &why)) {
        *status = fail(acquisition->out, FAIL_SYSTEM, STATUS_SYSTEM, "%s; %s", why.text,
                       acquisition->undone);
        return false;
    }
    acquisition->cancel_fd = acquisition->signals.fd;
    acquisition->out->key = acquisition->request.key = acquisition->key;
    token_make(acquisition->take_id);
    snprintf(acquisition->token, sizeof acquisition->token, "%s",
             owner != NULL ? owner : acquisition->take_id);
    acquisition->request.token = acquisition->token;
    acquisition->request.take_id = acquisition->take_id;
    holder_fill(&acquisition->request.self, pid, command);
    return true;
}

int acquisition_close(struct acquisition *acquisition, int status)
{
    if (acquisition->backend != NULL)
        acquisition->backend->close(acquisition->backend);
    acquisition->backend = NULL;
    acquisition->out->key = NULL;
    free(acquisition->where);
    acquisition->where = NULL;
    return acquisition->ended_by != 0 ? signals_die_by(acquisition->ended_by) : status;
}

/* --- releasing ----------------------------------------------------------- */

struct release {
    struct acquisition *acquisition;
    struct retries tries;
    struct deadline limit;
    struct errmsg failure; /* of the last try that got nowhere */
};

/* Signals from before were for the command.
 *
 * Orders of a signal and the release. The sender does not want to wait for a store that is down:
 *   between two tries -> no try follows
 *   during a try -> it is given up, as its server hangs; but its answer may be on its way, so that
 *     one more try follows, over another connection, for under_way_limit at most
 *   either way the lock lasts until its lease ends, unless the store carried out a try after all
 *
 * Orders of the lease's end and the release:
 *   the lock is gone, and the lease has not ended -> it was lost
 *   by the store's clock it has ended, by ours it has not -> that clock is ahead, and others
 *     could have the lock while the command ran: it was lost
 *   by both it ended before the release arrived -> it was not lost: LOCK_ENDED; or
 *     LOCK_UNAVAILABLE if an earlier try has failed: that is why it was not released
 *   a server that hangs gets no further before this process has ended -> it carries out the last
 *     try all the same, and so remembers the run */
static enum lock_result release_once(void *data, struct bound bound, struct errmsg *why)
{
    struct release *release = data;
    struct backend *backend = release->acquisition->backend;
    const struct lease *lease = &release->acquisition->lease;
    struct deadline end = lease->deadline;
    bool last = deadline_passed(end);

    bound.until = release->limit;
    if (!last)
        bound.until = deadline_earlier(release->limit, deadline_plus(end, under_way_limit));
    enum lock_result result = backend->release(backend, lease, bound, why);
    if (result == LOCK_CANCELLED) {
        last = true;
        bound.until = deadline_earlier(release->limit, deadline_after(under_way_limit));
        bound.cancel_fd = -1;
        result = backend->release(backend, lease, bound, why);
    }

    if (result == LOCK_ENDED && !deadline_passed(end))
        return LOCK_GONE;
    if (result == LOCK_ENDED && release->failure.text[0] != '\0')
        *why = release->failure;
    else if (result != LOCK_UNAVAILABLE && result != LOCK_SYSTEM)
        return result;
    release->failure = *why;
    if (last || result == LOCK_ENDED)
        release->tries.end = deadline_now();
    return LOCK_UNAVAILABLE;
}

enum lock_result acquisition_release(struct acquisition *acquisition, struct errmsg *why)
{
    struct deadline late =
        deadline_plus(deadline_after(deadline_left(acquisition->lease.deadline)), once_more_limit);
    struct release release = {
        .acquisition = acquisition,
        .tries = retries_for(release_limit, acquisition->signals.fd),
        .limit = deadline_earlier(deadline_after(release_limit), late),
    };

    release.tries.end = deadline_minus(release.limit, release_interval);
    release.tries.pause = release.tries.pause_most = release_interval;
    signals_narrow(&acquisition->signals);
    (void)signals_ended_by(&acquisition->signals);
    enum lock_result result = retry(&release.tries, release_once, &release, why);
    retries_close(&release.tries);
    return result == LOCK_CANCELLED ? LOCK_UNAVAILABLE : result;
}

void acquisition_say_released(const struct acquisition *acquisition, enum lock_result result,
                              const struct errmsg *why)
{
    const struct messages *out = acquisition->out;
    char rest[DURATION_TEXT_SIZE], held[DURATION_TEXT_SIZE];
    struct deadline now = deadline_now(), hold = acquisition->lease.hold;
    bool ended = !deadline_before(now, acquisition->lease.deadline);
    duration_rounded(deadline_gap(acquisition->lease.taken, now), held, sizeof held);
    if (result == LOCK_OK && deadline_before(now, hold))
        say_verbose(out, "released after %s; it stays held for another %s (--hold-at-least)", held,
                    duration_rounded(deadline_gap(now, hold), rest, sizeof rest));
    else if (result == LOCK_OK)
        say_verbose(out, "released after %s", held);
    else if (lock_is_past(result))
        say_verbose(out, "nothing to release: %s", why->text);
    else
        say_warning(out, "the lock could not be released: %s; %s%s", why->text,
                    ended ? "its lease has ended" : "it is held until its lease ends",
                    acquisition->lease.end.how == RUN_NONE || acquisition->lease.remember.ns <= 0
                        ? ""
                    : ended ? ", and its run may not be recorded"
                            : ", and its run is not recorded");
    if (result == LOCK_OK && acquisition->backend->warning != NULL)
        say_warning(out, "the lock is released, but its run is not remembered: %s",
                    acquisition->backend->warning);
    if (result == LOCK_OK && acquisition->backend->note != NULL)
        say_verbose(out, "%s", acquisition->backend->note);
}

int acquisition_give_back(struct acquisition *acquisition, enum failure failure, int status,
                          const char *text)
{
    struct errmsg why = {""};
    acquisition->lease.hold = deadline_now();
    acquisition_say_released(acquisition, acquisition_release(acquisition, &why), &why);
    return fail(acquisition->out, failure, status, "%s; %s", text, acquisition->undone);
}
