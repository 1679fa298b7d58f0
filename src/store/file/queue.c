/* The waiters of a lock file: their tickets, what wakes which waiter, and the thread that waits in
 * the kernel.
 *
 * The head is the first waiter. During its turn, which lasts two seconds, only the head may acquire
 * the lock. A head that does not act in its turn is passed over: it loses the turn to the next live
 * waiter. A place is what a holder locks: a byte far beyond the end of the file (file.c).
 *
 * A ticket is a block of BLOCK bytes that starts at LOCK_FILE_QUEUE + number * BLOCK. The number of
 * bytes that the waiter has locked for writing shows its mode and, if it wants a slot, the number
 * of slots (kind_of()), so every process can judge whether it is the waiter's turn. The kernel
 * unlocks the bytes when the waiter dies. Each waiter requests a read lock on the first byte of the
 * ticket before its own. So it waits until the waiter before it leaves, by acquiring the lock,
 * giving up or dying, and each departure wakes one waiter. A process that looks for tickets asks
 * the kernel only for write locks, so the read lock that a woken waiter has for a moment does not
 * count as a ticket.
 *
 * During the head's turn, each waiter that looks at the queue marks the turn with another lock, on
 * a byte that depends on the waiter's number and on when the turn began. The mark shows that the
 * waiter is alive. The mark is removed when the waiter marks another turn, or with the ticket. An
 * older dlock neither sets marks nor sees them.
 *
 * "The word" is the integer in the table that says whose turn it is (rules.c). Orders of events:
 *   Two waiters join -> both find the same highest number, and one of them locks the next number ->
 *     the other waiter is refused that number, and locks the number after it.
 *   A waiter N joins, and is delayed after it has looked for the highest number and before it locks
 *     its own number; meanwhile others come and go, and the word is past N's number -> N looks at
 *     the word once more when it has its ticket, and joins again. If N is delayed after that look,
 *     it finds out at its next request.
 *   H, the head, acts at the moment when another waiter, O, finds that H's time is up -> if O
 *     changes the word first, H finds that it was passed over, and joins again; otherwise both
 *     enter the critical section of the lock file, one after the other, and the later one finds the
 *     lock held.
 *   H is frozen and passed over, but still has its bytes locked -> the bytes are ignored, and new
 *     tickets get higher numbers.
 *   H acquires the lock -> its ticket is removed only after its record was written and its place
 *     locked -> a request in between is refused because of the ticket or because of the place.
 *   H dies -> the next waiter is woken and finds that it is the head.
 *   H and the waiters right after it are frozen, and several waiters after them are alive -> each
 *     live waiter looks at the queue, and marks the turn, before the turn ends -> all live waiters
 *     wake when the turn ends -> the first waiter with a mark acts, or the first process that looks
 *     gives that waiter the turn.
 *   A waiter is frozen after it has marked the turn -> it gets a turn, and is passed over when that
 *     turn ends, like H.
 *   The turn ends at the moment when a live waiter is about to mark it -> that waiter is passed
 *     over, like H, and joins again.
 *   O is woken because B, the waiter before it, has left, but waiters that came before B are still
 *     there -> from then on O waits for the last of those.
 *   The lock's entry in the table is given to another lock, or the lock has no entry -> a frozen
 *     head does not lose its turn, or loses it two seconds later.
 *
 * Events that wake a waiter:
 *
 *   A process closes the file -> the head is notified. A holder closes the file when it ends,
 *     however it ends. A process that releases, extends or removes a lease from outside closes the
 *     file, too. The head is also notified when the file is removed, and knows when a lease without
 *     a process ends. When its notifications start, the head requests the lock once more, to find
 *     changes that happened before.
 *   A waiter leaves -> the kernel wakes the next one.
 *
 * A holder that releases the lock unlocks everything, and then opens and closes the file once more.
 * The guard of its command still shares the holder's open file, so that closing the holder's
 * descriptor alone does not notify the head. If a holder is killed, the kernel first closes the
 * file, and unlocks it immediately afterwards, unless the holder has to wait for a processor. So
 * the head requests the lock a few more times.
 *
 * If the head is frozen, perhaps together with waiters after it, no event wakes the other waiters.
 * So every waiter looks at the queue every two seconds, and the waiter right after the head looks
 * every second. A waiter that finds that it is the head's turn looks again when all frozen waiters
 * before it have lost their turns, at most 3 seconds later. So a lock stays free for at most 5
 * seconds, whichever processes are frozen.
 *
 * The helper thread: the main thread starts it, and joins it before it acquires the lock, gives up
 * or runs a command. The descriptor belongs to the main thread; the helper thread uses it only in
 * its one call. To cancel, the main thread sends a signal, which ends the call with EINTR. Orders
 * of events:
 *   the thread is in the call -> EINTR -> the thread sees that it was cancelled.
 *   the thread has not yet checked for cancellation -> it sees that it was cancelled, and makes no
 *     call.
 *   the thread has checked, and is not in the call yet -> the signal is lost -> another signal is
 *     sent every millisecond until the thread reports its end.
 *   the thread already has what it waited for -> it ends by itself -> the caller learns that the
 *     wait succeeded.
 *
 * The signal is SIGURG, which is ignored by default: no harm is done if dlock swallows a SIGURG
 * that was sent for another reason. While the thread exists, the signal has a handler that does
 * nothing; the old disposition is restored before a command starts. */
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

