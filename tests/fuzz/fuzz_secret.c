/* Files with a secret, its bytes except one line end; and files with an owner token. */
#include "actions/actions_int.h"
#include "fuzz.h"
#include "util/fileutils.h"

#include <stdio.h>
#include <sys/stat.h>

static size_t secret_length(const uint8_t *data, size_t size)
{
    if (size > 0 && data[size - 1] == '\n')
        return size > 1 && data[size - 2] == '\r' ? size - 2 : size - 1;
    return size;
}

static void expect_secret(const char *path, const uint8_t *data, size_t size)
{
    struct secret secret;
    struct errmsg why = {""};
    size_t length = secret_length(data, size);
    bool done = secret_read(&secret, path, &why);
    fuzz_expect(done == (length > 0 && length <= SECRET_MOST));
    if (done)
        fuzz_expect(secret.length == length && memcmp(secret.bytes, data, length) == 0);
    else
        fuzz_expect(strncmp(why.text, path, strlen(path)) == 0);
    secret_wipe(&secret);
}

static void expect_token(const char *path, const uint8_t *data, size_t size)
{
    char token[TOKEN_SIZE], *input = fuzz_text(data, size), *rest = input;
    const char *line = fuzz_line(&rest);
    struct errmsg why = {""};
    enum lock_result result = token_file_read(path, token, &why);
    fuzz_expect((result == LOCK_OK) == token_valid(line, &why));
    if (result == LOCK_OK)
        fuzz_expect(strcmp(token, line) == 0);
    else
        fuzz_expect(why.text[0] != '\0');
    free(input);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    char path[64];
    file = fuzz_file(file, data, size);
    fuzz_expect(fchmod(file, 0600) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    expect_secret(path, data, size);
    expect_token(path, data, size);
    return 0;
}
