#include "config/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct setting **settings_end_of(struct settings *settings)
{
    struct setting **end = &settings->first;
    while (*end != NULL)
        end = &(*end)->next;
    return end;
}

bool settings_add(struct settings *settings, enum option_id id, const char *text,
                  struct origin origin)
{
    size_t size = strlen(text != NULL ? text : "") + 1;
    struct setting *setting = malloc(sizeof *setting + size);
    if (setting == NULL)
        return false;
    *setting = (struct setting){.id = id, .origin = origin};
    memcpy(setting->text, text != NULL ? text : "", size);
    *settings_end_of(settings) = setting;
    return true;
}

/* The values may contain logins. */
static void settings_forget(struct setting *setting)
{
    explicit_bzero(setting->text, strlen(setting->text));
    free(setting);
}

/* Appends `more` to the string at *at. */
static bool add_behind(struct setting **at, const char *more)
{
    struct setting *first = *at;
    size_t size = strlen(first->text) + strlen(more) + 2;
    struct setting *both = malloc(sizeof *both + size);
    if (both == NULL)
        return false;
    *both = *first;
    snprintf(both->text, size, "%s %s", first->text, more);
    *at = both;
    settings_forget(first);
    return true;
}

static bool is_same_source(struct origin a, struct origin b)
{
    return a.kind == b.kind && a.file == b.file && a.section == b.section;
}

bool settings_join(struct settings *settings, enum option_id id)
{
    struct setting **joined = NULL;
    for (struct setting **at = &settings->first; *at != NULL;) {
        struct setting *more = *at;
        if (more->id != id || joined == NULL || !is_same_source((*joined)->origin, more->origin)) {
            joined = more->id == id ? at : joined;
            at = &more->next;
            continue;
        }
        bool adjacent = at == &(*joined)->next;
        if (!add_behind(joined, more->text))
            return false;
        at = adjacent ? &(*joined)->next : at;
        *at = more->next;
        settings_forget(more);
    }
    return true;
}

bool settings_add_no(struct settings *settings, enum option_id id, struct origin origin)
{
    bool flag = !option_has_value(option_by_id(id));
    struct setting **end = settings_end_of(settings);
    if (!settings_add(settings, id, flag ? "no" : "", origin))
        return false;
    (*end)->unset = !flag;
    return true;
}

static bool is_unset_later(const struct setting *setting)
{
    for (const struct setting *later = setting->next; later != NULL; later = later->next)
        if (later->id == setting->id && later->unset)
            return true;
    return false;
}

void settings_drop_unset(struct settings *settings)
{
    for (struct setting **at = &settings->first; *at != NULL;) {
        struct setting *setting = *at;
        if (!setting->unset && !is_unset_later(setting)) {
            at = &setting->next;
            continue;
        }
        *at = setting->next;
        settings_forget(setting);
    }
}

bool flag_parse(const char *text, bool *set)
{
    static const struct {
        const char *word;
        bool set;
    } words[] = {{"yes", true}, {"true", true},   {"on", true},   {"1", true},
                 {"no", false}, {"false", false}, {"off", false}, {"0", false}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].word, text) == 0) {
            *set = words[i].set;
            return true;
        }
    }
    return false;
}

void settings_append(struct settings *settings, struct settings *more)
{
    *settings_end_of(settings) = more->first;
    more->first = NULL;
}

void settings_free(struct settings *settings)
{
    while (settings->first != NULL) {
        struct setting *next = settings->first->next;
        settings_forget(settings->first);
        settings->first = next;
    }
    free(settings->user_file);
    settings->user_file = NULL;
}

enum settings_result origin_result(struct origin origin)
{
    return origin.kind == ORIGIN_DEFAULT || origin.kind == ORIGIN_COMMAND_LINE
               ? SETTINGS_BAD_USAGE
               : SETTINGS_BAD_CONFIG;
}

char *origin_format(enum option_id id, struct origin origin, char *text, size_t size)
{
    const char *name = option_by_id(id)->longName;
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

const struct setting *setting_in_force(const struct settings *settings, enum option_id id)
{
    const struct setting *found = NULL;
    for (const struct setting *setting = settings->first; setting != NULL; setting = setting->next)
        if (setting->id == id)
            found = setting;
    return found;
}
