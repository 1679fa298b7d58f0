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

/* All names: those of the rows, then the aliases. `index` is below OPTION_NAMES. */
enum { OPTION_ALIASES = 5, OPTION_NAMES = OPTION_COUNT - 1 + OPTION_ALIASES };
struct option_name option_name(int index);

/* The value of --attach without one. */
#define ATTACH_TO_PARENT "parent"

/* Reads a yes or a no. False if the text is neither. */
bool flag_parse(const char *text, bool *set);

/* Reads the option's value, which must live as long as the options. False with *why set. */
bool option_apply(struct options *options, enum option_id id, const char *text, struct errmsg *why);

void options_defaults(struct options *options);

/* --- settings.c ------------------------------------------------------------ */

/* Adds one at the end. `text` is copied. More URLs of Redis from the same source join those
 * before them: the command line, or a section of a file. False if memory is short. */
bool settings_add(struct settings *settings, enum option_id id, const char *text,
                  struct origin origin);

/* Removes all settings of this option. */
void settings_drop(struct settings *settings, enum option_id id);

/* Moves all of `more` after the existing settings. */
void settings_append(struct settings *settings, struct settings *more);

void settings_free(struct settings *settings);

/* --- argv.c ---------------------------------------------------------------- */

enum { WORDS_WRONG = -1, WORDS_NO_MEMORY = -2 };

/* Adds the options from argv[1] on to the settings, up to the first word that is none, and
 * blots out the logins of URLs in argv; argv[0] is NAME if they are those behind it. Returns
 * the index of that word (argc if there is none), or WORDS_WRONG or WORDS_NO_MEMORY with *why
 * set. */
int argv_read(struct options *options, int argc, char **argv, bool behind_name, struct errmsg *why);

/* --- file.c ---------------------------------------------------------------- */

/* Adds the settings of SYSCONFDIR/dlock.conf, $XDG_CONFIG_HOME/dlock/dlock.conf
 * (or ~/.config) and the DLOCK_* variables, from the weakest to the strongest;
 * of the files' [lock GLOB] sections those that match the lock's name. A
 * missing file adds nothing. --config (NULL: not given) or DLOCK_CONFIG names a
 * file that replaces both, and must exist. */
enum settings_result config_read(struct settings *settings, const char *name,
                                 const struct setting *config, struct errmsg *why);

/* --- validate.c ------------------------------------------------------------ */

/* Checks that the words of the command line are what the action needs: a lock's
 * name, a command, neither. */
enum settings_result validate_words(const struct options *options, struct errmsg *why);

/* Checks that the options agree with each other and with the action; fills in what
 * follows from others. Called once all are read. */
enum settings_result validate_options(struct options *options, struct errmsg *why);

#endif
