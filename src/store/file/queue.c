/* The waiters of a lock file: their tickets, what wakes which of them, and the thread that waits
 * in the kernel.
 *
 * A ticket is BLOCK bytes from LOCK_FILE_QUEUE + number * BLOCK on, of which as many are
 * locked for writing as its kind requires, so that every process can judge whether it is its
 * turn. The kernel frees them when the waiter dies. The waiter behind it requests a read lock on
 * its first byte, and waits for that one to leave, whether it has taken the lock, given up or
 * died: each departure wakes one waiter. Every look asks for locks that would keep out a reader,
 * so that a waiter that has just got that byte is not taken for a ticket.
 *
 * While it is the head's turn, each waiter that looks marks the turn with another lock,
 * at a byte made of its number and of when the turn began: it is alive. The mark
 * goes with the next one, or with the ticket. An older dlock sets none, and sees none.
 *
 * Orders:
 *   Two join -> both look for the highest number; one locks the next one -> the other is
 *     refused that and locks the one behind it.
 *   N joins, and is held up between its look and its lock; meanwhile others come and go,
 *     and the word is past N's number -> N looks at the word once more when it has its
 *     ticket, and joins again. Held up after that, it finds out at its next try.
 *   H, the head, acts at the same time as O finds its time up -> if O's word comes first,
 *     H finds that it was passed over and joins again; otherwise both are in the section
 *     one after the other, and the later one finds the lock held.
 *   H was frozen, is passed over and holds its bytes -> they are ignored, and numbers go
 *     on above them.
 *   H takes the lock -> its ticket goes only once its record and place are there -> a
 *     request in between is refused for the one or the other.
 *   H dies -> the waiter behind it is woken and finds itself the head.
 *   H and those right behind it are frozen, and several behind them live -> each of these
 *     has looked, and marked the turn, before its end -> they all wake then -> the first
 *     one with a mark acts, or the first to look makes the turn that one's.
 *   A waiter is frozen after it has marked the turn -> it has a turn of its own.
 *   The turn ends just as a live waiter is about to mark it -> it has lost its place, as H
 *     has.
 *   O is woken since the waiter before it, B, has left, and others are still before B ->
 *     O waits for the one before B from then on.
 *   The entry of the table goes to another lock, or there is none -> a turn is not lost,
 *     or is lost two seconds later.
 *
 * Events that wake a waiter:
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
 * That is 3 s later at most, so a lock is free for 5 s at most, whatever is frozen.
 *
 * The thread: the main thread starts it, and joins it before it does anything else that
 * matters: take the lock, give up, run a command. The descriptor is the main thread's; the
 * thread touches it with its one call only. Cancelling: the thread's call ends with EINTR when a
 * signal arrives. Orders:
 *   the thread is in the call -> EINTR -> it sees that it was cancelled.
 *   it has not yet checked for cancellation -> it sees it -> it makes no call.
 *   it has checked, and is not in the call yet -> the signal is lost -> another is sent
 *     every millisecond until the thread says that it is ending.
 *   it already has what it waited for -> it ends by itself -> the caller learns that the
 *     wait succeeded.
 *
 * The signal is SIGURG, so that losing one to dlock harms no other use. While the thread
 * exists the signal has a handler that does nothing; the old disposition is back before a
 * command starts. */
#include "store/file/file_int.h"

#include "process/procfs.h"
#include "util/thread.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define NUMBERS (INT64_C(1) << 32)
#define BLOCK (INT64_C(1) << 22)
_Static_assert(BLOCK > LOCK_PLACES_MOST + 3, "each kind of ticket must have bytes of its own");

/* Behind all tickets: a byte for each number, another one for each moment (ms) at which a turn
 * begins, for a day. */
#define MARKS (LOCK_FILE_QUEUE + (INT64_C(1) << 60))
#define MARKED_MS (INT64_C(1) << 27)

/* --- tickets --------------------------------------------------------------- */

static int64_t kind_of(enum lock_mode mode, int slots)
{
    return mode == MODE_SLOTS ? 2 + slots : mode == MODE_SHARED ? 1 : 0;
}

static bool lock_ticket(const struct lock_file *file, const struct ticket *ticket)
{
    return lock_file_set(file, F_WRLCK, LOCK_FILE_QUEUE + ticket->number * BLOCK,
                         kind_of(ticket->mode, ticket->slots) + 1);
}

