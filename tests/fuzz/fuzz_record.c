/* Lease records: what is read from a lock file is written so that it reads the same,
 * and one that was cut off anywhere is not a record. */
#include "fuzz.h"
#include "store/file/file_int.h"

static bool same_holder(const struct holder *a, const struct holder *b)
{
    return a->since_wall_ms == b->since_wall_ms && a->pid == b->pid &&
           a->pid_start == b->pid_start && a->pid_space == b->pid_space && a->shares == b->shares &&
           strcmp(a->host, b->host) == 0 && strcmp(a->boot_id, b->boot_id) == 0 &&
           strcmp(a->user, b->user) == 0 && strcmp(a->command, b->command) == 0;
}

static bool same(const struct record *a, const struct record *b)
{
    return strcmp(a->key, b->key) == 0 && strcmp(a->token, b->token) == 0 &&
           strcmp(a->holder.take_id, b->holder.take_id) == 0 && a->mode == b->mode &&
           a->slots == b->slots && a->slot == b->slot && a->fence == b->fence &&
           a->ttl.ns == b->ttl.ns && a->expires.boot_ns == b->expires.boot_ns &&
           a->hold.boot_ns == b->hold.boot_ns && a->holder.detached == b->holder.detached &&
           a->holder.kept == b->holder.kept && same_holder(&a->holder, &b->holder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct record first, second;
    static char text[LOCK_RECORD_SIZE];
    char *input = fuzz_text(data, size);
    if (record_parse(&first, input)) {
        size_t length = record_format(&first, text);
        fuzz_expect(length > 0 && length < sizeof text && strlen(text) == length);
        fuzz_expect(record_parse(&second, text) && same(&first, &second));
        text[(data[size / 2] * (size_t)251 + size) % length] = '\0';
        fuzz_expect(!record_parse(&second, text));
    }
    free(input);
    return 0;
}
