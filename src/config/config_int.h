/* The functions that the files of config/ share. */
#ifndef DLOCK_CONFIG_INT_H
#define DLOCK_CONFIG_INT_H

#include "config/options.h"

/* --- values.c -------------------------------------------------------------- */

struct option_name {
    const char *text;
    char letter; /* NUL: none */
    enum option_id id;
};

/* The names of all options: first those in option_rows.h, then the aliases. `index` is below
 * OPTION_NAMES. */
enum { OPTION_ALIASES = 5, OPTION_NAMES = OPTION_COUNT - 1 + OPTION_ALIASES };
struct option_name option_name(int index);

/* Parses yes, no or a synonym such as "on". False if the text is none of these. */
bool flag_parse(const char *text, bool *set);

/* Sets the option to the value in `text`, which must live as long as the options. False with *why
 * set if the value is not valid. */
bool option_apply(struct options *options, enum option_id id, const char *text, struct errmsg *why);

/* True if the option's value is the path of a file or a directory. False for --report, although its
 * value is a path too. */
bool option_is_path(enum option_id id);

/* True if DLOCK_HELD, which lists the locks that dlock runs under, can contain this option
 * (config/options.h). For such a lock, files and other variables cannot set the option: if
 * DLOCK_HELD omits the option, its default applies. */
bool option_in_held(enum option_id id);

void options_defaults(struct options *options);

/* Adds a setting at the end, with a copy of `text`. A Redis URL is appended to the URLs from the
 * same source (the command line, or a section of a file). False if memory is short. */
bool settings_add(struct settings *settings, enum option_id id, const char *text,
                  struct origin origin);

/* Removes all settings of this option. */
void settings_drop(struct settings *settings, enum option_id id);

/* Moves all settings of `more` to the end of `settings`. */
void settings_append(struct settings *settings, struct settings *more);

/* --- held_store.c ----------------------------------------------------------- */

/* Adds the settings that the first word of a line in DLOCK_HELD contains. `store` is the part of
 * that word after the "?" (`length` bytes). The word has no passwords. So if its Redis URLs differ
 * from those in `configured` (NULL: none) only in the passwords, adds `configured` instead. Returns
 * SETTINGS_BAD_CONFIG if the word is not valid. */
enum settings_result held_store_read(struct settings *settings, const char *store, size_t length,
                                     const char *configured);

/* --- hints.c: used if a command line is refused, or is about to be refused ----- */

/* True, with *why set, if the word is a long name with one dash, which popt would split into
 * letters ("-tree" is -t ree to popt). */
bool hints_one_dash(const char *word, struct errmsg *why);

/* Sets *why for an unknown option, and names the options that resemble it. Does not show the value
 * in `word`, which may be a URL with a password. */
void hints_unknown_option(const char *word, struct errmsg *why);

/* Sets *why for a command line without a command, and guesses what the user meant. */
void hints_no_command(const struct options *options, struct errmsg *why);

/* Sets *why for a command line that has both --lock-file and, in the place of NAME, `word`. If the
 * command line should run a command (`runs`), `word` may be that command. */
void hints_no_name(const char *word, bool runs, struct errmsg *why);

/* Adds to *why that the word in the place of NAME may be the command. Adds nothing if that word is
 * not a program. */
void hints_name_is_command(const char *name, struct errmsg *why);

/* The size of hints_near()'s text: room for three of the longest names. */
enum { NEAR_TEXT_SIZE = 128 };

enum near_kind {
    NEAR_ALL,       /* all options, with their dashes */
    NEAR_KEYS,      /* the keys of a configuration file */
    NEAR_VARIABLES, /* the DLOCK_* variables; pass the name without "DLOCK_" */
};

/* Writes the options that resemble the first `length` bytes of name, as "A, B or C". False if there
 * are none, or too many to be of help. */
bool hints_near(char text[NEAR_TEXT_SIZE], const char *name, size_t length, enum near_kind kind);

/* --- argv.c ---------------------------------------------------------------- */

enum { WORDS_WRONG = -1, WORDS_NO_MEMORY = -2 };

/* Adds to options->settings the options that begin at argv[1], up to the first word that is not an
 * option. Overwrites the logins of URLs in argv. If the options follow NAME (behind_name), argv[0]
 * is NAME. Returns the index of the first word that is not an option (argc if there is none), or
 * WORDS_WRONG or WORDS_NO_MEMORY with *why set. */
int argv_read(struct options *options, int argc, char **argv, bool behind_name, struct errmsg *why);

/* --- file.c ---------------------------------------------------------------- */

/* Adds the settings from the weakest source to the strongest: CONFIG_SYSTEM_FILE; the files that
 * match CONFIG_SYSTEM_GLOB, in the order of their names; dlock/dlock.conf in $XDG_CONFIG_HOME (by
 * default ~/.config); the DLOCK_* variables. Only the [lock GLOB] sections that match the lock's
 * name count. A missing file adds nothing. But a file that --config (`config`, NULL: not given) or
 * DLOCK_CONFIG names must exist; dlock reads it instead of all other files. */
enum settings_result config_read(struct settings *settings, const char *name,
                                 const struct setting *config, struct errmsg *why);

/* --- unused.c -------------------------------------------------------------- */

/* True if the action uses the option. */
bool option_used_by(enum option_id id, enum option_action action);

/* Refuses an option on the command line that the action does not use, because the user expects an
 * effect. The same option in a file or a variable is meant for other actions, and is accepted. */
enum settings_result unused_by_action(const struct options *options, struct errmsg *why);

/* Refuses options on the command line that have no effect on the lock. Refuses such an option in a
 * file or a variable as well if its row contains MUST (config/options.h). */
enum settings_result unused_by_lock(const struct options *options, struct errmsg *why);

/* --- validate.c ------------------------------------------------------------ */

/* Checks that the command line has the words that the action needs: a lock's name, a command, or
 * neither. */
enum settings_result validate_words(const struct options *options, struct errmsg *why);

/* Checks that the options agree with each other and with the action, and derives some options from
 * others. Called after all sources have been read. */
enum settings_result validate_options(struct options *options, struct errmsg *why);

#endif
