/* The argument vector, a word a line: what is accepted is within its limits, the
 * command's words stay as they are, and a password is neither left where ps(1) shows
 * it nor repeated in a message. */
#include "fuzz_options.h"

static const char password[] = "hunter2";

enum { WORDS_MOST = 64 };

static int count_passwords(char *const *words, int count)
{
    int found = 0;
    for (int i = 0; i < count; i++)
        for (const char *at = words[i]; (at = strstr(at, password)) != NULL; at++)
            found++;
    return found;
}

static int split(char *text, char **words, char **copies)
{
    int count = 1;
    words[0] = strdup("dlock");
    copies[0] = strdup("dlock");
    for (char *rest = text; rest != NULL && count < WORDS_MOST; count++) {
        const char *word = strsep(&rest, "\n");
        words[count] =
            strdup(word); /* apart from each other, so that a read behind one's end is found */
        copies[count] = strdup(word);
        fuzz_expect(words[count] != NULL && copies[count] != NULL);
    }
    words[count] = NULL;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *input = fuzz_text(data, size), *words[WORDS_MOST + 1], *copies[WORDS_MOST];
    char *split_words[WORDS_MOST]; /* dlock moves several names to the front of its words */
    struct options options;
    struct errmsg why = {""};
    int count = split(input, words, copies);
    memcpy(split_words, words, (size_t)count * sizeof *words);
    enum settings_result result = options_read(&options, count, words, &why);
    expect_options(&options, result, &why);
    int command = options.command != NULL ? (int)(options.command - words) : count;
    fuzz_expect(command > 0 && command <= count);
    for (int i = command; i < count; i++)
        fuzz_expect(strcmp(words[i], copies[i]) == 0);
    if (result == SETTINGS_OK && options.redis != NULL &&
        strstr(options.redis, "://:hunter2@") != NULL && count_passwords(copies, count) == 1)
        fuzz_expect(count_passwords(split_words, count) == 0);
    options_free(&options);
    while (count > 0) {
        free(split_words[--count]);
        free(copies[count]);
    }
    free(input);
    return 0;
}
