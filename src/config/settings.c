/* The settings of each source, before they are checked. */
#include "config/config_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Wipes the text, because it may contain a login. */
static void forget(struct setting *setting)
{
    explicit_bzero(setting->text, strlen(setting->text));
    free(setting);
}

static bool is_same_source(struct origin a, struct origin b)
{
    return a.kind == b.kind && a.file == b.file && a.section == b.section;
}

/* The setting to which a new setting of this option and source is appended; NULL: none. */
static struct setting **joined(struct settings *settings, enum option_id id, struct origin origin)
{
    for (struct setting **at = &settings->first; id == OPT_REDIS && *at != NULL; at = &(*at)->next)
        if ((*at)->id == id && is_same_source((*at)->origin, origin))
            return at;
    return NULL;
}

bool settings_add(struct settings *settings, enum option_id id, const char *text,
                  struct origin origin)
{
    struct setting **at = joined(settings, id, origin);
    struct setting *old = at != NULL ? *at : NULL;
    size_t size = strlen(text) + (old != NULL ? strlen(old->text) + 1 : 0) + 1;
    struct setting *setting = malloc(sizeof *setting + size);
    if (setting == NULL)
        return false;

    if (old != NULL) {
        *setting = *old;
        snprintf(setting->text, size, "%s %s", old->text, text);
        forget(old);
        *at = setting;
        return true;
    }
    struct settings added = {.first = setting};
    *setting = (struct setting){.id = id, .origin = origin};
    memcpy(setting->text, text, size);
    settings_append(settings, &added);
    return true;
}

void settings_drop(struct settings *settings, enum option_id id)
{
    for (struct setting **at = &settings->first; *at != NULL;) {
        struct setting *setting = *at;
        if (setting->id != id) {
            at = &setting->next;
            continue;
        }
        *at = setting->next;
        forget(setting);
    }
}

void settings_append(struct settings *settings, struct settings *more)
{
    struct setting **end = &settings->first;
    while (*end != NULL)
        end = &(*end)->next;
    *end = more->first;
    more->first = NULL;
}

void settings_free(struct settings *settings)
{
    while (settings->first != NULL) {
        struct setting *next = settings->first->next;
        forget(settings->first);
        settings->first = next;
    }
    free(settings->user_file);
    settings->user_file = NULL;
}

const struct setting *setting_in_force(const struct settings *settings, enum option_id id)
{
    const struct setting *found = NULL;
    for (const struct setting *setting = settings->first; setting != NULL; setting = setting->next)
        if (setting->id == id)
            found = setting;
    return found;
}

enum settings_result origin_result(struct origin origin)
{
    return origin.kind == ORIGIN_DEFAULT || origin.kind == ORIGIN_COMMAND_LINE
               ? SETTINGS_BAD_USAGE
               : SETTINGS_BAD_CONFIG;
}

char *origin_format(enum option_id id, struct origin origin, char *text, size_t size)
{
    const char *name = option_rows[id].name;
    switch (origin.kind) {
    case ORIGIN_FILE: snprintf(text, size, "%s:%d: %s", origin.file, origin.line, name); break;
    case ORIGIN_ENVIRONMENT:
        snprintf(text, size, "DLOCK_%s", name);
        for (char *c = text; *c != '\0'; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        break;
    case ORIGIN_HELD: snprintf(text, size, "DLOCK_HELD: %s", name); break;
    case ORIGIN_DEFAULT:
    case ORIGIN_COMMAND_LINE: snprintf(text, size, "--%s", name); break;
    }
    return text;
}

char *origin_place(enum option_id id, struct origin origin, char *text, size_t size)
{
    if (origin.kind == ORIGIN_DEFAULT)
        snprintf(text, size, "default");
    else
        origin_format(id, origin, text, size);
    return text;
}
