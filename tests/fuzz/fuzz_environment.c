/* The environment: DLOCK_NAME=VALUE without the "DLOCK_", a line each, and in VALUE
 * %HH for other bytes. What is accepted is within its limits; what a command is told
 * of its lock has no password in it, and a dlock inside reads it as the outer dlock
 * meant it. */
#include "config/config_int.h"
#include "fuzz_options.h"
#include "redis/url.h"
#include "run/outer.h"
#include "util/text.h"

#include <stdio.h>

static void set_variables(char *input)
{
    char variable[256], value[8192];
    fuzz_expect(clearenv() == 0 && setenv("HOME", "/nonexistent", 1) == 0);
    for (char *rest = input; rest != NULL;) {
        char *line = strsep(&rest, "\n"), *equals = strchr(line, '=');
        if (equals == NULL || equals == line ||
            !percent_decode(value, sizeof value, equals + 1, strlen(equals + 1)))
            continue;
        *equals = '\0';
        snprintf(variable, sizeof variable, "DLOCK_%s", line);
        fuzz_expect(setenv(variable, value, 1) == 0);
    }
}

static void expect_held(struct outer_locks *list)
{
    fuzz_expect(outer_read(list, "/nonexistent"));
    for (size_t i = 0; i < list->count; i++)
        fuzz_expect(list->list[i].backend[0] != '\0' && list->list[i].token[0] != '\0' &&
                    list->list[i].key[0] != '\0' && strchr(list->list[i].key, '\n') == NULL &&
                    strpbrk(list->list[i].token, " \n") == NULL);
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* The store of a lock with these options, as an inner dlock without options finds it. */
static void expect_store(const struct options *outer, const struct held *held)
{
    struct options inner, *under;
    struct errmsg why = {""};
    char program[] = "dlock", action[] = "--current", *argv[] = {program, action, NULL};
    bool redis = strcmp(held->backend, "redis") == 0;
    char **given = environ, *none = NULL;
    environ = &none;
    fuzz_expect(options_read(&inner, 2, argv, &why) == SETTINGS_OK);
    enum settings_result result =
        options_under(&under, &inner, held->store, held->store_length, &why);
    fuzz_expect(result == SETTINGS_OK && strcmp(under->prefix, outer->prefix) == 0 &&
                under->hash == outer->hash);
    fuzz_expect((under->redis != NULL) == redis &&
                is_same(under->lock_dir, redis ? NULL : "/a dir"));
    fuzz_expect(!redis || !url_redact_has_password(under->redis));
    fuzz_expect(!redis || is_same(under->cacert, outer->cacert) ||
                (outer->cacert != NULL && outer->cacert[0] != '/' && under->cacert[0] == '/'));
    options_under_free(&under);
    options_free(&inner);
    environ = given;
}

/* What the command of a lock with these options finds. */
static void expect_inner(const struct options *outer, const char *backend, size_t outside)
{
    const struct lease lease = {.name = "job",
                                .key = "dlock:job with blanks",
                                .token = "0b8c9d1e-0000-4000-8000-000000000001",
                                .take_id = "0b8c9d1e-0000-4000-8000-000000000002",
                                .slot = outer->mode == MODE_SLOTS ? 0 : -1,
                                .ttl = outer->ttl,
                                .fence = 1,
                                .deadline = deadline_after(outer->ttl)};
    char program[] = "dlock", name[] = "job", command[] = "true",
         *argv[] = {program, name, command, NULL};
    struct options inner;
    struct outer_locks list;
    struct environment environment;
    char **outside_list = environ;
    struct errmsg why = {""};
    environment_copy(&environment);
    char *where = held_store_format(&outer->settings, backend, "/a dir");
    fuzz_expect(where != NULL);
    outer_export(&environment, &lease, backend, where);
    free(where);
    fuzz_expect(!environment.short_of_memory);
    environ = environment.list;
    expect_held(&list);
    fuzz_expect(list.count == outside + 1 && strcmp(list.list[0].key, lease.key) == 0 &&
                strcmp(list.list[0].token, lease.token) == 0 &&
                strcmp(list.list[0].backend, backend) == 0);
    expect_store(outer, &list.list[0]);
    outer_free(&list);
    fuzz_expect(options_read(&inner, 3, argv, &why) == SETTINGS_OK &&
                inner.ttl.ns == outer->ttl.ns && inner.mode == outer->mode &&
                inner.backend == outer->backend);
    options_free(&inner);
    environ = outside_list;
    environment_free(&environment);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char program[] = "dlock", name[] = "job", command[] = "true",
         *argv[] = {program, name, command, NULL};
    char *input = fuzz_text(data, size);
    struct options options;
    struct outer_locks list;
    struct errmsg why = {""};
    set_variables(input);
    expect_held(&list);
    enum settings_result result = options_read(&options, 3, argv, &why);
    expect_options(&options, result, &why);
    if (result == SETTINGS_OK)
        expect_inner(&options, options.redis != NULL ? "redis" : "file", list.count);
    outer_free(&list);
    options_free(&options);
    free(input);
    return 0;
}
