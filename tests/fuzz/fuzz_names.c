/* Names of locks, keys, files, tokens and signals: two lines, each read as all of
 * them. */
#include "fuzz.h"
#include "lock/lock_name.h"
#include "store/redis/redis_int.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdio.h>

static void expect_file_name(const char *key, char name[LOCK_FILE_NAME_SIZE])
{
    struct errmsg why = {""};
    lock_file_name(name, key);
    size_t length = strlen(name);
    fuzz_expect(length > 5 && length < LOCK_FILE_NAME_SIZE && name[0] != '.' &&
                strchr(name, '/') == NULL && strcmp(name + length - 5, ".lock") == 0);
    if (lock_name_valid(key, "", &why))
        fuzz_expect(lock_name_valid(name, "", &why));
}

static void expect_coding(const char *text)
{
    size_t size = 3 * strlen(text) + 1, needs;
    char *coded = malloc(size), *decoded = malloc(size);
    fuzz_expect(coded != NULL && decoded != NULL);
    needs = percent_encode(coded, size, text, "/");
    fuzz_expect(needs < size && strlen(coded) == needs && strchr(coded, '/') == NULL);
    fuzz_expect(percent_decode(decoded, size, coded, needs) && strcmp(decoded, text) == 0);
    free(coded);
    free(decoded);
}

static void expect_words(const char *text)
{
    char again[64], companion[2 * LOCK_KEY_SIZE];
    struct errmsg why = {""};
    int64_t number, same;
    int signal = signame_parse(text);
    signame_format(signal, again, sizeof again);
    fuzz_expect(strncmp(again, "SIG", 3) != 0 || signame_parse(again) == signal);
    if (number_parse(text, INT64_MIN, INT64_MAX, &number)) {
        snprintf(again, sizeof again, "%" PRId64, number);
        fuzz_expect(number_parse(again, number, number, &same) && same == number);
    }
    if (token_valid(text, &why))
        fuzz_expect(strpbrk(text, " \n") == NULL && fuzz_shows(text) && strlen(text) < TOKEN_SIZE);
    if (lock_name_valid(text, "", &why)) {
        lock_key_companion(companion, sizeof companion, text, "meta");
        fuzz_expect(redis_slot(text) >= 0 && redis_slot(text) < REDIS_SLOTS &&
                    strlen(companion) > strlen("meta"));
        fuzz_expect(redis_keys_is_shared(text) || strchr(text, '}') != NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char first[LOCK_FILE_NAME_SIZE], second[LOCK_FILE_NAME_SIZE];
    char *input = fuzz_text(data, size), *rest = input;
    const char *one = fuzz_line(&rest), *two = fuzz_line(&rest);
    if (*one != '\0' && *two != '\0' && strlen(one) < LOCK_KEY_SIZE &&
        strlen(two) < LOCK_KEY_SIZE) {
        expect_file_name(one, first);
        expect_file_name(two, second);
        fuzz_expect((strcmp(one, two) == 0) == (strcmp(first, second) == 0));
    }
    expect_coding(one);
    expect_words(one);
    free(input);
    return 0;
}
