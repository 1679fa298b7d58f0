#include "config/near_options.h"

#include "config/settings.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NEAR_SIZE = 32, NEAR_MOST = 3, PREFIX_LEAST = 2 };

struct near {
    enum near_kind kind;
    char word[NEAR_SIZE]; /* as it would be in the table */
    const char *names[NEAR_MOST];
    int ids[NEAR_MOST];
    int count, distance;
};

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* How many letters have to be put in, left out, changed, or swapped with the next
 * one to make b of a. F. J. Damerau, "A technique for computer detection and
 * correction of spelling errors", CACM 7 (1964); no letter is changed twice. */
static int distance(const char *a, const char *b)
{
    int rows[3][NEAR_SIZE], *before = rows[0], *last = rows[1], *row = rows[2];
    int length = (int)strlen(b);
    for (int j = 0; j <= length; j++)
        before[j] = last[j] = j;
    for (int i = 1; a[i - 1] != '\0'; i++) {
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[length];
}

/* An abbreviation is as near as can be; then one letter in four may differ; then a word may stand behind: redis-url. */
static int option_distance(const char *word, const char *name)
{
    size_t length = strlen(word);
    if (length >= PREFIX_LEAST && strncmp(word, name, length) == 0)
        return 0;
    int found = strlen(name) < NEAR_SIZE ? distance(word, name) : NEAR_SIZE;
    if (found <= ((int)length + 2) / 4)
        return found;
    return strncmp(word, name, strlen(name)) == 0 && word[strlen(name)] == '-' ? NEAR_SIZE - 1 : NEAR_SIZE;
}

static bool note_near(const struct poptOption *option, const void *data)
{
    struct near *near = (struct near *)(uintptr_t)data;
    int found = option_distance(near->word, option->longName);
    if (found >= NEAR_SIZE || found > near->distance || option->val == OPT_ATTACH_PID)
        return false;
    if (near->kind != NEAR_ALL && !option_configurable((enum option_id)option->val))
        return false;
    if (found < near->distance)
        near->count = 0;
    near->distance = found;
    for (int i = 0; i < least(near->count, NEAR_MOST); i++)
        if (near->ids[i] == option->val)
            return false; /* an alias of it */
    if (near->count < NEAR_MOST) {
        near->names[near->count] = option->longName;
        near->ids[near->count] = option->val;
    }
    near->count++;
    return false;
}

/* Words that begin too many options, or are near too many, are near none. */
static bool find_near(const char *name, size_t length, struct near *near)
{
    near->distance = NEAR_SIZE - 1;
    if (length >= NEAR_SIZE)
        return false;
    for (size_t i = 0; i < length; i++)
        near->word[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    (void)option_find(note_near, near);
    return near->count > 0 && near->count <= NEAR_MOST;
}

bool near_options(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind)
{
    struct near near = {.kind = kind};
    if (!find_near(name, length, &near))
        return false;
    for (int i = 0, used = 0; i < near.count; i++) {
        char variable[ORIGIN_TEXT_SIZE];
        const char *shown = near.names[i];
        if (kind == NEAR_VARIABLES) /* aliases have none */
            shown = origin_format((enum option_id)near.ids[i], (struct origin){.kind = ORIGIN_ENVIRONMENT}, variable, sizeof variable);
        used += snprintf(text + used, (size_t)(NEAR_TEXT_SIZE - used), "%s%s%s",
                         i == 0 ? "" : i + 1 < near.count ? ", " : " or ", kind == NEAR_ALL ? "--" : "", shown);
    }
    return true;
}
