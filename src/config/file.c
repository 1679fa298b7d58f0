/* Reads the configuration files and the DLOCK_* variables. Each line of a file is a setting (KEY =
 * VALUE), the beginning of a section ([lock GLOB]) or a comment (dlock.conf(5)). */
#include "config.h"
#include "config/config_int.h"
#include "redis/url.h"
#include "util/fileutils.h"
#include "util/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The limits of a file. The number of lines is limited because dlock walks over all earlier
 * settings to add one. */
enum { LINES_MOST = 10000, LINE_MOST = 65536 };

static const char lock_section[] = "[lock ";
static const char variable_prefix[] = "DLOCK_";
static const char byte_order_mark[] = "\xEF\xBB\xBF";

struct reading {
    struct settings *settings;
    struct settings sections; /* of matching sections; added after all others */
    bool skips;               /* the current section does not match the name */
    const char *name;         /* the lock's name */
    const char *path;
    bool others_can_read;
    int line, section; /* the current line, and the first line of its section (0: none) */
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
                        "%.100s: unknown key; the keys are the long options in dlock --help", key);
    if (id == OPT_REDIS && url_redact_has_password(value) && reading->others_can_read)
        return bad_line(
            reading,
            "%.100s: the value has a password, but other users can read this file; use chmod o=",
            key);
    if (reading->skips)
        return SETTINGS_OK;
    return settings_add(reading->section != 0 ? &reading->sections : reading->settings, id, value,
                        origin)
               ? SETTINGS_OK
               : SETTINGS_NO_MEMORY;
}

/* Handles a line that ends with ']'. GLOB may contain brackets, so only the last bracket ends
 * GLOB. */
static enum settings_result begin_section(struct reading *reading, char *line)
{
    size_t begin = strlen(lock_section), end = strlen(line) - 1;

    if (strncmp(line, lock_section, begin) != 0 || end == begin)
        return bad_line(reading, "%.100s: unknown section; only [lock GLOB] is allowed", line);
    line[end] = '\0';
    reading->section = reading->line;
    reading->skips = fnmatch(line + begin, reading->name, 0) != 0;
    return SETTINGS_OK;
}

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

/* Cuts off a comment, which begins with a ';' after white space or at the beginning of the line. */
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
        return bad_line(reading, "expected KEY = VALUE, [lock GLOB] or a comment");
    *end = '\0';
    return take_setting(reading, trimmed(line), trimmed(end + 1));
}

/* Like fgets(3), but returns the line's length, because the line may contain NUL bytes. Returns 0
 * if there are no more lines. */
static size_t read_line(char *buffer, size_t size, FILE *file)
{
    size_t length = 0;
    int c = EOF;
    while (length + 1 < size && c != '\n' && (c = getc(file)) != EOF)
        buffer[length++] = (char)c;
    buffer[length] = '\0';
    return ferror(file) ? 0 : length;
}

static enum settings_result parse(struct reading *reading, const char *path, bool others_can_read,
                                  FILE *file)
{
    reading->path = path;
    reading->others_can_read = others_can_read;
    reading->line = reading->section = 0;
    reading->skips = false;

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
            result = bad_line(reading, "the line contains a NUL byte");
        else if (reading->line > LINES_MOST)
            result = bad_line(reading, "too many lines; a file can have at most %d", LINES_MOST);
        else if (length > LINE_MOST && line[length - 1] != '\n')
            result = bad_line(reading, "the line is longer than %d bytes", LINE_MOST);
        else
            result = take_line(reading, is_marked ? line + mark : line);
    }
    if (result == SETTINGS_OK && ferror(file)) {
        errmsg_set(reading->why, "cannot read %s: %s", reading->path, strerror(errno));
        result = SETTINGS_BAD_CONFIG;
    }
    free(line);
    return result;
}

/* The user's configuration file is at `below` in the directory `path`, which is the value of
 * `variable`. */
struct base {
    const char *variable, *path, *below;
};

/* As the XDG Base Directory specification demands, a relative path in XDG_CONFIG_HOME counts as
 * unset. */
