/* The configuration files and the environment, as settings.
 * (config.h is autoconf's.) */
#ifndef DLOCK_CONFIG_FILE_H
#define DLOCK_CONFIG_FILE_H

#include "config/settings.h"
#include "util/errmsg.h"

/* The path of the configuration file for all users. */
#define CONFIG_SYSTEM_FILE SYSCONFDIR "/dlock.conf"

/* Adds the settings of SYSCONFDIR/dlock.conf, $XDG_CONFIG_HOME/dlock/dlock.conf
 * (or ~/.config) and the DLOCK_* variables, from the weakest to the strongest;
 * of the files' [lock GLOB] sections those that match the lock's name. A
 * missing file adds nothing. --config (NULL: not given) or DLOCK_CONFIG names a
 * file that replaces both, and must exist. */
enum settings_result config_read(struct settings *settings, const char *name,
                                 const struct setting *config, struct errmsg *why);

/* The places in which this option can be set: "DLOCK_REDIS,
 * /home/a/.config/dlock/dlock.conf, /etc/dlock.conf". Returns text. */
#define CONFIG_PLACES_SIZE 1024
char *config_places(const struct settings *settings, enum option_id id,
                    char text[CONFIG_PLACES_SIZE]);

/* Calls visit for each DLOCK_* variable that is neither a setting nor one that
 * dlock sets for commands, with the settings that may be meant ("DLOCK_WAIT";
 * NULL: none is near). */
void config_unknown_variables(void (*visit)(const char *name, const char *near, void *data),
                              void *data);

#endif