/* A mark is a lock on one byte, by which a waiter shows that it has looked at the queue during the
 * current turn. These bytes come after the bytes of all tickets. Each combination of a waiter's
 * number and a millisecond in which a turn can begin has its own byte. The milliseconds are taken
 * modulo MARKED_MS, so the bytes are reused after 1.5 days. */
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

/* Finds another process's ticket whose number is at least `from` and less than `to`. */
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
    return found->number >= from && found->number < to; /* otherwise the lock is not a ticket */
}

/* Finds the ticket with the lowest number. The kernel may return any of the tickets, so the search
 * is repeated below each ticket that it returns. Usually it returns the lowest one at once. */
static bool find_first(const struct lock_file *file, int64_t from, int64_t to, struct ticket *first)
{
    bool found = find_any(file, from, to, first);
    while (found && find_any(file, from, first->number, first))
        continue;
    return found;
}

/* Searches from the end, because the numbers rarely have gaps, so that the last ticket is usually
 * near the end. */
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

/* The highest ticket number; `from` is the number of any ticket. */
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

/* Counts tickets. The kernel usually returns the first ticket or one of the first, so the
 * recursion, which counts the tickets before that one, has little to do. */
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

/* Records in the table that all waiters up to this number have lost their turn. False if another
 * process has changed the turn since *known was read. */
static bool end_turns(struct memory_entry *entry, const struct turn *known, int64_t number)
{
    return entry_set_turn(entry, known->word, turn_word(number, false, 0));
}

static int64_t mark_at(uint32_t ms, const struct ticket *ticket)
{
    return MARKS + ms % MARKED_MS * NUMBERS + ticket->number;
}

/* Locks the byte that shows that this waiter has looked at the queue during the turn that began at
 * `ms`, and is therefore alive. Unlocks its byte of an earlier turn. If this fails, the waiter may lose
 * its place in the queue. */
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

/* Records in the table that the turn of `head` begins now or, if the lock has no room for the head,
 * that the head waits for room. */
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

/* Called after the first waiter has requested the lock in vain. The request shows that this waiter
 * is alive, so it gets another two seconds in which to act. */
static void note_alive(struct memory_entry *entry, const struct ticket *own)
{
    struct turn known = known_turn(entry);
    if (own->number >= turn_floor(&known)) /* if not, the waiter joins again at its next request */
        (void)entry_set_turn(entry, known.word, turn_word(own->number, false, now_ms()));
}

/* The time at which all waiters before this one will have lost their turn if none of them acts;
 * DEADLINE_NEVER if the table does not say that it is the first waiter's turn. */
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

/* The number for a new ticket. A queue that was empty starts with 1 again. */
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

/* Joins the end of the queue. Sets own->number to 0 if that is impossible. */
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

/* Finds the ticket right before this one. False: this waiter is the first one, the head. */
static bool find_before(const struct lock_file *file, const struct memory_entry *entry,
                        const struct ticket *own, struct ticket *before)
{
    return find_last(file, floor_of(entry), own->number, before);
}

/* Waits, without limit, until the waiter with this number has left. Returns 0 or an errno: EINTR if
 * a signal has arrived. */
static int await_leave(int fd, int64_t number)
{
    struct flock lock = {.l_type = F_RDLCK,
                         .l_whence = SEEK_SET,
                         .l_start = LOCK_FILE_QUEUE + number * BLOCK,
                         .l_len = 1};
    if (fcntl(fd, F_OFD_SETLKW, &lock) != 0)
        return errno;
    lock.l_type = F_UNLCK;
    /* Cannot fail: unlocking needs memory only if it splits a lock, and this does not. */
    (void)fcntl(fd, F_OFD_SETLK, &lock);
    return 0;
}

