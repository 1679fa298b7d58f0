#include "store/quorum/quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_one(struct quorum_count *count, enum lock_result result)
{
    switch (result) {
    case LOCK_OK: count->ok++; break;
    case LOCK_HELD: count->held++; break;
    case LOCK_GONE:
    case LOCK_FOREIGN:
    case LOCK_ENDED:
    case LOCK_RELEASED: count->lost++; break;
    case LOCK_REFUSED: count->refused++, count->bad++; break;
    case LOCK_INVALID: count->invalid++, count->bad++; break;
    case LOCK_CANT_CREATE:
    case LOCK_SYSTEM: count->bad++; break;
    case LOCK_UNAVAILABLE:
    case LOCK_CANCELLED: count->silent++; break;
    }
}

struct quorum_count quorum_count_round(const struct quorum *quorum)
{
    struct quorum_count count = {0};
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        if (member->done || (!member->asked && member->standing == MEMBER_RELEASED))
            count_one(&count, member->result);
        else if (!member->asked)
            count_one(&count, LOCK_GONE);
    }
    return count;
}

struct quorum_count quorum_count_all(const struct quorum *quorum)
{
    struct quorum_count count = {0};
    for (int i = 0; i < quorum->count; i++)
        count_one(&count, quorum->members[i].result);
    return count;
}

/* --- texts --------------------------------------------------------------- */

static void add_text(struct errmsg *why, const char *before, const char *text)
{
    size_t used = strlen(why->text);
    snprintf(why->text + used, sizeof why->text - used, "%s%.200s%s", before, text,
             strlen(text) > 200 ? "..." : "");
}

static bool is_failure(enum lock_result result)
{
    return result != LOCK_OK && result != LOCK_HELD && !lock_is_past(result);
}

/* Appends "URL: why; URL: why". */
static void add_members(const struct quorum *quorum, bool (*which)(enum lock_result),
                        const char *before, struct errmsg *why)
{
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        if (!which(member->result))
            continue;
        add_text(why, before, member->why.text);
        before = "; ";
    }
}

static bool is_misconfigured(enum lock_result result)
{
    return result == LOCK_REFUSED || result == LOCK_INVALID;
}

static bool misses(enum lock_result result)
{
    return result != LOCK_OK && !is_misconfigured(result);
}

static bool is_not_ok(enum lock_result result)
{
    return result != LOCK_OK;
}

/* A problem that no retry mends is always reported; a minority that is down, or has lost
 * its keys, is what a quorum is for. The note stays the same as long as it is about the
 * same members, whatever they answer. */
void quorum_note(struct quorum *quorum, bool taken)
{
    struct quorum_count count = quorum_count_all(quorum);
    unsigned bits = 0;
    for (int i = 0; i < quorum->count; i++)
        bits |= (unsigned)is_not_ok(quorum->members[i].result) << i;
    quorum->base.note = quorum->base.warning = NULL;
    if (taken || bits != quorum->noted) {
        errmsg_set(&quorum->note, "on %d of %d servers", count.ok, quorum->count);
        add_members(quorum, taken ? misses : is_not_ok, "; ", &quorum->note);
        quorum->noted = bits;
    }
    if (taken || bits != 0)
        quorum->base.note = quorum->note.text;
    quorum->warning.text[0] = '\0';
    add_members(quorum, is_misconfigured, "", &quorum->warning);
    if (quorum->warning.text[0] != '\0')
        quorum->base.warning = quorum->warning.text;
}

bool quorum_note_unreached(struct quorum *quorum, const char *what, const char *there)
{
    struct quorum_count count = quorum_count_all(quorum);
    quorum->base.note = quorum->base.warning = NULL;
    if (count.bad + count.silent == 0)
        return false;
    errmsg_set(&quorum->note, "%s has not reached %d of %d servers; there %s", what,
               count.bad + count.silent, quorum->count, there);
    add_members(quorum, is_failure, ": ", &quorum->note);
    quorum->base.note = quorum->note.text;
    return true;
}

/* An unreleased minority only matters if other servers are down too. */
void quorum_note_left(struct quorum *quorum)
{
    int left = 0;
    if (!quorum_note_unreached(quorum, "the release", "the lock is held until its lease ends"))
        return;
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        left += is_failure(member->result) &&
                (quorum_grants(quorum, member) ||
                 (quorum_owes(quorum, member) && !deadline_passed(member->until)));
    }
    if (left >= quorum->need)
        quorum->base.warning = quorum->note.text;
}

/* --- verdicts ------------------------------------------------------------ */

enum lock_result quorum_failure(const struct quorum *quorum, struct errmsg *why)
{
    struct quorum_count count = quorum_count_all(quorum);
    errmsg_set(why, "%d of %d servers cannot be reached, and %d are needed",
               count.bad + count.silent, quorum->count, quorum->need);
    add_members(quorum, is_failure, ": ", why);
    if (quorum->count - count.bad >= quorum->need)
        return LOCK_UNAVAILABLE;
    return count.refused > 0 ? LOCK_REFUSED : count.invalid > 0 ? LOCK_INVALID : LOCK_SYSTEM;
}