/* Another process's ticket with a number from `from` to before `to`. */
static bool find_any(const struct lock_file *file, int64_t from, int64_t to, struct ticket *found)
{
    struct flock lock;
    if (from >= to ||
        !lock_file_find(file, F_RDLCK, LOCK_FILE_QUEUE + from * BLOCK, (to - from) * BLOCK, &lock))
        return false;

    int64_t kind = lock.l_len - 1;
    *found = (struct ticket){.number = (lock.l_start - LOCK_FILE_QUEUE) / BLOCK};
    if (kind == 1)
        found->mode = MODE_SHARED;
    if (kind >= 2) {
        found->mode = MODE_SLOTS;
        found->slots = (int)(kind - 2);
    }
    return found->number >= from && found->number < to; /* otherwise it is no ticket of ours */
}

/* The kernel returns them in no certain order, mostly the lowest first. */
static bool find_first(const struct lock_file *file, int64_t from, int64_t to, struct ticket *first)
{
    bool found = find_any(file, from, to, first);
    while (found && find_any(file, from, first->number, first))
        continue;
    return found;
}

/* Numbers mostly have no gaps: the last one is near the end. */
static bool find_last(const struct lock_file *file, int64_t from, int64_t to, struct ticket *last)
{
    bool found = false;
    for (int64_t width = 1, start = to; !found && start > from; width *= 2) {
        start = to - width > from ? to - width : from;
        found = find_any(file, start, to, last);
    }
    while (found && find_any(file, last->number + 1, to, last))
        continue;
    return found;
}

/* The highest ticket number above `from`, which is a ticket itself. */
static int64_t highest(const struct lock_file *file, int64_t from)
{
    struct ticket found = {.number = from};
    int64_t step = 1;
    while (find_any(file, found.number + step, NUMBERS, &found))
        step *= 2;
    int64_t low = found.number;
    return find_last(file, low + 1, low + step, &found) ? found.number : low;
}

bool queue_is_empty(const struct lock_file *file)
{
    struct ticket any;
    return !find_any(file, 0, NUMBERS, &any);
}

size_t queue_list(const struct lock_file *file, struct ticket *tickets, size_t most)
{
    size_t count = 0;
    for (int64_t from = 0; count < most && find_first(file, from, NUMBERS, &tickets[count]);
         count++)
        from = tickets[count].number + 1;
    return count;
}

/* Below the one that the kernel returns there are few, mostly none. */
static int count(const struct lock_file *file, int64_t from, int64_t to)
{
    struct ticket found;
    int sum = 0;
    for (; find_any(file, from, to, &found); from = found.number + 1)
        sum += 1 + count(file, from, found.number);
    return sum;
}

/* --- turns ----------------------------------------------------------------- */

static struct turn known_turn(const struct memory_entry *entry)
{
    return turn_read(atomic_load(&entry->turn));
}

static int64_t floor_of(const struct memory_entry *entry)
{
    struct turn known = known_turn(entry);
    return turn_floor(&known);
}

static uint32_t now_ms(void)
{
    int64_t ms = (deadline_now().boot_ns - proc_boot_offset()) / NS_PER_MS;
    return ((uint32_t)ms & TURN_MS_MASK) | 1;
}

static struct duration since(const struct turn *known)
{
    return (struct duration){(int64_t)((now_ms() - known->ms) & TURN_MS_MASK) * NS_PER_MS};
}

/* All up to this number have lost their turn. False if another process has written since. */
static bool end_turns(struct memory_entry *entry, const struct turn *known, int64_t number)
{
    return entry_set_turn(entry, known->word, turn_word(number, false, 0));
}

static int64_t mark_at(uint32_t ms, const struct ticket *ticket)
{
    return MARKS + ms % MARKED_MS * NUMBERS + ticket->number;
}

/* If this fails, the waiter may lose its place. */
static void mark_turn(const struct lock_file *file, uint32_t ms, const struct ticket *own)
{
    if (own->number > 0 && lock_file_set(file, F_UNLCK, MARKS, 0))
        (void)lock_file_set(file, F_WRLCK, mark_at(ms, own), 1);
}

static bool has_marked(const struct lock_file *file, const struct turn *known,
                       const struct ticket *ticket)
{
    struct flock lock;
    return lock_file_find(file, F_RDLCK, mark_at(known->ms, ticket), 1, &lock);
}

