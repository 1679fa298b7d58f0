/* What wakes which waiter:
 *
 *   The file is closed by any process -> the head is notified: a holder closes it when it
 *     ends, however it ends, and so does a process that releases, extends or removes a
 *     lease from outside. The head is also notified when the file is removed, and knows
 *     when a lease without a process ends. Once it is being notified, it asks once more:
 *     that finds whatever happened before.
 *   A waiter leaves -> the kernel wakes the one behind it.
 *
 * A holder that releases has unlocked everything before it closes the file. When a holder
 * is killed, its file is closed first and then unlocked by the kernel, at once if it has
 * a processor; so the head asks a few more times.
 *
 * Not notified: the head is frozen, and maybe others behind it. So every waiter looks
 * every two seconds, and the one behind the head every second: a waiter that finds that
 * it is the head's turn comes again when all before it that are frozen have lost theirs.
 * That is 3 s later at most, so a lock is free for 5 s at most, whatever is frozen. */
#include "store/file/waiter.h"

/* How long after an event the head asks once more. */
static const struct duration ask_again_after[] = {
    {1 * NS_PER_MS}, {4 * NS_PER_MS}, {15 * NS_PER_MS}, {50 * NS_PER_MS}, {150 * NS_PER_MS},
};
enum { ASKED_MOST = sizeof ask_again_after / sizeof *ask_again_after };

/* Polling intervals: near the head, behind it, and without notifications. */
static const struct duration poll_near = {1 * NS_PER_S}, poll_behind = {1800 * NS_PER_MS},
                             poll_alone = {200 * NS_PER_MS};

static struct call uncalled(const char *cannot)
{
    return (struct call){.fd = -1, .by = DEADLINE_NEVER, .poll_most = poll_alone, .cannot = cannot};
}

void file_waiter_stop(struct file_waiter *waiter)
{
    (void)blocking_thread_stop(&waiter->behind);
    waiter->hears = false;
    waiter->asked = 0;
    waiter->ticket.number = 0;
}

/* If this fails, it is tried again the next time. */
static void waiter_hear(struct file_waiter *waiter, const struct lock_file *file)
{
    if (!waiter->hears)
        waiter->news_fd = lock_file_news(waiter->news_fd, file, NEWS_FOR_WAITER);
    waiter->hears = waiter->news_fd >= 0;
}

void file_waiter_ask(struct file_waiter *waiter, struct lock_file *file, struct shared_entry *entry,
                     const struct lock_request *request)
{
    struct ticket before;
    /* What is known of turns is about the file that is now at the path. */
    if (waiter->ticket.number == 0 || lock_file_standing(file) != LOCK_OK)
        return;
    if (ticket_queue_passed_over(entry, &waiter->ticket)) {
        (void)blocking_thread_stop(&waiter->behind);
        ticket_queue_leave(file, &waiter->ticket);
        ticket_queue_join(file, entry, request, &waiter->ticket);
    }
    /* The head is notified from before it asks: then it need not ask twice. */
    if (!waiter->behind.running && !ticket_queue_before(file, entry, &waiter->ticket, &before))
        waiter_hear(waiter, file);
}

static struct call wait_behind(struct file_waiter *waiter, const struct lock_file *file,
                               const struct shared_entry *entry, const struct ticket *before)
{
    struct ticket other;
    if (!waiter->behind.running || waiter->behind_number != before->number) {
        (void)blocking_thread_stop(&waiter->behind);
        waiter->behind_number = before->number;
        if (!blocking_thread_start(&waiter->behind, ticket_queue_await, file->fd, before->number))
            return uncalled("cannot start a thread for the wait");
    }
    struct call call = {
        .fd = waiter->behind.over_fd, .by = DEADLINE_NEVER, .poll_most = poll_behind};
    if (!ticket_queue_before(file, entry, before, &other))
        call.poll_most = poll_near;
    struct deadline turn_end = ticket_queue_turn_end(file, entry, &waiter->ticket);
    if (!deadline_passed(turn_end))
        call.by = turn_end;
    return call;
}

static struct call wait_for_news(struct file_waiter *waiter, const struct lock_file *file,
                                 struct deadline ends)
{
    bool heard = waiter->hears;
    (void)blocking_thread_stop(&waiter->behind);
    waiter_hear(waiter, file);
    struct call call = {.fd = waiter->news_fd, .now = !heard, .by = ends, .poll_most = poll_near};
    if (!waiter->hears) {
        call = uncalled("inotify(7) is not available");
        call.by = ends;
    }
    if (waiter->asked > 0 && waiter->asked <= ASKED_MOST)
        call.by = deadline_earlier(ends, deadline_after(ask_again_after[waiter->asked++ - 1]));
    return call;
}

bool file_waiter_wait(struct file_waiter *waiter, const struct lock_file *file,
                      struct shared_entry *entry, const struct lock_request *request,
                      struct deadline ends)
{
    struct ticket before;
    if (waiter->ticket.number == 0)
        ticket_queue_join(file, entry, request, &waiter->ticket);
    if (waiter->ticket.number == 0) {
        waiter->call = uncalled("the file system does not support the locks of waiters");
        return false;
    }
    bool behind = ticket_queue_before(file, entry, &waiter->ticket, &before);
    if (!behind)
        ticket_queue_alive(entry, &waiter->ticket);
    waiter->call =
        behind ? wait_behind(waiter, file, entry, &before) : wait_for_news(waiter, file, ends);
    return !behind;
}

void file_waiter_wait_aside(struct file_waiter *waiter, const struct lock_file *file,
                            struct deadline ends)
{
    (void)blocking_thread_stop(&waiter->behind);
    if (waiter->ticket.number > 0)
        ticket_queue_leave(file, &waiter->ticket);
    waiter->call = wait_for_news(waiter, file, ends);
}

struct call file_waiter_listen(struct file_waiter *waiter)
{
    struct call call = waiter->call;
    int error;
    waiter->call.now = false; /* the request that it calls for comes next */
    if (waiter->behind.running) {
        if (blocking_thread_is_over(&waiter->behind, &error)) {
            waiter->call = uncalled(NULL);
            call.now = error == 0;
        }
    } else if (waiter->hears && lock_file_drain_news(waiter->news_fd)) {
        if (waiter->asked == 0 || waiter->asked > ASKED_MOST)
            waiter->asked = 1;
        call.now = true;
    }
    return call;
}
