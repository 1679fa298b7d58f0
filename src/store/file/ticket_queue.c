/* A ticket is BLOCK bytes from LOCK_FILE_QUEUE + number * BLOCK on, of which as many are
 * locked for writing as its kind requires. The waiter behind it requests a read lock on
 * its first byte. Every look asks for locks that would keep out a reader, so that a
 * waiter that has just got that byte is not taken for a ticket.
 *
 * While it is the head's turn, each waiter that looks marks the turn with another lock,
 * at a byte made of its number and of when the turn began: it is alive. The mark
 * goes with the next one, or with the ticket. An older dlock sets none, and sees none.
 *
 * The word: the head's number, whether there was room for it, and since when this has
 * been so (milliseconds of the boot clock, as in the first time namespace; they may wrap
 * around: a word from weeks ago costs two seconds at most). No time: the head has lost
 * its turn. All numbers below it have lost theirs, too. A word from an older dlock, or of
 * tickets long gone, ends with the first waiter that joins an empty queue.
 *
 * Orders:
 *   Two join -> both look for the highest number; one locks the next one -> the other is
 *     refused that and locks the one behind it.
 *   N joins, and is held up between its look and its lock; meanwhile others come and go,
 *     and the word is past N's number -> N looks at the word once more when it has its
 *     ticket, and joins anew. Held up after that, it finds out at its next try.
 *   H, the head, acts at the same time as O finds its time up -> if O's word comes first,
 *     H finds that it was passed over and joins anew; otherwise both are in the section
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
 *     or is lost two seconds later. */
#include "store/file/ticket_queue.h"

#include "process/procfs.h"

#include <errno.h>
#include <fcntl.h>

#define NUMBERS (INT64_C(1) << 32)
#define BLOCK (INT64_C(1) << 22)
_Static_assert(BLOCK > LOCK_PLACES_MOST + 3, "each kind of ticket must have bytes of its own");

/* Counted from when it was the head's turn: when the head loses it, and those behind it
 * that have not marked it, though each looks more often than that. */
static const struct duration turns[] = {{2 * NS_PER_S}, {3 * NS_PER_S}};
enum { TURNS = sizeof turns / sizeof *turns };

/* Behind all tickets: a byte for each number, anew for each moment (ms) at which a turn
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
static bool ticket_queue_find(const struct lock_file *file, int64_t from, int64_t to,
                              struct ticket *found)
{
    struct flock lock;
    if (from >= to ||
        !lock_file_find(file, F_RDLCK, LOCK_FILE_QUEUE + from * BLOCK, (to - from) * BLOCK, &lock))
        return false;
    int64_t kind = lock.l_len - 1;
    *found = (struct ticket){
        .number = (lock.l_start - LOCK_FILE_QUEUE) / BLOCK,
        .mode = kind >= 2   ? MODE_SLOTS
                : kind == 1 ? MODE_SHARED
                            : MODE_EXCLUSIVE,
        .slots = kind >= 2 ? (int)(kind - 2) : 0,
    };
    return found->number >= from && found->number < to; /* otherwise it is no ticket of ours */
}

/* The kernel returns them in no certain order, mostly the lowest first. */
static bool find_first(const struct lock_file *file, int64_t from, int64_t to, struct ticket *first)
{
    bool found = ticket_queue_find(file, from, to, first);
    while (found && ticket_queue_find(file, from, first->number, first))
        continue;
    return found;
}

/* Numbers mostly have no gaps: the last one is near the end. */
static bool find_last(const struct lock_file *file, int64_t from, int64_t to, struct ticket *last)
{
    bool found = false;
    for (int64_t width = 1, start = to; !found && start > from; width *= 2) {
        start = to - width > from ? to - width : from;
        found = ticket_queue_find(file, start, to, last);
    }
    while (found && ticket_queue_find(file, last->number + 1, to, last))
        continue;
    return found;
}

/* The highest ticket number above `from`, which is a ticket itself. */
static int64_t highest(const struct lock_file *file, int64_t from)
{
    struct ticket found = {.number = from};
    int64_t step = 1;
    while (ticket_queue_find(file, found.number + step, NUMBERS, &found))
        step *= 2;
    int64_t low = found.number;
    return find_last(file, low + 1, low + step, &found) ? found.number : low;
}

/* --- the word -------------------------------------------------------------- */

struct turn {
    uint64_t word;  /* as it was read */
    int64_t number; /* the head's, which it is about */
    bool lost;      /* it has lost its turn */
    bool room;      /* there was room for it; if not, it keeps others out until there is */
    uint32_t ms;    /* since when; 0 if it is lost */
};

#define MS_MASK ((UINT32_C(1) << 31) - 1)

static uint32_t now_ms(void)
{
    return ((uint32_t)((deadline_now().boot_ns - proc_boot_offset()) / NS_PER_MS) & MS_MASK) | 1;
}

static struct turn read_turn(const struct shared_entry *entry)
{
    uint64_t word = shared_entry_turn(entry);
    uint32_t low = (uint32_t)word;
    return (struct turn){word, (int64_t)(word >> 32), (low & MS_MASK) == 0, low > MS_MASK,
                         low & MS_MASK};
}

/* False if another process has written it since. */
static bool write_turn(struct shared_entry *entry, const struct turn *known, int64_t number,
                       bool room, uint32_t ms)
{
    return shared_entry_set_turn(entry, known->word,
                                 (uint64_t)number << 32 | (room ? UINT64_C(1) << 31 : 0) | ms);
}

/* The lowest number that counts. */
static int64_t floor_of(const struct turn *known)
{
    return known->lost ? known->number + 1 : known->number;
}

