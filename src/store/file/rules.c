/* Decides whether a record still counts, whether a request is admitted to a lock, and which
 * waiter's turn it is. Nothing here reads a file or asks the kernel, except for the time.
 * tests/file/rules.py runs the rows of the Lua scripts' tests against these functions. */
#include "store/file/file_int.h"

#include "lock/format.h"

#include <string.h>

/* --- one place ------------------------------------------------------------- */

/* A locked place is held, unless its record says that another process has released the lock. With
 * --hold-at-least, a place stays held even after its holder has ended or released the lock. */
bool place_is_held(const struct lock_place *place, const char *boot_id)
{
    const struct record *record = &place->record;
    bool same_boot = place->known && record_may_be_of(record, boot_id);

    if (place->unreadable || record_is_newer(record))
        return true;
    if (same_boot && !deadline_passed(record->hold))
        return true;
    if (place->known && record->holder.kept)
        return false;
    return place->locked != PLACE_UNLOCKED ||
           (same_boot && record->holder.detached && !deadline_passed(record->expires));
}

bool place_lost_run(const struct lock_place *place, const char *boot_id)
{
    const struct record *record = &place->record;
    return place->known && record->remember.ns > 0 && !record->holder.kept &&
           place->locked == PLACE_UNLOCKED &&
           (!record->holder.detached || !record_may_be_of(record, boot_id) ||
            deadline_passed(record->expires));
}

/* True if only --hold-at-least keeps others out, because the holder has released the lock or has
 * ended. */
static bool is_kept(const struct lock_place *place)
{
    return place->record.holder.kept ||
           (place->locked == PLACE_UNLOCKED && !place->record.holder.detached);
}

struct deadline place_end(const struct lock_place *place)
{
    const struct record *record = &place->record;
    return is_kept(place) || deadline_before(record->expires, record->hold) ? record->hold
                                                                            : record->expires;
}

void place_holder(const struct lock_place *place, const char *boot_id, struct holder *holder)
{
    *holder = place->record.holder;
    holder->ahead = -1;
    holder->expires = record_may_be_of(&place->record, boot_id);
    holder->left = deadline_left(place_end(place));
    holder->kept = is_kept(place);
}

/* --- the lease of another process ------------------------------------------- */

static bool is_of(const struct record *record, const struct lease *lease)
{
    return strcmp(record->token, lease->token) == 0 &&
           (lease->take_id[0] == '\0' || strcmp(record->holder.take_id, lease->take_id) == 0);
}

static enum lock_result standing_of(const struct lock_place *place, const char *boot_id,
                                    struct errmsg *why)
{
    const struct record *record = &place->record;
    if (record->holder.kept)
        return errmsg_fail(why, LOCK_RELEASED, "already released");
    if (!record_may_be_of(record, boot_id) || deadline_passed(record->expires))
        return errmsg_fail(why, LOCK_GONE, "the lease has ended");
    if (place->locked != PLACE_UNLOCKED || record->holder.detached)
        return LOCK_OK;
    return errmsg_fail(why, LOCK_GONE, "the holder's process has ended");
}

void search_add(struct lease_search *search, const struct lock_place *place,
                const struct lease *lease, const char *boot_id)
{
    search->unreadable |= place->unreadable;
    if (!place->unreadable && record_is_newer(&place->record))
        search->newer = place->record.format;
    if (!place->known || !is_of(&place->record, lease)) {
        search->others |= place_is_held(place, boot_id);
        return;
    }

    struct errmsg why = {""};
    enum lock_result standing = standing_of(place, boot_id, &why);
    if (standing == LOCK_OK || !search->known || place->record.fence > search->place.record.fence) {
        search->result = standing;
        search->why = why;
        search->place = *place;
    }
    search->known = true;
}

/* --- all places --------------------------------------------------------------- */

static bool ends_before(const struct lock_place *a, const struct lock_place *b)
{
    return a->known && (!b->known || deadline_before(place_end(a), place_end(b)));
}

void place_map_set(struct place_map *map, int place, bool taken)
{
    unsigned bit = 1U << place % 8;
    if (place >= PLACES_MAPPED)
        return;
    unsigned char *byte = &map->bits[place / 8];
    *byte = (unsigned char)(taken ? *byte | bit : *byte & ~bit);
}

void survey_add(struct survey *survey, const struct lock_place *place, const char *boot_id,
                const char *token)
{
    bool held = place_is_held(place, boot_id);
    bool locked = place->locked != PLACE_UNLOCKED;

    survey->unreadable |= place->unreadable;
    if (!place->unreadable && record_is_newer(&place->record))
        survey->newer = place->record.format;
    place_map_set(&survey->taken, place->number, held || locked);
    if (survey->free_place < 0 && !held && !locked)
        survey->free_place = place->number;

    const struct record *record = &place->record;
    survey->acquired |= place->known && record->holder.detached && !record->holder.kept;
    survey->lost |= place_lost_run(place, boot_id);
    survey->released += !held && locked;
    if (!held)
        return;
    if (survey->held == 0 || ends_before(place, &survey->first))
        survey->first = *place;
    if (survey->held == 0 || ends_before(&survey->last, place))
        survey->last = *place;
    survey->held++;
    survey->same_token |= place->known && strcmp(place->record.token, token) == 0;
}

