/* A waiter for a lock file: its place in the queue, and what wakes it there. */
#ifndef DLOCK_STORE_FILE_WAITER_H
#define DLOCK_STORE_FILE_WAITER_H

#include "store/backend.h"
#include "store/file/blocking_thread.h"
#include "store/file/ticket_queue.h"

struct file_waiter {
    int news_fd; /* inotify; -1: none */
    bool hears;  /* it reports events of the file that is waited for */
    struct ticket ticket;
    struct blocking_thread behind; /* waits for the one before us to leave */
    int64_t behind_number;         /* that is this one */
    int asked;        /* how often we have asked since a process closed the file; 0: that is over */
    struct call call; /* the next answer, except for later events */
};

/* Called before the lock is asked for again: a waiter that has lost its turn joins the
 * end of the queue. */
void file_waiter_ask(struct file_waiter *waiter, struct lock_file *file, struct shared_entry *entry,
                     const struct lock_request *request);

/* The request was refused: finds its place in the queue, and makes sure that it is woken.
 * `ends`: when the lock may be free. Returns whether it is the head. */
bool file_waiter_wait(struct file_waiter *waiter, const struct lock_file *file,
                      struct shared_entry *entry, const struct lock_request *request,
                      struct deadline ends);

/* The request was refused because its own owner token holds the lock, though there is
 * room for others: it waits without blocking others, and joins the queue later. */
void file_waiter_wait_aside(struct file_waiter *waiter, const struct lock_file *file,
                            struct deadline ends);

/* As listen() of struct backend. */
struct call file_waiter_listen(struct file_waiter *waiter);

/* Stops waiting in this file; the ticket goes with the file, or by ticket_queue_leave(). */
void file_waiter_stop(struct file_waiter *waiter);

#endif
