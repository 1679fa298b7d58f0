/* Writes and reads the word that contains the settings of a held lock's store. The word is part of
 * DLOCK_HELD, the variable that tells a command which locks it runs under. */
#include "config/config_int.h"
#include "redis/url.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- writing -------------------------------------------------------------- */

/* Returns the value in a form for other processes: without passwords, and with an absolute path.
 * The caller frees the text. NULL: memory is short. */
static char *shareable(enum option_id id, const char *value)
{
    char *here = option_is_path(id) && *value != '/' ? getcwd(NULL, 0) : NULL;
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", here != NULL ? here : "", here != NULL ? "/" : "", value) < 0)
        text = NULL;
    if (text != NULL && id == OPT_REDIS)
        url_redact_passwords(text);
    free(here);
    return text;
}

static bool append(char **text, const char *name, const char *value)
{
    size_t used = strlen(*text);
    size_t size = used + strlen(name) + 3 * strlen(value) + 3;
    char *longer = realloc(*text, size);
    if (longer == NULL)
        return false;
    *text = longer;
    used += (size_t)snprintf(longer + used, size - used,
                             "%s%s=", longer[used - 1] == '?' ? "" : "&", name);
    (void)percent_encode(longer + used, size - used, value, " &=?");
    return true;
}

/* Returns the text of a setting for a store of this kind. Returns NULL if the option is not set, or
 * matters only to other kinds of store. Also returns NULL for OPT_BACKEND, because `kind` already
 * names the backend. */
static const char *text_of(enum option_id id, const struct settings *settings, const char *kind,
                           const char *lock_dir)
{
    const struct setting *setting = setting_in_force(settings, id);
    const struct setting *hash = setting_in_force(settings, OPT_HASH);
    unsigned when = strcmp(kind, "redis") == 0
                        ? ON_SERVERS | ON_TLS | ON_SENTINEL | ON_NO_PASSWORD | ON_CERT
                        : ON_LOCK_DIR | ON_LOCK_FILE;
    if (!option_in_held(id) || (option_rows[id].when & when) == 0 || id == OPT_BACKEND)
        return NULL;
    if (id == OPT_SECRET_FILE && hash != NULL && strcmp(hash->text, "hmac-sha256") != 0)
        return NULL; /* --hash overrides the secret */
    if (id == OPT_LOCK_DIR)
        return lock_dir;
    return setting != NULL ? setting->text : NULL;
}

char *held_store_format(const struct settings *settings, const char *kind, const char *lock_dir)
{
    char *text = NULL;
    if (asprintf(&text, "%s?", kind) < 0)
        return NULL;
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT && text != NULL; id++) {
        const char *value = text_of(id, settings, kind, lock_dir);
        char *shared = value != NULL ? shareable(id, value) : NULL;
        bool added =
            value == NULL || (shared != NULL && append(&text, option_rows[id].name, shared));
        free(shared);
        if (!added) {
            free(text);
            text = NULL;
        }
    }
    return text;
}

/* --- reading -------------------------------------------------------------- */

static bool has_same_words(const char *a, const char *b)
{
    static const char blanks[] = " \t\r\n\v\f";
    for (size_t length = 1; length > 0; a += length, b += length) {
        a += strspn(a, blanks);
        b += strspn(b, blanks);
        length = strcspn(a, blanks);
        if (length != strcspn(b, blanks) || memcmp(a, b, length) != 0)
            return false;
    }
    return true;
}

/* True if both texts contain the same URLs, apart from the passwords. */
static bool is_same_redis(const char *configured, const char *held)
{
    char *copy = configured != NULL ? strdup(configured) : NULL;
    if (copy == NULL)
        return false;
    url_redact_passwords(copy); /* also wipes them from memory, which free() would not do */
    bool same = has_same_words(copy, held);
    free(copy);
    return same;
}

static enum settings_result read_part(struct settings *settings, char *part, const char *configured)
{
    static const struct origin origin = {.kind = ORIGIN_HELD};
    char *value = strchr(part, '=');
    if (value == NULL)
        return SETTINGS_BAD_CONFIG;
    enum option_id id = option_by_name(part, (size_t)(value++ - part));
    if (!option_in_held(id) || !percent_decode(value, strlen(value) + 1, value, strlen(value)))
        return SETTINGS_BAD_CONFIG;
    bool same = id == OPT_REDIS && is_same_redis(configured, value);
    return settings_add(settings, id, same ? configured : value, origin) ? SETTINGS_OK
                                                                         : SETTINGS_NO_MEMORY;
}

enum settings_result held_store_read(struct settings *settings, const char *store, size_t length,
                                     const char *configured)
{
    char *copy = strndup(store, length), *rest = copy;
    enum settings_result result = copy != NULL ? SETTINGS_OK : SETTINGS_NO_MEMORY;
    for (char *part; result == SETTINGS_OK && (part = strsep(&rest, "&")) != NULL;)
        result = read_part(settings, part, configured);
    free(copy);
    return result;
}
