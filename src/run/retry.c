#include "run/retry.h"

#include "util/duration.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A signal ends dlock: nothing here needs to be finished first. */
static void pause_for(struct duration d)
{
    struct timespec time = {(time_t)(d.ns / NS_PER_S), (long)(d.ns % NS_PER_S)};
    (void)nanosleep(&time, NULL);
}

char *tried_format(int tries, struct duration time, char text[TRIED_TEXT_SIZE])
{
    char in[DURATION_TEXT_SIZE];
    snprintf(text, TRIED_TEXT_SIZE, "tried %d time%s in %s", tries, tries == 1 ? "" : "s",
             duration_rounded(time, in, sizeof in));
    return text;
}

enum lock_result retry(enum lock_result (*attempt)(void *data, struct bound, struct errmsg *),
                       void *data, struct duration outage, struct errmsg *why)
{
    struct deadline start = deadline_now(), end = deadline_plus(start, outage);
    struct duration interval = RETRY_LEAST;
    for (int tries = 1;; tries++) {
        enum lock_result result = attempt(data, (struct bound){DEADLINE_NEVER, -1}, why);
        if (result != LOCK_UNAVAILABLE)
            return result;
        if (deadline_passed(end)) {
            char tried[TRIED_TEXT_SIZE];
            size_t used = strlen(why->text);
            snprintf(why->text + used, sizeof why->text - used, "; %s",
                     tried_format(tries, deadline_gap(start, deadline_now()), tried));
            return result;
        }
        pause_for(duration_min(duration_jittered(interval), deadline_left(end)));
        interval = duration_doubled(interval, RETRY_MOST);
    }
}