/* From now on it is the turn of this one, if there is room for it. */
static void begin_turn(const struct lock_file *file, struct memory_entry *entry,
                       const struct turn *known, const struct ticket *head, bool room,
                       const struct ticket *own)
{
    uint32_t ms = now_ms();
    if (entry_set_turn(entry, known->word, turn_word(head->number, room, ms)) && room)
        mark_turn(file, ms, own);
}

bool queue_lets(const struct lock_file *file, struct memory_entry *entry, const struct ticket *own,
                const struct survey *survey)
{
    struct ticket head = {0};
    struct ticket next;
    struct turn known = known_turn(entry);
    int64_t from = turn_floor(&known);
    int64_t to = own->number > 0 ? own->number : NUMBERS;
    struct waiter_seen seen = {.head = &head, .next = &next};

    for (; find_first(file, from, to, &next); seen.place++, from = next.number + 1) {
        bool is_head = seen.place == 0;
        if (is_head) {
            head = next;
            seen.room = survey_has_room(survey, head.mode, head.slots);
        }
        seen.since = since(&known);
        seen.marked = !is_head && has_marked(file, &known, &next);
        enum turn_step step = turn_step(&known, &seen);

        if (step == TURN_BEGINS) {
            begin_turn(file, entry, &known, &next, seen.room || !is_head, own);
            return false;
        }
        if (is_head && seen.room)
            mark_turn(file, known.ms, own);
        if (step == TURN_PASSES)
            (void)end_turns(entry, &known, from - 1);
        if (step != TURN_IS_OVER)
            return false;
    }
    return seen.place == 0 || end_turns(entry, &known, from - 1);
}

/* True if this waiter has lost its turn and must join again. */
static bool is_passed_over(const struct memory_entry *entry, const struct ticket *own)
{
    return own->number < floor_of(entry);
}

/* The head has asked and must wait: its two seconds begin again. */
static void note_alive(struct memory_entry *entry, const struct ticket *own)
{
    struct turn known = known_turn(entry);
    if (own->number >= turn_floor(&known)) /* otherwise at the next try */
        (void)entry_set_turn(entry, known.word, turn_word(own->number, false, now_ms()));
}

/* When all waiters before this one will have lost their turn, if none of them acts;
 * DEADLINE_NEVER if it is not noted that it is the head's turn. */
static struct deadline turn_end(const struct lock_file *file, const struct memory_entry *entry,
                                const struct ticket *own)
{
    struct turn known = known_turn(entry);
    struct ticket before;
    int64_t from = known.number;
    int places = 0;

    if (known.lost || !known.room)
        return DEADLINE_NEVER;
    for (; places < TURNS && find_first(file, from, own->number, &before); places++)
        from = before.number + 1;
    if (places == 0)
        return DEADLINE_NEVER;
    return deadline_plus(deadline_minus(deadline_now(), since(&known)), turn_length(places - 1));
}

/* --- joining and leaving --------------------------------------------------- */

/* Numbers start again with each queue. */
static int64_t next_number(const struct lock_file *file, struct memory_entry *entry)
{
    struct turn known = known_turn(entry);
    struct ticket any;
    if (!find_any(file, 0, NUMBERS, &any)) {
        (void)entry_set_turn(entry, known.word, 0);
        return 1;
    }
    int64_t last = highest(file, any.number);
    return (last > known.number ? last : known.number) + 1;
}

void queue_leave(const struct lock_file *file, struct ticket *own)
{
    (void)lock_file_set(file, F_UNLCK, LOCK_FILE_QUEUE, 0);
    own->number = 0;
}

/* Joins at the end. The number stays 0 if that is impossible. */
static void join(const struct lock_file *file, struct memory_entry *entry,
                 const struct lock_request *request, struct ticket *own)
{
    enum { TRIES_MOST = 1000 };
    *own = (struct ticket){
        .number = next_number(file, entry), .mode = request->mode, .slots = request->slots};

    for (int tries = 0; tries < TRIES_MOST && own->number < NUMBERS; tries++, own->number++) {
        if (lock_ticket(file, own)) {
            if (!is_passed_over(entry, own))
                return;
            queue_leave(file, own);
            own->number = next_number(file, entry) - 1;
        } else if (errno != EAGAIN && errno != EACCES) {
            break;
        }
    }
    own->number = 0;
}

