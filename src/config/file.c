/* Reads INI files with inih, whose reader callback does here what inih does not:
 *
 *   lines               are counted, so that an error can name one.
 *   a long line         is an error; inih would cut it in two.
 *   a NUL byte          is an error; inih would see only the part of the line before it.
 *   an indented key     loses its white space; inih would continue the last value with the line.
 *   a section           is checked at its beginning; inih reports no section without keys. */
#include "config.h"
#include "config/config_int.h"
#include "redis/url.h"
#include "util/fileutils.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct reading {
    struct settings *settings;
    struct settings sections; /* the settings of matching sections; they follow the others */
    const char *name;         /* of the lock */
    FILE *file;
    const char *path;
    bool others_can_read;
    int line, section; /* line of the section that the current line is in; 0: before all sections */
    enum settings_result result;
    struct errmsg *why;
};

static const char lock_section[] = "lock ";
static const char variable_prefix[] = "DLOCK_";

/* Returns 0, the value that take_setting() must return. */
__attribute__((format(printf, 2, 3))) static int bad_line(struct reading *reading,
                                                          const char *format, ...)
{
    struct errmsg what;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what.text, sizeof what.text, format, args);
    va_end(args);
    errmsg_set(reading->why, "%s:%d: %s", reading->path, reading->line, what.text);
    reading->result = SETTINGS_BAD_CONFIG;
    return 0;
}

/* Refuses names that inih would shorten: it ends a section's name at the first bracket, silently
 * drops the rest, and keeps only 49 characters. */
static void check_section(struct reading *reading, const char *line)
{
    enum { SECTION_MOST = 49 };
    const char *name = line + 1, *close = strchr(line, ']');
    if (close == NULL)
        return; /* inih reports that itself */

    int length = (int)(close - name);
    int kind = (int)strlen(lock_section);
    if (length <= kind || strncmp(name, lock_section, (size_t)kind) != 0)
        bad_line(reading, "[%.*s]: unknown section; [lock GLOB] is the only kind",
                 length < 100 ? length : 100, name);
    else if (strchr(close + 1, ']') != NULL)
        bad_line(reading, "the GLOB of a section cannot hold brackets");
    else if (length > SECTION_MOST)
        bad_line(reading, "the GLOB of a section cannot be longer than %d bytes",
                 SECTION_MOST - kind);
}

/* A file has a limit, because each setting is compared with all those before it. */
enum { LINES_MOST = 10000 };

static const char byte_order_mark[] = "\xEF\xBB\xBF";

/* Like fgets(3), but returns the length, which a NUL byte in the line would hide; 0: no more
 * lines. */
static size_t read_bytes(char *buffer, int size, FILE *file)
{
    size_t length = 0;
    int c = EOF;
    while (length + 1 < (size_t)size && c != '\n' && (c = getc(file)) != EOF)
        buffer[length++] = (char)c;
    buffer[length] = '\0';
    return ferror(file) ? 0 : length;
}

static char *read_line(char *buffer, int size, void *data)
{
    struct reading *reading = data;
    size_t length = reading->result == SETTINGS_OK ? read_bytes(buffer, size, reading->file) : 0;
    if (length == 0)
        return NULL;

    reading->line++;
    if (memchr(buffer, '\0', length) != NULL)
        bad_line(reading, "the line has a NUL byte, which no text has");
    else if (reading->line > LINES_MOST)
        bad_line(reading, "a file has at most %d lines", LINES_MOST);
    else if (buffer[length - 1] != '\n' && getc(reading->file) != EOF)
        bad_line(reading, "the line is longer than %d characters", size - 2);

    size_t skipped = 0;
    if (reading->line == 1 && strncmp(buffer, byte_order_mark, strlen(byte_order_mark)) == 0)
        skipped = strlen(byte_order_mark);
    skipped += strspn(buffer + skipped, " \t");
    memmove(buffer, buffer + skipped, length - skipped + 1);
    if (*buffer == '[' && reading->result == SETTINGS_OK) {
        reading->section = reading->line;
        check_section(reading, buffer);
    }
    return reading->result == SETTINGS_OK ? buffer : NULL;
}

