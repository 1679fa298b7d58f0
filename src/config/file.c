/* Reads the configuration files and the variables. Each line of a file is KEY = VALUE, the beginning
 * of a section, [lock GLOB], or a comment (dlock.conf(5)). */
#include "config.h"
#include "config/config_int.h"
#include "redis/url.h"
#include "util/fileutils.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A limit, because each setting is compared with all those before it. */
enum { LINES_MOST = 10000, LINE_MOST = 65536 };

static const char lock_section[] = "[lock ";
static const char variable_prefix[] = "DLOCK_";
static const char byte_order_mark[] = "\xEF\xBB\xBF";

struct reading {
    struct settings *settings;
    struct settings sections; /* the settings of matching sections; they follow the others */
    bool skips;               /* the current section does not match */
    const char *name;         /* of the lock */
    const char *path;
    bool others_can_read;
    int line, section; /* line of the section that the current line is in; 0: before all sections */
    struct errmsg *why;
};

__attribute__((format(printf, 2, 3))) static enum settings_result bad_line(struct reading *reading,
                                                                           const char *format, ...)
{
    struct errmsg what;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(what.text, sizeof what.text, format, args);
    va_end(args);
    errmsg_set(reading->why, "%s:%d: %s", reading->path, reading->line, what.text);
    return SETTINGS_BAD_CONFIG;
}

static enum settings_result take_setting(struct reading *reading, const char *key,
                                         const char *value)
{
    char near[NEAR_TEXT_SIZE];
    enum option_id id = option_by_name(key, strlen(key));
    struct origin origin = {.kind = ORIGIN_FILE,
                            .file = reading->path,
                            .line = reading->line,
                            .section = reading->section};

    if (!option_configurable(id) && hints_near(near, key, strlen(key), NEAR_KEYS))
        return bad_line(reading, "%.100s: unknown key; did you mean %s?", key, near);
    if (!option_configurable(id))
        return bad_line(reading,
                        "%.100s: unknown key; the long options of dlock --help are the keys", key);
    if (id == OPT_REDIS && url_redact_has_password(value) && reading->others_can_read)
        return bad_line(
            reading,
            "%.100s: it holds a password, and others can read this file; use chmod o=", key);
    if (reading->skips)
        return SETTINGS_OK;
    return settings_add(reading->section != 0 ? &reading->sections : reading->settings, id, value,
                        origin)
               ? SETTINGS_OK
               : SETTINGS_NO_MEMORY;
}

/* The line ends with ']'; GLOB may have brackets too. */
static enum settings_result begin_section(struct reading *reading, char *line)
{
    size_t begin = strlen(lock_section), end = strlen(line) - 1;

    if (strncmp(line, lock_section, begin) != 0 || end == begin)
        return bad_line(reading, "%.100s: unknown section; [lock GLOB] is the only kind", line);
    line[end] = '\0';
    reading->section = reading->line;
    reading->skips = fnmatch(line + begin, reading->name, 0) != 0;
    return SETTINGS_OK;
}

/* Cuts off the white space at both ends. */
static char *trimmed(char *text)
{
    size_t length;

    while (isspace((unsigned char)*text))
        text++;
    length = strlen(text);
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    text[length] = '\0';
    return text;
}

/* A ';' after white space begins a comment. */
static void cut_comment(char *line)
{
    char *c = line;
    while (*c != '\0' && (*c != ';' || (c > line && !isspace((unsigned char)c[-1]))))
        c++;
    *c = '\0';
}

static enum settings_result take_line(struct reading *reading, char *line)
{
    cut_comment(line);
    line = trimmed(line);
    if (*line == '\0' || *line == '#')
        return SETTINGS_OK;
    if (*line == '[' && line[strlen(line) - 1] == ']')
        return begin_section(reading, line);

    char *end = *line != '[' ? strpbrk(line, "=:") : NULL;
    if (end == NULL)
        return bad_line(reading, "this is neither KEY = VALUE, nor [lock GLOB], nor a comment");
    *end = '\0';
    return take_setting(reading, trimmed(line), trimmed(end + 1));
}

/* Like fgets(3), but returns the length, which a NUL byte in the line would hide; 0: no more
 * lines. */
static size_t read_line(char *buffer, size_t size, FILE *file)
{
    size_t length = 0;
    int c = EOF;
    while (length + 1 < size && c != '\n' && (c = getc(file)) != EOF)
        buffer[length++] = (char)c;
    buffer[length] = '\0';
    return ferror(file) ? 0 : length;
}

static enum settings_result parse(struct reading *reading, FILE *file)
{
    char *line = malloc(LINE_MOST + 2);
    enum settings_result result = line != NULL ? SETTINGS_OK : SETTINGS_NO_MEMORY;

    while (result == SETTINGS_OK) {
        size_t length = read_line(line, LINE_MOST + 2, file);
        if (length == 0)
            break;
        reading->line++;
        size_t mark = strlen(byte_order_mark);
        bool is_marked = reading->line == 1 && strncmp(line, byte_order_mark, mark) == 0;
        if (memchr(line, '\0', length) != NULL)
            result = bad_line(reading, "the line has a NUL byte, which no text has");
        else if (reading->line > LINES_MOST)
            result = bad_line(reading, "a file has at most %d lines", LINES_MOST);
        else if (length > LINE_MOST && line[length - 1] != '\n')
            result = bad_line(reading, "the line is longer than %d bytes", LINE_MOST);
        else
            result = take_line(reading, is_marked ? line + mark : line);
    }
    if (result == SETTINGS_OK && ferror(file)) {
        errmsg_set(reading->why, "%s: cannot read it: %s", reading->path, strerror(errno));
        result = SETTINGS_BAD_CONFIG;
    }
    free(line);
    settings_append(reading->settings, &reading->sections);
    return result;
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
        .path = path,
        .others_can_read = (status.st_mode & S_IROTH) != 0,
        .why = why,
    };
    enum settings_result result = parse(&reading, file);
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