/* True if the holders are known to have this mode. One record is enough to decide this, because all
 * holders have the same mode, and their records the same format. If that record cannot be read, the
 * mode is unknown. */
static bool same_mode(const struct survey *survey, enum lock_mode mode, int slots)
{
    const struct record *record = &survey->first.record;
    return survey->first.known && record->format == STORE_FORMAT && record->mode == mode &&
           record->slots == slots;
}

static bool is_shared(const struct survey *survey)
{
    return survey->held > 0 && survey->first.known && survey->first.record.mode != MODE_EXCLUSIVE;
}

bool survey_conflicts(const struct survey *survey, enum lock_mode mode, int slots)
{
    return is_shared(survey) && !same_mode(survey, mode, slots);
}

static bool fits(const struct survey *survey, enum lock_mode mode, int slots)
{
    int places = mode == MODE_SLOTS ? slots : LOCK_PLACES_MOST;
    if (survey->held > 0 && (!is_shared(survey) || !same_mode(survey, mode, slots)))
        return false;
    return mode == MODE_EXCLUSIVE || survey->free_place < places;
}

bool survey_has_room(const struct survey *survey, enum lock_mode mode, int slots)
{
    return survey->pause.left.ns == 0 && fits(survey, mode, slots);
}

bool survey_admits(const struct survey *survey, const struct lock_request *request)
{
    return !survey->same_token && survey_has_room(survey, request->mode, request->slots);
}

void survey_holder(const struct survey *survey, const struct lock_request *request,
                   struct holder *holder)
{
    bool last = survey_conflicts(survey, request->mode, request->slots);
    const struct lock_place *place = last ? &survey->last : &survey->first;
    bool only_paused = survey->pause.left.ns > 0 && fits(survey, request->mode, request->slots);

    *holder = (struct holder){.ahead = -1};
    if (survey->held > 0 && place->known && !only_paused) {
        place_holder(place, request->self.boot_id, holder);
        holder->slots = place->record.mode == MODE_SLOTS ? place->record.slots : 0;
        holder->slots_taken = survey->held;
    }
    holder->pause = survey->pause;
}

/* --- whose turn it is ------------------------------------------------------------ */

/* The word (`turn` in struct memory_entry) contains the ticket number of the first waiter (the
 * head), whether the lock had room for the head, and the time at which this state began. The time
 * is in milliseconds of the boot clock of the first time namespace, and may wrap around: a word
 * that is weeks old delays a waiter by at most two seconds. If the word contains no time, the head
 * has lost its turn. All waiters with lower numbers have lost their turns, too. A waiter that joins
 * an empty queue resets the word, which may come from an older dlock or be about tickets long
 * gone. */
struct turn turn_read(uint64_t word)
{
    uint32_t low = (uint32_t)word;
    return (struct turn){.word = word,
                         .number = (int64_t)(word >> 32),
                         .lost = (low & TURN_MS_MASK) == 0,
                         .room = low > TURN_MS_MASK,
                         .ms = low & TURN_MS_MASK};
}

uint64_t turn_word(int64_t number, bool room, uint32_t ms)
{
    return (uint64_t)number << 32 | (room ? UINT64_C(1) << 31 : 0) | ms;
}

int64_t turn_floor(const struct turn *known)
{
    return known->lost ? known->number + 1 : known->number;
}

struct duration turn_length(int place)
{
    static const struct duration lengths[TURNS] = {{2 * NS_PER_S}, {3 * NS_PER_S}};
    return lengths[place < TURNS ? place : TURNS - 1];
}

/* True if the turn of the waiter `next` is counted from the same time as the head's turn, because
 * the lock has had room for both since that time. */
static bool goes_along(const struct turn *known, const struct ticket *head,
                       const struct ticket *next)
{
    bool same_kind = next->mode == head->mode && next->slots == head->slots;
    return known->room && (head->mode == MODE_EXCLUSIVE || same_kind);
}

enum turn_step turn_step(const struct turn *known, const struct waiter_seen *seen)
{
    bool is_head = seen->place == 0;

    if (is_head &&
        (known->lost || known->number != seen->head->number || known->room != seen->room))
        return TURN_BEGINS;
    if (!is_head && !goes_along(known, seen->head, seen->next))
        return TURN_PASSES;
    if (seen->since.ns < turn_length(seen->place).ns)
        return TURN_LASTS;
    return !is_head && seen->marked ? TURN_BEGINS : TURN_IS_OVER;
}