static int unknown_key(struct reading *reading, const char *key)
{
    char near[NEAR_TEXT_SIZE];
    if (!hints_near(near, key, strlen(key), NEAR_KEYS))
        return bad_line(reading,
                        "%.100s: unknown key; the long options of dlock --help are the keys", key);
    return bad_line(reading, "%.100s: unknown key; did you mean %s?", key, near);
}

static int take_setting(void *data, const char *section, const char *key, const char *value)
{
    struct reading *reading = data;
    const char *glob =
        *section != '\0' ? section + strlen(lock_section) : NULL; /* check_section() has seen it */
    if (reading->result != SETTINGS_OK)
        return 0;
    enum option_id id = option_by_name(key, strlen(key));
    if (!option_configurable(id))
        return unknown_key(reading, key);
    if (id == OPT_REDIS && url_redact_has_password(value) && reading->others_can_read)
        return bad_line(
            reading,
            "%.100s: it holds a password, and others can read this file; use chmod o=", key);
    if (glob != NULL && fnmatch(glob, reading->name, 0) != 0)
        return 1;
    struct origin origin = {.kind = ORIGIN_FILE,
                            .file = reading->path,
                            .line = reading->line,
                            .section = reading->section};
    if (!settings_add(glob != NULL ? &reading->sections : reading->settings, id, value, origin))
        reading->result = SETTINGS_NO_MEMORY;
    return reading->result == SETTINGS_OK;
}

static enum settings_result parse(struct reading *reading)
{
    int line = ini_parse_stream(read_line, reading, take_setting, reading);
    if (reading->result == SETTINGS_OK && line != 0) {
        reading->line = line;
        bad_line(reading, "this is neither KEY = VALUE, nor [lock GLOB], nor a comment");
    }
    if (reading->result == SETTINGS_OK && ferror(reading->file)) {
        errmsg_set(reading->why, "%s: cannot read it: %s", reading->path, strerror(errno));
        reading->result = SETTINGS_BAD_CONFIG;
    }
    settings_append(reading->settings, &reading->sections);
    return reading->result;
}

/* The directory of the user's file: `path` is the value of `variable`, `below` the path below
 * it. */
struct base {
    const char *variable, *path, *below;
};

/* The XDG Base Directory specification: a relative path counts as unset. */
static struct base user_base(void)
{
    struct base base = {"XDG_CONFIG_HOME", getenv("XDG_CONFIG_HOME"), ""};
    if (base.path == NULL || *base.path != '/')
        base = (struct base){"HOME", getenv("HOME"), "/.config"};
    return base;
}

/* sudo(8), su(1) and runuser(1) may leave HOME set to another user's: then HOME must be
 * corrected, not that user's file. */
static void cannot_read(const struct settings *settings, const char *path, int error,
                        struct errmsg *why)
{
    struct base base = user_base();
    struct stat status;
    char name[USER_NAME_SIZE];
    bool of_another = path == settings->user_file && !settings->file_named && error == EACCES &&
                      stat(base.path, &status) == 0 && status.st_uid != geteuid();
    if (of_another)
        errmsg_set(
            why, "%.300s: cannot read it: %s; %s is that of user %s: set HOME or XDG_CONFIG_HOME",
            path, strerror(error), base.variable, user_name(status.st_uid, name, sizeof name));
    else
        errmsg_set(why, "%s: cannot read it: %s", path, strerror(error));
}

/* Returns why the file must not be read; NULL: it may be. Everyone who can write to the file
 * decides where locks are, and where reports go. Our own group may write, because on many hosts
 * each user has a group without other members. */
