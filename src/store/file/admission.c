#include "store/file/admission.h"

#include "lock/format.h"
#include "util/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static bool ends_before(const struct lock_place *a, const struct lock_place *b)
{
    return a->known && (!b->known || deadline_before(lock_place_end(a), lock_place_end(b)));
}

/* It may be rewritten at this very moment. */
static bool read_pause_record(const struct lock_file *file, struct record *record)
{
    enum { TRIES = 3 };
    bool read = lock_file_read(file, LOCK_FILE_PAUSE, record);
    for (int tries = 1; tries < TRIES && !read && errno != 0 && !record_is_newer(record); tries++) {
        (void)poll(NULL, 0, 1);
        read = lock_file_read(file, LOCK_FILE_PAUSE, record);
    }
    return read;
}

/* A record that cannot be read may have any end: it is a pause for another second, so
 * that no process takes the lock, or removes the file. */
static struct pause read_pause(const struct lock_file *file, const char *boot_id, int64_t *newer)
{
    struct pause pause = {.left = DURATION_ZERO};
    struct record record = {0};
    if (file->size <= LOCK_PAUSE_OFFSET)
        return pause;
    bool known = read_pause_record(file, &record);
    if (!known && errno != 0)
        pause = (struct pause){DURATION_S(1), "unknown", "its record cannot be read"};
    if (record_is_newer(&record))
        *newer = record.format;
    if (!known || !record_may_be_of(&record, boot_id) || deadline_passed(record.expires))
        return pause;
    pause.left = deadline_left(record.expires);
    snprintf(pause.by, sizeof pause.by, "%s@%s", record.holder.user, record.holder.host);
    text_copy(pause.message, sizeof pause.message, record.holder.message);
    return pause;
}

bool lock_is_paused(const struct lock_file *file, const char *boot_id)
{
    int64_t newer;
    return read_pause(file, boot_id, &newer).left.ns > 0;
}

void lock_survey(const struct lock_file *file, const char *boot_id, const char *token, int own,
                 struct bound bound, struct admission *survey, struct place_map *map)
{
    struct lock_place place = lock_file_places(bound);
    *survey = (struct admission){.free_place = -1};
    survey->pause = read_pause(file, boot_id, &survey->newer);
    if (map != NULL)
        *map = (struct place_map){{0}};
    while (lock_file_next_place(file, &place)) {
        bool held = lock_place_held(&place, boot_id);
        survey->unreadable |= place.unreadable;
        if (!place.unreadable && record_is_newer(&place.record))
            survey->newer = place.record.format;
        if (map != NULL)
            place_map_set(map, place.number, held || place.locked != PLACE_UNLOCKED);
        if (survey->free_place < 0 && !held && place.locked == PLACE_UNLOCKED)
            survey->free_place = place.number;
        if (place.number == own)
            continue;
        survey->lost |= lock_place_lost(&place, boot_id) && place.record.remember.ns > 0;
        survey->released += !held && place.locked != PLACE_UNLOCKED;
        if (!held)
            continue;
        if (survey->held == 0 || ends_before(&place, &survey->first))
            survey->first = place;
        if (survey->held++ == 0 || ends_before(&survey->last, &place))
            survey->last = place;
        survey->same_token |= place.known && strcmp(place.record.token, token) == 0;
    }
    if (survey->free_place < 0)
        survey->free_place = place.number; /* behind the last one */
}

bool lock_survey_one(const struct lock_file *file, const char *boot_id, int own,
                     struct admission *survey)
{
    struct lock_place place;
    if (!lock_file_has_many(file) || !lock_file_any_holder(file, &place) || !place.known ||
        place.record.mode == MODE_EXCLUSIVE || !lock_place_held(&place, boot_id))
        return false;
    *survey = (struct admission){.held = 1, .first = place, .last = place, .free_place = own};
    survey->pause = read_pause(file, boot_id, &survey->newer);
    if (own < 0)
        survey->free_place = lock_file_free_place(file, boot_id);
    return survey->free_place >= 0;
}

/* A record that cannot be read may say anything. Holders have one format. */
static bool same_mode(const struct admission *survey, enum lock_mode mode, int slots)
{
    const struct record *record = &survey->first.record;
    return survey->first.known && record->format == STORE_FORMAT && record->mode == mode &&
           record->slots == slots;
}

static bool is_shared(const struct admission *survey)
{
    return survey->held > 0 && survey->first.known && survey->first.record.mode != MODE_EXCLUSIVE;
}

bool admission_conflicts(const struct admission *survey, const struct lock_request *request)
{
    return is_shared(survey) && !same_mode(survey, request->mode, request->slots);
}

static bool fits(const struct admission *survey, enum lock_mode mode, int slots)
{
    int places = mode == MODE_SLOTS ? slots : LOCK_PLACES_MOST;
    if (survey->held > 0 && (!is_shared(survey) || !same_mode(survey, mode, slots)))
        return false;
    return mode == MODE_EXCLUSIVE || survey->free_place < places;
}

bool admission_has_room(const struct admission *survey, enum lock_mode mode, int slots)
{
    return survey->pause.left.ns == 0 && fits(survey, mode, slots);
}

bool admission_admits(const struct admission *survey, const struct lock_request *request)
{
    return !survey->same_token && admission_has_room(survey, request->mode, request->slots);
}

void admission_holder(const struct admission *survey, const struct lock_request *request,
                      struct holder *holder)
{
    const struct lock_place *place =
        admission_conflicts(survey, request) ? &survey->last : &survey->first;
    *holder = (struct holder){.ahead = -1, .pause = survey->pause};
    bool only_paused = survey->pause.left.ns > 0 && fits(survey, request->mode, request->slots);
    if (survey->held == 0 || !place->known || only_paused)
        return;
    *holder = place->record.holder;
    holder->pause = survey->pause;
    holder->ahead = -1;
    holder->slots = place->record.mode == MODE_SLOTS ? place->record.slots : 0;
    holder->slots_taken = survey->held;
    holder->detached = place->record.detached;
    holder->expires = record_may_be_of(&place->record, request->self.boot_id);
    holder->left = deadline_left(lock_place_end(place));
    holder->kept =
        place->record.released || (place->locked == PLACE_UNLOCKED && !place->record.detached);
}
