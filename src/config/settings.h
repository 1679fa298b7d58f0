/* The settings of each source for each option, before they are checked. Sources
 * are added from the weakest to the strongest, so that the last one wins when
 * they are applied in order. */
#ifndef DLOCK_CONFIG_SETTINGS_H
#define DLOCK_CONFIG_SETTINGS_H

#include "config/option_table.h"

#include <stdbool.h>
#include <stddef.h>

enum origin_kind {
    ORIGIN_DEFAULT,
    ORIGIN_FILE,
    ORIGIN_ENVIRONMENT,
    ORIGIN_HELD, /* the store of a lock that this process runs under, by DLOCK_HELD */
    ORIGIN_COMMAND_LINE
};

/* Where a setting was made. */
struct origin {
    enum origin_kind kind;
    const char *file;  /* of ORIGIN_FILE; lives as long as the settings */
    int line, section; /* the line of its section; 0: it is before all sections */
    bool behind_name;  /* of ORIGIN_COMMAND_LINE: it is between NAME and the command */
};

struct setting {
    struct setting *next;
    enum option_id id;
    struct origin origin;
    bool unset;  /* --no-OPTION: earlier settings, and those of other sources, do not count */
    char text[]; /* "" for a flag on the command line; a yes or a no otherwise */
};

struct settings {
    struct setting *first;
    char *user_file; /* path of the user's file, for origins to point to */
    bool file_named; /* user_file is that of --config, and there is no other */
    bool system_file_read, user_file_read; /* false: it does not exist */
};

enum settings_result { SETTINGS_OK, SETTINGS_BAD_USAGE, SETTINGS_BAD_CONFIG, SETTINGS_NO_MEMORY };

/* Adds one at the end. `text` (NULL for a flag) is copied. False if memory is
 * short. */
bool settings_add(struct settings *settings, enum option_id id, const char *text,
                  struct origin origin);

/* Joins the values of this option from one source, with spaces between them: the command
 * line, or a section of a file. False if memory is short. */
bool settings_join(struct settings *settings, enum option_id id);

/* For a flag, adds a no; for an option, that no earlier setting of it counts. */
bool settings_add_no(struct settings *settings, enum option_id id, struct origin origin);

/* Drops each --no-OPTION, and the settings that it cancels. */
void settings_drop_unset(struct settings *settings);

/* Reads a yes or a no. False if the text is neither. */
bool flag_parse(const char *text, bool *set);

/* Moves all of `more` behind the existing settings. */
void settings_append(struct settings *settings, struct settings *more);

void settings_free(struct settings *settings);

/* SETTINGS_BAD_USAGE or SETTINGS_BAD_CONFIG, by where the setting was made. */
enum settings_result origin_result(struct origin origin);

/* "--ttl", "DLOCK_TTL" or "/etc/dlock.conf:3: ttl". Returns text. */
char *origin_format(enum option_id id, struct origin origin, char *text, size_t size);
#define ORIGIN_TEXT_SIZE 320

/* The same; "default" if it was not set. */
char *origin_place(enum option_id id, struct origin origin, char *text, size_t size);

/* The setting that counts, the last one of the strongest source; NULL if there
 * is none. */
const struct setting *setting_in_force(const struct settings *settings, enum option_id id);

#endif