static struct base user_base(void)
{
    struct base base = {"XDG_CONFIG_HOME", getenv("XDG_CONFIG_HOME"), "/dlock/dlock.conf"};
    if (base.path == NULL || *base.path != '/')
        base = (struct base){"HOME", getenv("HOME"), "/.config/dlock/dlock.conf"};
    return base;
}

/* sudo(8), su(1) and runuser(1) may leave HOME set to another user's directory. In that case the
 * user must correct HOME, not the permissions of the other user's file. */
static void cannot_read(const struct settings *settings, const char *path, int error,
                        struct errmsg *why)
{
    struct base base = user_base();
    struct stat status;
    char name[USER_NAME_SIZE];
    bool of_another = path == settings->user_file && !settings->file_named && error == EACCES &&
                      stat(base.path, &status) == 0 && status.st_uid != geteuid();
    if (of_another)
        errmsg_set(why,
                   "cannot read %.300s: %s; the directory in %s belongs to user %s; set HOME or "
                   "XDG_CONFIG_HOME",
                   path, strerror(error), base.variable,
                   user_name(status.st_uid, name, sizeof name));
    else
        errmsg_set(why, "cannot read %s: %s", path, strerror(error));
}

/* If other users can write to the file or directory, returns a complaint; otherwise NULL. Anyone
 * who can write there decides where locks are and where reports go. The group of this process may
 * write, because on many hosts each user has a group without other members. */
static const char *written_by_others(const struct stat *status)
{
    if ((status->st_mode & S_IWOTH) != 0)
        return "others can write to this path; use chmod o-w";
    if ((status->st_mode & S_IWGRP) != 0 && status->st_gid != 0 && status->st_gid != getegid())
        return "the group can write to this path; use chmod g-w";
    return NULL;
}

/* Returns why dlock must not read the file; NULL: dlock may read it. */
static const char *distrusted(const struct settings *settings, const char *path,
                              const struct stat *status, char *text, size_t size)
{
    char name[USER_NAME_SIZE];
    const char *writers = written_by_others(status);
    if (!S_ISREG(status->st_mode))
        return "not a regular file";
    if (writers != NULL || path != settings->user_file || status->st_uid == geteuid() ||
        status->st_uid == 0)
        return writers;
    snprintf(text, size, "belongs to user %s%s", user_name(status->st_uid, name, sizeof name),
             settings->file_named ? ", but must belong to you or root"
                                  : "; set HOME or XDG_CONFIG_HOME");
    return text;
}

/* Adds the file whose path is `directory` followed by `below`. NULL: memory is short. */
static struct config_file *add_file(struct settings *settings, const char *directory,
                                    const char *below)
{
    struct config_file **end = &settings->files;
    size_t size = strlen(directory) + strlen(below) + 1;
    struct config_file *file = malloc(sizeof *file + size);
    if (file == NULL)
        return NULL;

    *file = (struct config_file){0};
    snprintf(file->path, size, "%s%s", directory, below);
    while (*end != NULL)
        end = &(*end)->next;
    *end = file;
    return file;
}

static enum settings_result read_file(struct reading *reading, struct config_file *config)
{
    const struct settings *settings = reading->settings;
    struct errmsg *why = reading->why;
    struct stat status;
    if (config == NULL)
        return SETTINGS_NO_MEMORY;

    const char *path = config->path;
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
    enum settings_result result = SETTINGS_BAD_CONFIG;
    config->is_there = reason == NULL;
    if (reason != NULL)
        errmsg_set(why, "%s: %s", path, reason);
    else
        result = parse(reading, config->path, (status.st_mode & S_IROTH) != 0, file);
    fclose(file);
    return result;
}

/* --- which files --------------------------------------------------------------- */

static int cannot_list(const char *path, int error)
{
    (void)path;
    errno = error;
    return error != ENOENT; /* 0 makes glob(3) continue */
}

/* Refuses a directory that others can write to, because they could add a configuration file. */
static enum settings_result check_directory(const char *directory, struct errmsg *why)
{
    struct stat status;
    const char *writers = stat(directory, &status) == 0 ? written_by_others(&status) : NULL;
    if (writers == NULL)
        return SETTINGS_OK;
    errmsg_set(why, "%s: %s", directory, writers);
    return SETTINGS_BAD_CONFIG;
}