enum lock_result quorum_answer(const struct quorum *quorum, bool cancelled, struct errmsg *why)
{
    if (quorum_count_all(quorum).ok >= quorum->need)
        return LOCK_OK;
    return cancelled ? LOCK_CANCELLED : quorum_failure(quorum, why);
}

bool quorum_grants(const struct quorum *quorum, const struct quorum_member *member)
{
    (void)quorum;
    return member->standing == MEMBER_GRANTS;
}

/* A lease that was released with its own token lets the command run on: so most of the
 * servers that had it until now must say so, not just one that a release has reached, now
 * or long ago, when the others lost their keys. A server that was slow to release it had it
 * to the end of the lease: if these make up a majority, it was not lost. */
static enum lock_result loss(const struct quorum *quorum, quorum_wanted *may_have, int missing,
                             struct errmsg *why)
{
    int gone = 0, foreign = 0, released = 0, ended = 0;
    const char *before = ": ";
    errmsg_set(why, "%d of %d servers do not grant it", missing, quorum->count);
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        bool had = may_have(quorum, member);
        if (member->result == LOCK_OK || (had && !lock_is_past(member->result)))
            continue;
        gone += had && member->result == LOCK_GONE;
        foreign += had && member->result == LOCK_FOREIGN;
        released += had && member->result == LOCK_RELEASED;
        ended += had && member->result == LOCK_ENDED;
        add_text(why, before, member->why.text);
        before = "; ";
    }
    if (released > gone + foreign + ended)
        return LOCK_RELEASED;
    if (quorum->count - missing + ended >= quorum->need)
        return LOCK_ENDED;
    return foreign > 0 ? LOCK_FOREIGN : LOCK_GONE;
}

/* A server that cannot be asked may still have it; one that never granted it keeps no
 * client out. */
enum lock_result quorum_verdict(const struct quorum *quorum, quorum_wanted *may_have,
                                bool cancelled, struct errmsg *why)
{
    int may = 0;
    for (int i = 0; i < quorum->count; i++) {
        const struct quorum_member *member = &quorum->members[i];
        may += member->result == LOCK_OK ||
               (may_have(quorum, member) && !lock_is_past(member->result));
    }
    return may < quorum->need ? loss(quorum, may_have, quorum->count - may, why)
                              : quorum_answer(quorum, cancelled, why);
}

static int higher_first(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return *left > *right ? -1 : *left < *right;
}

int64_t quorum_has(const struct quorum *quorum, int64_t *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, higher_first);
    return values[(count < quorum->need ? count : quorum->need) - 1];
}

struct pause quorum_paused(const struct quorum *quorum, const struct pause *const *pauses)
{
    int64_t left[QUORUM_MOST] = {0};
    for (int i = 0; i < quorum->count; i++)
        left[i] = pauses[i]->left.ns;
    int64_t least = quorum_has(quorum, left, quorum->count);
    for (int i = 0; least > 0 && i < quorum->count; i++)
        if (pauses[i]->left.ns == least)
            return *pauses[i];
    return (struct pause){.left = DURATION_ZERO};
}

struct deadline quorum_deadline(const struct quorum *quorum)
{
    int64_t since_boot[QUORUM_MOST] = {0};
    for (int i = 0; i < quorum->count; i++)
        since_boot[i] = quorum->members[i].lease.deadline.boot_ns;
    return (struct deadline){quorum_has(quorum, since_boot, quorum->count)};
}

/* --- rounds -------------------------------------------------------------- */

struct duration quorum_grace(struct deadline start, struct duration least, struct duration most)
{
    return duration_min(duration_max(deadline_gap(start, deadline_now()), least), most);
}

struct duration quorum_rounds(const struct quorum *quorum, int rounds, struct duration least)
{
    struct duration time = {rounds * duration_min(quorum->pace, DURATION_S(1)).ns};
    return duration_min(duration_max(time, least), DURATION_S(1));
}

void quorum_learn_pace(struct quorum *quorum)
{
    struct quorum_count count = quorum_count_all(quorum);
    if (count.ok + count.held >=
        quorum->need) /* otherwise it would measure the wait for servers that are down */
        quorum->pace =
            deadline_gap(quorum->start, deadline_earlier(quorum->decided, deadline_now()));
}

/* The round trips of a member that must connect again: the connection, perhaps TLS, and
 * the tracking. */
enum { CONNECTED_ROUNDS = 5 };

struct duration quorum_judge(const struct quorum *quorum)
{
    struct quorum_count count = quorum_count_round(quorum);
    if (count.ok >= quorum->need)
        return quorum_rounds(quorum, CONNECTED_ROUNDS, DURATION_MS(200));
    return count.lost > quorum->count - quorum->need ? DURATION_ZERO : QUORUM_WAITS;
}
