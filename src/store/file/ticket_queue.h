/* The waiters for a lock, in order of arrival. Each has a ticket: a number, higher than
 * those of all present waiters, under which it has bytes of the lock file locked. The
 * kernel frees them when it dies. The number of these bytes says what the waiter wants,
 * so that every process can judge whether it is its turn.
 *
 * The lowest number is the head. Every other waiter waits only for the one before it to
 * leave, whether that one has taken the lock, given up or died: each departure wakes one
 * waiter.
 *
 * The head has two seconds to act. What is known of it is the entry's word in the lock
 * table, which every process updates when it sees something new; a head that has lost its
 * turn joins the end of the queue when it runs again. */
#ifndef DLOCK_STORE_FILE_TICKET_QUEUE_H
#define DLOCK_STORE_FILE_TICKET_QUEUE_H

#include "store/file/admission.h"
#include "store/file/shared_table.h"

struct ticket {
    int64_t number; /* 0: none */
    enum lock_mode mode;
    int slots;
};

/* Joins at the end. The number stays 0 if that is impossible. */
void ticket_queue_join(const struct lock_file *file, struct shared_entry *entry,
                       const struct lock_request *request, struct ticket *own);

/* Leaves the queue. */
void ticket_queue_leave(const struct lock_file *file, struct ticket *own);

/* True if this waiter has lost its turn and must join anew. */
bool ticket_queue_passed_over(const struct shared_entry *entry, const struct ticket *own);

/* True if no earlier waiter that there is room for comes before this one (number 0: not a
 * waiter; then all come before it). Such an earlier waiter is noted for its two seconds,
 * and passed over once they are up; so are, a second later, those right behind it that
 * have not looked since. */
bool ticket_queue_lets(const struct lock_file *file, struct shared_entry *entry,
                       const struct ticket *own, const struct admission *survey);

/* The head has asked and must wait: its two seconds begin anew. */
void ticket_queue_alive(struct shared_entry *entry, const struct ticket *own);

/* The ticket right before this one. False: it is the head. */
bool ticket_queue_before(const struct lock_file *file, const struct shared_entry *entry,
                         const struct ticket *own, struct ticket *before);

/* When all waiters before this one will have lost their turn, if none of them acts;
 * DEADLINE_NEVER if it is not noted that it is the head's turn. */
struct deadline ticket_queue_turn_end(const struct lock_file *file,
                                      const struct shared_entry *entry, const struct ticket *own);

/* Waits, without limit, until this one has left. 0, or an errno: EINTR if a signal has
 * arrived. */
int ticket_queue_await(int fd, int64_t number);

bool ticket_queue_is_empty(const struct lock_file *file);

/* The first waiters: at most so many. Returns how many these are. */
size_t ticket_queue_list(const struct lock_file *file, struct ticket *tickets, size_t most);

/* The number of waiters before this one (its number 0: of all). */
int ticket_queue_count(const struct lock_file *file, const struct shared_entry *entry,
                       const struct ticket *own);

#endif
