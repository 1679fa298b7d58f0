/* Reads a command line and a few variables as dlock reads its own. */
#ifndef DLOCK_UNIT_READ_OPTIONS_H
#define DLOCK_UNIT_READ_OPTIONS_H

#include "unit.h"

#include "config/options.h"
#include "util/text.h"

#include <stdlib.h>
#include <unistd.h>

struct command_line {
    struct options options;
    enum settings_result result;
    struct errmsg why;
    int count;
    char *words[64]; /* "dlock" and the words of the line; the options point to them */
    char text[4096];
};

/* Splits words with one blank between them. %HH stands for any byte, "''" for an empty word. */
static inline void split_words(struct command_line *line, const char *words)
{
    size_t used = 0;
    line->words[line->count++] = text_copy(line->text, sizeof line->text, "dlock");
    used += sizeof "dlock";
    while (*words != '\0') {
        size_t length = strcspn(words, " ");
        char *word = line->text + used;
        bool empty = length == 2 && memcmp(words, "''", 2) == 0;
        assert_true(percent_decode(word, sizeof line->text - used, words, empty ? 0 : length));
        assert_true((size_t)line->count + 1 < COUNT(line->words));
        line->words[line->count++] = word;
        used += strlen(word) + 1;
        words += length + (words[length] == ' ');
    }
    line->words[line->count] = NULL;
}

/* Sets only these variables of dlock: "NAME=VALUE" with one blank between them; TTL stands for
 * DLOCK_TTL. PATH has a program "sh". */
static inline void set_variables(const char *variables)
{
    char name[64], value[256];
    for (char **variable = environ; *variable != NULL;) {
        if (strncmp(*variable, "DLOCK_", 6) == 0) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(*variable, "="), *variable);
            assert_int_equal(unsetenv(name), 0);
            variable = environ;
        } else {
            variable++;
        }
    }
    assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
    assert_int_equal(setenv("HOME", "/nonexistent", 1), 0);
    assert_int_equal(setenv("PATH", "/usr/bin:/bin", 1), 0);
    while (*variables != '\0') {
        size_t length = strcspn(variables, " "), equals = strcspn(variables, "=");
        assert_true(equals < length);
        snprintf(name, sizeof name, "DLOCK_%.*s", (int)equals, variables);
        assert_true(
            percent_decode(value, sizeof value, variables + equals + 1, length - equals - 1));
        assert_int_equal(setenv(name, value, 1), 0);
        variables += length + (variables[length] == ' ');
    }
}

/* The caller frees the options with options_free(&line->options). */
static inline void read_options(struct command_line *line, const char *variables, const char *words)
{
    memset(line, 0, sizeof *line);
    set_variables(variables);
    split_words(line, words);
    line->result = options_read(&line->options, line->count, line->words, &line->why);
}

#endif