/* The ticket right before this one. False: it is the head. */
static bool find_before(const struct lock_file *file, const struct memory_entry *entry,
                        const struct ticket *own, struct ticket *before)
{
    return find_last(file, floor_of(entry), own->number, before);
}

/* Waits, without limit, until this one has left. 0, or an errno: EINTR if a signal has
 * arrived. */
static int await_leave(int fd, int64_t number)
{
    struct flock lock = {.l_type = F_RDLCK,
                         .l_whence = SEEK_SET,
                         .l_start = LOCK_FILE_QUEUE + number * BLOCK,
                         .l_len = 1};
    if (fcntl(fd, F_OFD_SETLKW, &lock) != 0)
        return errno;
    lock.l_type = F_UNLCK;
    (void)fcntl(fd, F_OFD_SETLK, &lock); /* cannot fail: it splits no lock */
    return 0;
}

int queue_count(const struct lock_file *file, const struct memory_entry *entry,
                const struct ticket *own)
{
    return own->number > 0 ? count(file, floor_of(entry), own->number) : count(file, 0, NUMBERS);
}

/* --- waiting ----------------------------------------------------------------- */

/* How long after an event the head asks once more. */
static const struct duration ask_again_after[] = {
    {1 * NS_PER_MS}, {4 * NS_PER_MS}, {15 * NS_PER_MS}, {50 * NS_PER_MS}, {150 * NS_PER_MS},
};
enum { ASKED_MOST = sizeof ask_again_after / sizeof *ask_again_after };

/* Polling intervals: near the head, behind it, and without notifications. */
static const struct duration poll_near = {1 * NS_PER_S};
static const struct duration poll_behind = {1800 * NS_PER_MS};
static const struct duration poll_alone = {200 * NS_PER_MS};

static struct call uncalled(const char *cannot, struct deadline by)
{
    return (struct call){.fd = -1, .by = by, .poll_most = poll_alone, .cannot = cannot};
}

void waiter_stop(struct waiter *waiter)
{
    (void)blocking_stop(&waiter->behind);
    waiter->hears = false;
    waiter->asked = 0;
    waiter->ticket.number = 0;
}

/* A failure is tried again the next time. */
static void hear(struct waiter *waiter, const struct lock_file *file)
{
    if (!waiter->hears)
        waiter->news_fd = lock_file_news(waiter->news_fd, file, NEWS_FOR_WAITER);
    waiter->hears = waiter->news_fd >= 0;
}

void waiter_ask(struct waiter *waiter, struct lock_file *file, struct memory_entry *entry,
                const struct lock_request *request)
{
    struct ticket before;
    /* The memory's word is about the file that is now at the path. */
    if (waiter->ticket.number == 0 || lock_file_verify(file, NULL) != LOCK_OK)
        return;

    if (is_passed_over(entry, &waiter->ticket)) {
        (void)blocking_stop(&waiter->behind);
        queue_leave(file, &waiter->ticket);
        join(file, entry, request, &waiter->ticket);
    }
    /* The head is notified from before it asks: then it need not ask twice. */
    if (!waiter->behind.running && !find_before(file, entry, &waiter->ticket, &before))
        hear(waiter, file);
}

static struct call wait_behind(struct waiter *waiter, const struct lock_file *file,
                               const struct memory_entry *entry, const struct ticket *before)
{
    struct ticket other;
    if (!waiter->behind.running || waiter->behind_number != before->number) {
        (void)blocking_stop(&waiter->behind);
        waiter->behind_number = before->number;
        if (!blocking_start(&waiter->behind, await_leave, file->fd, before->number))
            return uncalled("cannot start a thread for the wait", DEADLINE_NEVER);
    }

    struct deadline end = turn_end(file, entry, &waiter->ticket);
    bool is_near = !find_before(file, entry, before, &other);
    return (struct call){.fd = waiter->behind.over_fd,
                         .by = deadline_passed(end) ? DEADLINE_NEVER : end,
                         .poll_most = is_near ? poll_near : poll_behind};
}

static struct call wait_for_news(struct waiter *waiter, const struct lock_file *file,
                                 struct deadline ends)
{
    bool heard = waiter->hears;
    (void)blocking_stop(&waiter->behind);
    hear(waiter, file);
    struct call call = {.fd = waiter->news_fd, .now = !heard, .by = ends, .poll_most = poll_near};