/* Reads the files that match CONFIG_SYSTEM_GLOB, in the order of their names. */
static enum settings_result read_directory(struct reading *reading)
{
    glob_t found = {0};
    int error = glob(CONFIG_SYSTEM_GLOB, 0, cannot_list, &found);
    enum settings_result result = error == GLOB_NOSPACE ? SETTINGS_NO_MEMORY : SETTINGS_OK;
    if (error == GLOB_ABORTED) {
        errmsg_set(reading->why, "cannot list %s: %s", CONFIG_SYSTEM_GLOB, strerror(errno));
        result = SETTINGS_BAD_CONFIG;
    }
    if (found.gl_pathc > 0 && result == SETTINGS_OK) {
        char directory[PATH_MAX];
        text_copy(directory, sizeof directory, found.gl_pathv[0]);
        result = check_directory(dirname(directory), reading->why);
    }
    for (size_t i = 0; i < found.gl_pathc && result == SETTINGS_OK; i++)
        result = read_file(reading, add_file(reading->settings, found.gl_pathv[i], ""));
    globfree(&found);
    return result;
}

/* Reads all system-wide files as if they were one file, so that the settings in sections come after
 * all others. */
static enum settings_result read_system(struct reading *reading)
{
    enum settings_result result =
        read_file(reading, add_file(reading->settings, CONFIG_SYSTEM_FILE, ""));
    if (result == SETTINGS_OK)
        result = read_directory(reading);
    settings_append(reading->settings, &reading->sections);
    return result;
}

static enum settings_result read_user(struct reading *reading, const char *directory,
                                      const char *below)
{
    struct settings *settings = reading->settings;
    struct config_file *file = add_file(settings, directory, below);
    settings->user_file = file != NULL ? file->path : NULL;
    enum settings_result result = read_file(reading, file);
    settings_append(settings, &reading->sections);
    return result;
}

/* Returns the option that a variable such as "DLOCK_TTL=1h" sets, or OPT_NONE if there is none. */
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

/* Adds the DLOCK_* variables in the order of option_rows.h, so that if two contradict each other,
 * the same one always counts. An empty variable counts as unset, because a shell script or a
 * systemd unit often cannot unset a variable. False if memory is short. */
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

enum settings_result config_read(struct settings *settings, const char *name,
                                 const struct setting *config, struct errmsg *why)
{
    const char *path = config != NULL ? config->text : getenv("DLOCK_CONFIG");
    if (config != NULL && *path == '\0') {
        /* A script probably used a variable that was not set. dlock does not read the default files
         * instead, because they may select other locks. */
        errmsg_set(why, "--config: '': the path is empty");
        return SETTINGS_BAD_USAGE;
    }
    struct reading reading = {.settings = settings, .name = name, .why = why};
    enum settings_result result = SETTINGS_OK;
    settings->file_named = path != NULL && *path != '\0';
    if (settings->file_named) {
        result = read_user(&reading, path, "");
    } else {
        struct base base = user_base();
        result = read_system(&reading);
        if (result == SETTINGS_OK && base.path != NULL && *base.path == '/')
            result = read_user(&reading, base.path, base.below);
    }
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
        settings->file_named ? "" : ", " CONFIG_SYSTEM_GLOB ", " CONFIG_SYSTEM_FILE);
    return text;
}

/* --- variables that are not settings --------------------------------------- */

/* Known variables that are not settings: DLOCK_CONFIG, the variables that dlock sets for commands,
 * and those that Kubernetes sets for a Service named, for example, dlock or dlock-redis. */
static const char *const not_settings[] = {
    "DLOCK_NAME",         "DLOCK_FENCE",
    "DLOCK_EXPIRES_AT",   "DLOCK_HELD",
    "DLOCK_SLOT",         "DLOCK_CONFIG",
    "DLOCK_HELD_KEY",     "DLOCK_HELD_OWNER",
    "DLOCK_HELD_TTL",     "DLOCK_HELD_BACKEND",
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
