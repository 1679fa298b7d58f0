/* The lease record in a lock file: lines of "field value", from "dlock FORMAT" to "end", so
 * that a truncated record is recognized. */
#ifndef DLOCK_STORE_FILE_RECORD_H
#define DLOCK_STORE_FILE_RECORD_H

#include "lock/lease.h"

#include <stdbool.h>
#include <stddef.h>

#define LOCK_RECORD_SIZE 16384 /* room for a record */
#define LOCK_RECORD_MOST 14336 /* the longest; what is behind it: store/file/file.c */

/* The record of a pause is behind that of place 0, which is shorter even with the longest
 * key. */
#define LOCK_PAUSE_OFFSET 10240

struct record {
    int64_t format; /* lock/format.h; newer than ours: nothing else is known */
    char key[LOCK_KEY_SIZE];
    char token[TOKEN_SIZE];
    char take_id[TOKEN_SIZE]; /* of lock_request */
    enum lock_mode mode;
    int slots; /* of MODE_SLOTS, otherwise 0 */
    int slot;  /* -1: none */
    int64_t fence;
    struct duration ttl; /* with which it was taken */
    struct deadline
        expires; /* on the boot clock of holder.boot_id; written as that of the first time namespace */
    struct deadline
        hold; /* likewise: others are kept out until then, even if no process has the file locked */
    struct duration remember; /* how long its run is remembered; 0: not at all, or it is recorded */
    struct duration once_per; /* as requested: its success is needed that long */
    bool detached;            /* it holds until `expires` though no process has the file locked */
    bool released;            /* from here on only `hold` counts */
    struct holder holder;
};

/* The record of a lock that is taken now. */
void record_fill(struct record *record, const struct lock_request *request,
                 const struct lease *lease);

/* Writes the record as text. Returns its length, 0 if it does not fit. */
size_t record_format(const struct record *record, char text[LOCK_RECORD_MOST]);

/* Reads it back. Skips unknown fields, which a later version may add, and whatever
 * follows the record. False if it is not a complete record of ours, or record_is_newer(). */
bool record_parse(struct record *record, const char *text);

/* True if it begins as a record does. */
bool record_begins(const char *text);

/* True if the record that was read has a newer format. */
bool record_is_newer(const struct record *record);

/* True if the text contains the end of a record. */
bool record_is_whole(const char *text);

/* True if the deadlines in it may be of this boot. A boot id that could not be read, "",
 * or that is a container's own (proc_boot_id()), may be any boot's: otherwise a lock that
 * is held would count as free. But it is not this boot if the lease would then last
 * longer than a lease can: if there is no boot id, a lock is not kept for as long as the
 * host was once up. */
bool record_may_be_of(const struct record *record, const char *boot_id);

#endif
