/* The holders of a lock file, and whether a request may join them: the rules of the
 * modes.
 *
 *   An exclusive request waits for all holders, and all requests wait for an exclusive
 *     holder. Shared goes with shared alone; slots go with slots, if both give the same
 *     total.
 *   The mode in force is that of the holders. While the first waiter
 *     (store/file/ticket_queue.h) wants another mode, no further holder is admitted, so
 *     that the last holder eventually leaves.
 *   An owner token holds a lock at most once.
 *   Nobody joins holders of another format (lock/format.h). */
#ifndef DLOCK_STORE_FILE_ADMISSION_H
#define DLOCK_STORE_FILE_ADMISSION_H

#include "store/file/file.h"

struct admission {
    int held;                      /* the number of holders, not counting our own place */
    int released;                  /* released, but unaware of it: their places are still locked */
    struct lock_place first, last; /* those of them whose lease ends first and last */
    bool lost;                     /* there are records of runs that were lost */
    bool unreadable;               /* of some it is not known whether they hold it */
    bool same_token;               /* one of them has the token that was asked about */
    struct pause pause;            /* left 0: none */
    int64_t newer;                 /* the format of a record that is newer than ours; or 0 */
    int free_place;                /* the lowest place that is neither locked nor held */
};

/* Looks at all places but `own` (-1: none), as far as the bound allows. Fills in the map,
 * if it is not NULL. */
void lock_survey(const struct lock_file *file, const char *boot_id, const char *token, int own,
                 struct bound bound, struct admission *survey, struct place_map *map);

/* True if there is a pause, or a record that may be one. */
bool lock_is_paused(const struct lock_file *file, const char *boot_id);

/* If there are many places, and one holder with its own place is found: all have its mode,
 * and `held`, `first` and `last` are about this one alone. False: all places must be looked
 * at. */
bool lock_survey_one(const struct lock_file *file, const char *boot_id, int own,
                     struct admission *survey);

/* True if the lock is held in a mode that several share, and that would have to end
 * before the request could be granted. */
bool admission_conflicts(const struct admission *survey, const struct lock_request *request);

/* True if there is room for one more in this mode, for any owner, and no pause. */
bool admission_has_room(const struct admission *survey, enum lock_mode mode, int slots);

/* True if the request may be granted; other waiters are not considered. */
bool admission_admits(const struct admission *survey, const struct lock_request *request);

/* Describes a holder that blocks the request: the one it has to wait for if no other
 * releases sooner. */
void admission_holder(const struct admission *survey, const struct lock_request *request,
                      struct holder *holder);

#endif
