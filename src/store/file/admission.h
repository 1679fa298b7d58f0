/* Who holds a lock file, and whether somebody who asks may have it too: the
 * rules of the modes.
 *
 *   Exclusive waits for all, and all wait for it. Shared goes with shared alone;
 *   slots with slots, if both say how many there are in all.
 *   The mode in force is that of those who hold the lock. While the first of those
 *   who wait (store/file/ticket_queue.h) wants another one, nobody more gets in, so that the
 *   last one leaves some day.
 *   One owner token holds a lock once. */
#ifndef DLOCK_STORE_FILE_ADMISSION_H
#define DLOCK_STORE_FILE_ADMISSION_H

#include "store/file/file.h"

struct admission {
    int held; /* how many hold it, not counting the own place */
    int released; /* how many have not noticed yet that their lock was released: their places are locked */
    struct lock_place first, last; /* those of them whose lease ends first and last */
    bool unreadable;               /* of some it is not known whether they hold it */
    bool same_token;               /* one of them has the token that was asked about */
    int free_place;                /* the lowest that nobody has locked or holds */
};

/* Looks at all places but `own` (-1: none), as far as the bound allows. */
void lock_survey(const struct lock_file *file, const char *boot_id, const char *token, int own,
                 struct bound bound, struct admission *survey);

/* Whether the lock is held in a mode that would have to end before the request
 * could be granted, and is one that several share. */
bool admission_conflicts(const struct admission *survey, const struct lock_request *request);

/* Whether there is room for one more in this mode, whoever it is. */
bool admission_has_room(const struct admission *survey, enum lock_mode mode, int slots);

/* Whether the request may be granted; who else waits is not looked at. */
bool admission_admits(const struct admission *survey, const struct lock_request *request);

/* Tells of a holder that the request is refused for: the one that it has to wait
 * for, if none gives up its lock sooner. */
void admission_holder(const struct admission *survey, const struct lock_request *request,
                      struct holder *holder);

#endif