    if (!waiter->hears)
        call = uncalled("inotify(7) is not available", ends);
    if (waiter->asked > 0 && waiter->asked <= ASKED_MOST)
        call.by = deadline_earlier(ends, deadline_after(ask_again_after[waiter->asked++ - 1]));
    return call;
}

bool waiter_wait(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                 const struct lock_request *request, struct deadline ends)
{
    struct ticket before;
    if (waiter->ticket.number == 0)
        join(file, entry, request, &waiter->ticket);
    if (waiter->ticket.number == 0) {
        waiter->call =
            uncalled("the file system does not support the locks of waiters", DEADLINE_NEVER);
        return false;
    }

    if (find_before(file, entry, &waiter->ticket, &before)) {
        waiter->call = wait_behind(waiter, file, entry, &before);
        return false;
    }
    note_alive(entry, &waiter->ticket);
    waiter->call = wait_for_news(waiter, file, ends);
    return true;
}

void waiter_wait_aside(struct waiter *waiter, const struct lock_file *file, struct deadline ends)
{
    (void)blocking_stop(&waiter->behind);
    if (waiter->ticket.number > 0)
        queue_leave(file, &waiter->ticket);
    waiter->call = wait_for_news(waiter, file, ends);
}

struct call waiter_listen(struct waiter *waiter)
{
    struct call call = waiter->call;
    int error;

    waiter->call.now = false; /* the request that it calls for comes next */
    if (waiter->behind.running) {
        if (blocking_is_over(&waiter->behind, &error)) {
            waiter->call = uncalled(NULL, DEADLINE_NEVER);
            call.now = error == 0;
        }
    } else if (waiter->hears && lock_file_drain_news(waiter->news_fd)) {
        if (waiter->asked == 0 || waiter->asked > ASKED_MOST)
            waiter->asked = 1;
        call.now = true;
    }
    return call;
}

/* --- the thread ---------------------------------------------------------------- */

enum { CALL_BACK = SIGURG, AGAIN_MS = 1 };

static void do_nothing(int number)
{
    (void)number;
}

static void *wait_thread(void *data)
{
    struct blocking *wait = data;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, CALL_BACK);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);

    wait->error = EINTR;
    while (wait->error == EINTR && !atomic_load(&wait->cancelled))
        wait->error = wait->call(wait->fd, wait->argument);
    (void)!write(wait->over_fd, &(uint64_t){1}, sizeof(uint64_t)); /* cannot fail: it is fresh */
    return NULL;
}

bool blocking_start(struct blocking *wait, blocking_call *call, int fd, int64_t argument)
{
    struct sigaction action = {.sa_handler = do_nothing};
    sigemptyset(&action.sa_mask);
    wait->over_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->over_fd < 0)
        return false;

    wait->call = call;
    wait->fd = fd;
    wait->argument = argument;
    atomic_store(&wait->cancelled, false);
    wait->running = sigaction(CALL_BACK, &action, &wait->old) == 0;
    if (wait->running && thread_start(&wait->thread, wait_thread, wait) != 0) {
        (void)sigaction(CALL_BACK, &wait->old, NULL);
        wait->running = false;
    }
    if (!wait->running)
        close(wait->over_fd);
    return wait->running;
}

static bool ends_within(const struct blocking *wait, int timeout_ms)
{
    struct pollfd over = {.fd = wait->over_fd, .events = POLLIN};
    return poll(&over, 1, timeout_ms) > 0;
}

bool blocking_has_ended(const struct blocking *wait)
{
    return ends_within(wait, 0);
}

static int finish(struct blocking *wait)
{
    pthread_join(wait->thread, NULL);
    (void)sigaction(CALL_BACK, &wait->old, NULL);
    close(wait->over_fd);
    wait->running = false;
    return wait->error;
}

bool blocking_is_over(struct blocking *wait, int *error)
{
    if (!wait->running || !blocking_has_ended(wait))
        return false;
    *error = finish(wait);
    return true;
}

bool blocking_stop(struct blocking *wait)
{
    if (!wait->running)
        return false;
    atomic_store(&wait->cancelled, true);
    while (!blocking_has_ended(wait)) {
        (void)pthread_kill(wait->thread, CALL_BACK);
        (void)ends_within(wait, AGAIN_MS);
    }
    return finish(wait) == 0;
}
