/* The command that tests/bench/bench_waiting.py runs under a lock.
 *
 *   stamp LOG ID [ms=N@K] [gate=FIFO@K]... [stop=K]
 *
 * It appends one record to LOG: its id, its start and its end, on CLOCK_MONOTONIC. The lock decides
 * the order of the runs, so the number K of records that a run finds decides what the run does:
 *
 *   ms    from K records on, work for N ms
 *   gate  at K records, write the id to FIFO.id, open FIFO and work until the
 *         other end has been closed; so the other end can be opened as soon as
 *         this run is under way
 *   stop  from K records on, leave none and exit with status 9 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STOPPED = 9, BROKEN = 99 };

struct record {
    int64_t id, begin, end;
};

static int64_t now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void work(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0)
        ;
}

static void pass_gate(const char *path, const char *id)
{
    char byte, note[4096];
    int length = snprintf(note, sizeof note, "%s.id", path);
    int fd = length < (int)sizeof note ? open(note, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || write(fd, id, strlen(id)) < 0 || close(fd) != 0)
        _exit(BROKEN);
    int gate = open(path, O_RDONLY | O_CLOEXEC);
    if (gate < 0)
        _exit(BROKEN);
    while (read(gate, &byte, 1) > 0)
        ;
    close(gate);
}

/* Returns the number after the last @, and cuts the text before the @. */
static long cut_place(char *text)
{
    char *at = strrchr(text, '@');
    if (!at)
        _exit(BROKEN);
    *at = '\0';
    return atol(at + 1);
}

static void obey(char *word, long found, const char *id)
{
    if (strncmp(word, "stop=", 5) == 0) {
        if (found >= atol(word + 5))
            _exit(STOPPED);
    } else if (strncmp(word, "gate=", 5) == 0) {
        if (found == cut_place(word))
            pass_gate(word + 5, id);
    } else if (strncmp(word, "ms=", 3) == 0) {
        if (found >= cut_place(word))
            work(atol(word + 3));
    } else {
        _exit(BROKEN);
    }
}

int main(int argc, char *argv[])
{
    struct record record = {.begin = now()};
    struct stat log;
    int fd = argc < 3 ? -1 : open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &log) != 0)
        return BROKEN;
    record.id = atol(argv[2]);
    for (int word = 3; word < argc; word++)
        obey(argv[word], (long)(log.st_size / (off_t)sizeof record), argv[2]);
    record.end = now();
    if (write(fd, &record, sizeof record) != sizeof record)
        return BROKEN;
    _exit(0);
}