static const char *distrusted(const struct settings *settings, const char *path,
                              const struct stat *status, char *text, size_t size)
{
    char name[USER_NAME_SIZE];
    if (!S_ISREG(status->st_mode))
        return "it is not a regular file";
    if ((status->st_mode & S_IWOTH) != 0)
        return "others can write to it; use chmod o-w";
    if ((status->st_mode & S_IWGRP) != 0 && status->st_gid != 0 && status->st_gid != getegid())
        return "its group can write to it; use chmod g-w";
    if (path != settings->user_file || status->st_uid == geteuid() || status->st_uid == 0)
        return NULL;
    snprintf(text, size, "it belongs to user %s%s", user_name(status->st_uid, name, sizeof name),
             settings->file_named ? "; it must be yours or root's"
                                  : ": set HOME or XDG_CONFIG_HOME");
    return text;
}

static enum settings_result read_file(struct settings *settings, const char *name, const char *path,
                                      bool *is_there, struct errmsg *why)
{
    struct stat status;
    int fd = file_open(AT_FDCWD, path, O_RDONLY, &status);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && !settings->file_named)
        return SETTINGS_OK;
    if (file == NULL) {
        bool scarce = errno == ENOMEM || errno == EMFILE || errno == ENFILE;
        cannot_read(settings, path, errno, why);
        fd_close(&fd);
        return scarce ? SETTINGS_NO_MEMORY : SETTINGS_BAD_CONFIG;
    }
    char text[USER_NAME_SIZE + 80];
    const char *reason = distrusted(settings, path, &status, text, sizeof text);
    if (reason != NULL) {
        errmsg_set(why, "%s: %s", path, reason);
        fclose(file);
        return SETTINGS_BAD_CONFIG;
    }
    *is_there = true;
    struct reading reading = {
        .settings = settings,
        .name = name,
        .file = file,
        .path = path,
        .others_can_read = (status.st_mode & S_IROTH) != 0,
        .why = why,
    };
    enum settings_result result = parse(&reading);
    fclose(file);
    return result;
}

static bool user_path(char **path)
{
    struct base base = user_base();
    if (base.path == NULL || *base.path != '/')
        return true;
    size_t size = strlen(base.path) + strlen(base.below) + sizeof "/dlock/dlock.conf";
    *path = malloc(size);
    if (*path != NULL)
        snprintf(*path, size, "%s%s/dlock/dlock.conf", base.path, base.below);
    return *path != NULL;
}

/* The option of the variable "DLOCK_NAME=..."; OPT_NONE if there is none. */
static enum option_id option_of_variable(const char *variable)
{
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++) {
        const char *name = option_rows[id].name, *at = variable + strlen(variable_prefix);
        size_t i = 0;
        while (name[i] != '\0' && at[i] == (name[i] == '-' ? '_' : toupper(name[i])))
            i++;
        if (name[i] == '\0' && at[i] == '=' && option_configurable(id))
            return id;
    }
    return OPT_NONE;
}

/* Adds the DLOCK_ variables in the order of the options, so that if two exclude each other, the
 * same one always counts. An empty variable counts as unset, because shells and units often cannot
 * unset one. False if memory is short. */
static bool read_variables(struct settings *settings)
{
    const char *values[OPTION_COUNT] = {NULL};
    for (char **variable = environ; *variable != NULL; variable++) {
        if (strncmp(*variable, variable_prefix, strlen(variable_prefix)) != 0)
            continue;
        enum option_id id = option_of_variable(*variable);
        if (id != OPT_NONE && values[id] == NULL)
            values[id] = strchr(*variable, '=') + 1;
    }
    for (enum option_id id = OPT_NONE + 1; id < OPTION_COUNT; id++)
        if (values[id] != NULL && *values[id] != '\0' &&
            !settings_add(settings, id, values[id], (struct origin){.kind = ORIGIN_ENVIRONMENT}))
            return false;
    return true;
}

