/* Those who wait for a lock, in the order in which they came. Each has a ticket:
 * a number, higher than all that wait already, under which it has bytes of the
 * lock file locked. The kernel frees them when it dies. How many bytes these are
 * tells what it wants, so that everybody can judge whether it is its turn.
 *
 * The lowest number is the head. Everyone else waits for the one before it alone
 * to leave, whether it has taken the lock, given up or died: one is woken for each
 * that leaves.
 *
 * The head has two seconds to act. What is known of it is the entry's word in the
 * lock table, which everybody changes that sees something new; a head that has lost
 * its turn stands at the end again, when it runs again. */
#ifndef DLOCK_STORE_FILE_TICKET_QUEUE_H
#define DLOCK_STORE_FILE_TICKET_QUEUE_H

#include "store/file/admission.h"
#include "store/file/shared_table.h"

struct ticket {
    int64_t number; /* 0: none */
    enum lock_mode mode;
    int slots;
};

/* Stands at the end. The number stays 0 where that is impossible. */
void ticket_queue_join(const struct lock_file *file, struct shared_entry *entry,
                       const struct lock_request *request, struct ticket *own);

/* Stands there no more. */
void ticket_queue_leave(const struct lock_file *file, struct ticket *own);

/* Whether this one, which waits, has lost its turn: it has to join anew. */
bool ticket_queue_passed_over(const struct shared_entry *entry, const struct ticket *own);

/* Whether nobody who waits comes before this one (its number 0: it does not wait;
 * then all do), for whom there is room. Whoever does is noted for its two
 * seconds, and passed over once they are up, with those behind it soon after. */
bool ticket_queue_lets(const struct lock_file *file, struct shared_entry *entry,
                       const struct ticket *own, const struct admission *survey);

/* The head has asked and has to wait: its two seconds begin anew. */
void ticket_queue_alive(struct shared_entry *entry, const struct ticket *own);

/* The one right before this one. False: it is the head. */
bool ticket_queue_before(const struct lock_file *file, const struct shared_entry *entry,
                         const struct ticket *own, struct ticket *before);

/* When all before this one have lost their turn, if none of them acts; DEADLINE_NEVER
 * where it is not noted that it is the head's turn. */
struct deadline ticket_queue_turn_end(const struct lock_file *file,
                                      const struct shared_entry *entry, const struct ticket *own);

/* Waits, without end, until this one has left. 0, or an errno: EINTR where a
 * signal has come. */
int ticket_queue_await(int fd, int64_t number);

bool ticket_queue_is_empty(const struct lock_file *file);

/* How many wait before this one (its number 0: in all). */
int ticket_queue_count(const struct lock_file *file, const struct shared_entry *entry,
                       const struct ticket *own);

#endif