int queue_count(const struct lock_file *file, const struct memory_entry *entry,
                const struct ticket *own)
{
    return own->number > 0 ? count(file, floor_of(entry), own->number) : count(file, 0, NUMBERS);
}

/* --- waiting ----------------------------------------------------------------- */

/* After a process has closed the file, the first waiter requests the lock several times, with these
 * delays in between, because the kernel unlocks a killed holder's file a little later. */
static const struct duration ask_again_after[] = {
    {1 * NS_PER_MS}, {4 * NS_PER_MS}, {15 * NS_PER_MS}, {50 * NS_PER_MS}, {150 * NS_PER_MS},
};
enum { ASKED_MOST = sizeof ask_again_after / sizeof *ask_again_after };

/* Polling intervals of waiters. */
static const struct duration poll_near = {1 * NS_PER_S};       /* the first two waiters */
static const struct duration poll_behind = {1800 * NS_PER_MS}; /* all later waiters */
static const struct duration poll_alone = {200 * NS_PER_MS};   /* waiters without notifications */

static struct call uncalled(const char *cannot, struct deadline by)
{
    return (struct call){.fd = -1, .by = by, .poll_most = poll_alone, .cannot = cannot};
}

void waiter_stop(struct waiter *waiter)
{
    (void)blocking_stop(&waiter->behind);
    waiter->hears = false;
    waiter->asked = 0;
    waiter->notified = false;
    waiter->yields = (struct deadline){0};
    waiter->ticket.number = 0;
}

/* Starts the notifications about the file. If that fails, the next call of hear() tries again. */
static void hear(struct waiter *waiter, const struct lock_file *file)
{
    if (!waiter->hears)
        waiter->news_fd = lock_file_news(waiter->news_fd, file, NEWS_FOR_WAITER);
    waiter->hears = waiter->news_fd >= 0;
}

void waiter_ask(struct waiter *waiter, const struct lock_file *file, struct memory_entry *entry,
                const struct lock_request *request)
{
    struct ticket before;
    if (is_passed_over(entry, &waiter->ticket)) {
        (void)blocking_stop(&waiter->behind);
        queue_leave(file, &waiter->ticket);
        join(file, entry, request, &waiter->ticket);
    }
    /* If this waiter is the first, its notifications start before its request. So it misses no
     * change after the request, and need not request the lock a second time. */
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
            return uncalled("cannot start a thread that waits", DEADLINE_NEVER);
    }

    struct deadline end =
        waiter->yields.boot_ns != 0 ? waiter->yields : turn_end(file, entry, &waiter->ticket);
    bool is_near = !find_before(file, entry, before, &other);
    return (struct call){.fd = waiter->behind.over_fd,
                         .by = deadline_passed(end) ? DEADLINE_NEVER : end,
                         .poll_most = is_near ? poll_near : poll_behind};
}

static struct call wait_for_news(struct waiter *waiter, const struct lock_file *file,
                                 struct deadline ends)
{
    bool heard = waiter->hears;
    waiter->notified = false;
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

bool waiter_yields(struct waiter *waiter, const struct lock_file *file,
                   const struct memory_entry *entry)
{
    struct ticket before;
    if (waiter->ticket.number == 0 || !find_before(file, entry, &waiter->ticket, &before))
        return false;
    if (waiter->yields.boot_ns == 0)
        waiter->yields = deadline_after(turn_length(0));
    return !deadline_passed(waiter->yields);
}

struct call waiter_listen(struct waiter *waiter)
{
    struct call call = waiter->call;
    int error;

    waiter->call.now = false; /* is returned as true only once, because the caller then requests
                               * the lock immediately */
    if (waiter->behind.running) {
        if (blocking_is_over(&waiter->behind, &error)) {
            waiter->call = uncalled(NULL, DEADLINE_NEVER);
            call.now = error == 0;
        }
    } else if (waiter->hears && lock_file_drain_news(waiter->news_fd)) {
        if (waiter->asked == 0 || waiter->asked > ASKED_MOST)
            waiter->asked = 1;
        waiter->notified = call.now = true;
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
    (void)!write(wait->over_fd, &(uint64_t){1}, sizeof(uint64_t)); /* cannot fail: counter was 0 */
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