static enum settings_result read_named_file(struct settings *settings, const char *name,
                                            const char *path, struct errmsg *why)
{
    settings->file_named = true;
    settings->user_file = strdup(path);
    if (settings->user_file == NULL)
        return SETTINGS_NO_MEMORY;
    return read_file(settings, name, settings->user_file, &settings->user_file_read, why);
}

static enum settings_result read_both_files(struct settings *settings, const char *name,
                                            struct errmsg *why)
{
    static const char system_path[] = CONFIG_SYSTEM_FILE;
    enum settings_result result =
        read_file(settings, name, system_path, &settings->system_file_read, why);
    if (result == SETTINGS_OK && !user_path(&settings->user_file))
        result = SETTINGS_NO_MEMORY;
    if (result == SETTINGS_OK && settings->user_file != NULL)
        result = read_file(settings, name, settings->user_file, &settings->user_file_read, why);
    return result;
}

enum settings_result config_read(struct settings *settings, const char *name,
                                 const struct setting *config, struct errmsg *why)
{
    const char *path = config != NULL ? config->text : getenv("DLOCK_CONFIG");
    if (config != NULL &&
        *path == '\0') { /* perhaps a script's unset variable: it would use other locks */
        errmsg_set(why, "--config: '': the path is empty");
        return SETTINGS_BAD_USAGE;
    }
    bool is_named = path != NULL && *path != '\0';
    enum settings_result result = is_named ? read_named_file(settings, name, path, why)
                                           : read_both_files(settings, name, why);
    if (result == SETTINGS_OK && !read_variables(settings))
        result = SETTINGS_NO_MEMORY;
    if (result == SETTINGS_NO_MEMORY)
        errmsg_set(why, "out of memory");
    return result;
}

char *config_places(const struct settings *settings, enum option_id id,
                    char text[CONFIG_PLACES_SIZE])
{
    char variable[ORIGIN_TEXT_SIZE];
    const char *user_file = settings->user_file;
    snprintf(
        text, CONFIG_PLACES_SIZE, "%s%s%.400s%s",
        origin_format(id, (struct origin){.kind = ORIGIN_ENVIRONMENT}, variable, sizeof variable),
        user_file != NULL ? ", " : "", user_file != NULL ? user_file : "",
        settings->file_named ? "" : ", " CONFIG_SYSTEM_FILE);
    return text;
}

/* --- variables that are not settings --------------------------------------- */

/* Known variables that are not settings: DLOCK_CONFIG, the variables that dlock sets for commands,
 * and those that Kubernetes sets for a Service named, for example, dlock or dlock-redis. */
static const char *const not_settings[] = {
    "DLOCK_NAME",         "DLOCK_FENCE",
    "DLOCK_EXPIRES_AT",   "DLOCK_HELD",
    "DLOCK_SLOT",         "DLOCK_CONFIG",
    "DLOCK_LOCK_KEY",     "DLOCK_LOCK_OWNER",
    "DLOCK_LOCK_TTL",     "DLOCK_LOCK_BACKEND",
    "DLOCK*_SERVICE_*",   "DLOCK*_PORT",
    "DLOCK*_PORT_[0-9]*", NULL,
};

static bool is_known_otherwise(const char *name)
{
    for (const char *const *known = not_settings; *known != NULL; known++)
        if (fnmatch(*known, name, 0) == 0)
            return true;
    return false;
}

void config_unknown_variables(void (*visit)(const char *name, const char *near, void *data),
                              void *data)
{
    for (char **variable = environ; *variable != NULL; variable++) {
        char name[128], near[NEAR_TEXT_SIZE];
        size_t length = strcspn(*variable, "="), prefix = strlen(variable_prefix);
        if (strncmp(*variable, variable_prefix, prefix) != 0 || length >= sizeof name)
            continue;
        memcpy(name, *variable, length);
        name[length] = '\0';
        if (is_known_otherwise(name) || option_of_variable(*variable) != OPT_NONE)
            continue;
        visit(name, hints_near(near, name + prefix, length - prefix, NEAR_VARIABLES) ? near : NULL,
              data);
    }
}
