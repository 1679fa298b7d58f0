/* Replaces libFuzzer: replays files, and mutates them if told to.
 *
 * Usage: fuzz_NAME [-seconds=N] [-runs=N] [-seed=N] FILE...
 * Each file is fed once; then changed copies of them for N seconds, or N times,
 * which depend only on the seed. An input that ends the program is left in
 * crash-standalone. */
#include "fuzz.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_MOST = 1 << 16 };

struct input {
    uint8_t *bytes;
    size_t size;
};

static uint8_t current[2 * INPUT_MOST];
static size_t current_size;
static uint64_t state = 1;

/* xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
 * generators, scrambled"). */
static uint64_t random_below(uint64_t limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * UINT64_C(2685821657736338717) >> 16) % limit;
}

static void keep_input(int number)
{
    int fd = open("crash-standalone", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)!write(fd, current, current_size);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void feed(const uint8_t *bytes, size_t size)
{
    uint8_t *copy =
        malloc(size > 0 ? size : 1); /* no byte more, so that a read behind its end is found */
    if (copy == NULL)
        abort();
    memcpy(current, bytes, size);
    current_size = size;
    memcpy(copy, bytes, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static struct input read_input(const char *path)
{
    struct input input = {.bytes = malloc(INPUT_MOST)};
    FILE *file = fopen(path, "re");
    if (file == NULL || input.bytes == NULL) {
        perror(path);
        exit(1);
    }
    input.size = fread(input.bytes, 1, INPUT_MOST, file);
    fclose(file);
    return input;
}

static size_t mutate(uint8_t *bytes, const struct input *from, const struct input *other)
{
    static const char *const pieces[] = {
        "\r\n",       "*",      "$", "-1", ":", "9223372036854775807",
        "2147483648", "\n--\n", "%", "@",  "]", "="};
    size_t size = from->size;
    memcpy(bytes, from->bytes, size);
    for (uint64_t times = 1 + random_below(4); times > 0; times--) {
        size_t at = (size_t)random_below(size + 1), length = (size_t)random_below(16) + 1;
        const char *piece = pieces[random_below(sizeof pieces / sizeof *pieces)];
        switch (random_below(5)) {
        case 0:
            if (at < size)
                bytes[at] ^= (uint8_t)(1U << random_below(8));
            break;
        case 1:
            if (at + length <= size) {
                memmove(bytes + at, bytes + at + length, size - at - length);
                size -= length;
            }
            break;
        case 2:
            length = strlen(piece);
            if (size + length <= INPUT_MOST) {
                memmove(bytes + at + length, bytes + at, size - at);
                memcpy(bytes + at, piece, length);
                size += length;
            }
            break;
        case 3:
            if (at < size)
                bytes[at] = (uint8_t)random_below(256);
            break;
        default: /* goes on as another one does */
            if (at < other->size) {
                memcpy(bytes + at, other->bytes + at, other->size - at);
                size = other->size;
            }
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    static struct input inputs[1024];
    static uint8_t bytes[2 * INPUT_MOST];
    size_t count = 0;
    long seconds = 0;
    unsigned long runs = 0, changed = 0;
    (void)signal(SIGABRT, keep_input);
    (void)signal(SIGSEGV, keep_input);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-seconds=", 9) == 0)
            seconds = atol(argv[i] + 9);
        else if (strncmp(argv[i], "-runs=", 6) == 0)
            changed = strtoul(argv[i] + 6, NULL, 10);
        else if (strncmp(argv[i], "-seed=", 6) == 0)
            state = strtoull(argv[i] + 6, NULL, 10) | 1;
        else if (count < sizeof inputs / sizeof *inputs)
            inputs[count++] = read_input(argv[i]);
    }
    for (size_t i = 0; i < count; i++, runs++)
        feed(inputs[i].bytes, inputs[i].size);
    time_t until = time(NULL) + seconds;
    for (changed += runs; count > 0 && (runs < changed || time(NULL) < until); runs++) {
        size_t size = mutate(bytes, &inputs[random_below(count)], &inputs[random_below(count)]);
        feed(bytes, size < INPUT_MOST ? size : INPUT_MOST);
    }
    while (count > 0)
        free(inputs[--count].bytes);
    printf("%lu inputs\n", runs);
    return 0;
}