static struct duration since(const struct turn *known)
{
    return (struct duration){(int64_t)((now_ms() - known->ms) & MS_MASK) * NS_PER_MS};
}

bool ticket_queue_passed_over(const struct shared_entry *entry, const struct ticket *own)
{
    struct turn known = read_turn(entry);
    return own->number < floor_of(&known);
}

void ticket_queue_alive(struct shared_entry *entry, const struct ticket *own)
{
    struct turn known = read_turn(entry);
    if (own->number >= floor_of(&known))
        (void)write_turn(entry, &known, own->number, false, now_ms()); /* or at the next try */
}

static struct duration turn_of(int place)
{
    return turns[place < TURNS ? place : TURNS - 1];
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

struct deadline ticket_queue_turn_end(const struct lock_file *file,
                                      const struct shared_entry *entry, const struct ticket *own)
{
    struct turn known = read_turn(entry);
    struct ticket before;
    int64_t from = known.number;
    int count = 0;
    if (known.lost || !known.room)
        return DEADLINE_NEVER;
    for (; count < TURNS && find_first(file, from, own->number, &before); count++)
        from = before.number + 1;
    return count > 0
               ? deadline_plus(deadline_minus(deadline_now(), since(&known)), turn_of(count - 1))
               : DEADLINE_NEVER;
}

/* True if the turn of this waiter behind the head is counted with the head's: there has
 * been room for both since then. */
static bool goes_along(const struct turn *known, const struct ticket *head,
                       const struct ticket *behind)
{
    bool same_kind = behind->mode == head->mode && behind->slots == head->slots;
    return known->room && (head->mode == MODE_EXCLUSIVE || same_kind);
}

/* From now on it is the turn of this one, if there is room for it. */
static void give_turn(const struct lock_file *file, struct shared_entry *entry,
                      const struct turn *known, const struct ticket *head, bool room,
                      const struct ticket *own)
{
    uint32_t ms = now_ms();
    if (write_turn(entry, known, head->number, room, ms) && room)
        mark_turn(file, ms, own);
}

bool ticket_queue_lets(const struct lock_file *file, struct shared_entry *entry,
                       const struct ticket *own, const struct admission *survey)
{
    struct ticket head = {0}, next;
    struct turn known = read_turn(entry);
    int64_t from = floor_of(&known), to = own->number > 0 ? own->number : NUMBERS;
    int place = 0;
    for (; find_first(file, from, to, &next); place++, from = next.number + 1) {
        if (place == 0) {
            bool room = admission_has_room(survey, next.mode, next.slots);
            head = next;
            if (known.lost || known.number != head.number || known.room != room) {
                give_turn(file, entry, &known, &head, room, own);
                return false;
            }
            if (room)
                mark_turn(file, known.ms, own);
        } else if (!goes_along(&known, &head, &next)) {
            (void)write_turn(entry, &known, from - 1, false,
                             0); /* its own turn begins when the next waiter asks */
            return false;
        }
        if (since(&known).ns < turn_of(place).ns)
            return false;
        if (place > 0 && has_marked(file, &known, &next)) {
            give_turn(file, entry, &known, &next, true, own);
            return false;
        }
    }
    return place == 0 || write_turn(entry, &known, from - 1, false, 0);
}

/* --- joining and leaving --------------------------------------------------- */

/* Numbers begin anew with each queue. */
static int64_t next_number(const struct lock_file *file, struct shared_entry *entry)
{
    struct turn known = read_turn(entry);
    struct ticket any;
    if (!ticket_queue_find(file, 0, NUMBERS, &any)) {
        (void)shared_entry_set_turn(entry, known.word, 0);
        return 1;
    }
    int64_t last = highest(file, any.number);
    return (last > known.number ? last : known.number) + 1;
}

void ticket_queue_join(const struct lock_file *file, struct shared_entry *entry,
                       const struct lock_request *request, struct ticket *own)
{
    enum { TRIES_MOST = 1000 };
    *own = (struct ticket){
        .number = next_number(file, entry), .mode = request->mode, .slots = request->slots};
    for (int tries = 0; tries < TRIES_MOST && own->number < NUMBERS; tries++, own->number++) {
        if (lock_ticket(file, own)) {
            if (!ticket_queue_passed_over(entry, own))
                return;
            ticket_queue_leave(file, own);
            own->number = next_number(file, entry) - 1;
        } else if (errno != EAGAIN && errno != EACCES) {
            break;
        }
    }
    own->number = 0;
}

void ticket_queue_leave(const struct lock_file *file, struct ticket *own)
{
    (void)lock_file_set(file, F_UNLCK, LOCK_FILE_QUEUE, 0);
    own->number = 0;
}

/* --- looking --------------------------------------------------------------- */

bool ticket_queue_before(const struct lock_file *file, const struct shared_entry *entry,
                         const struct ticket *own, struct ticket *before)
{
    struct turn known = read_turn(entry);
    return find_last(file, floor_of(&known), own->number, before);
}

int ticket_queue_await(int fd, int64_t number)
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

bool ticket_queue_is_empty(const struct lock_file *file)
{
    struct ticket any;
    return !ticket_queue_find(file, 0, NUMBERS, &any);
}

size_t ticket_queue_list(const struct lock_file *file, struct ticket *tickets, size_t most)
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
    for (; ticket_queue_find(file, from, to, &found); from = found.number + 1)
        sum += 1 + count(file, from, found.number);
    return sum;
}

int ticket_queue_count(const struct lock_file *file, const struct shared_entry *entry,
                       const struct ticket *own)
{
    struct turn known = read_turn(entry);
    return own->number > 0 ? count(file, floor_of(&known), own->number) : count(file, 0, NUMBERS);
}
