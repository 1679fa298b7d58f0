/* Files in the lock directory that somebody else has written: whatever they
 * contain, a lock that was acquired is ours, and one that was removed is free.
 *
 * Input, with a line "--" between the parts: letters, the steps in order; the lock
 * file; the entry of the lock in the table, or after a '!' the table as a whole; the
 * file of an attachment; what the lock remembers of its runs, from the failures on, or
 * after a '!' with its sum, which is right otherwise.
 *   t take    s take, shared   o take, of three slots   c check    e extend
 *   r release l look           f force-release          i list     a attachments
 *   d take, once a minute      0 to 5 how the next run ends
 * A boot id of zeros is replaced by this boot's. */
#include "fuzz_print.h"
#include "process/procfs.h"
#include "run/outer.h"
#include "store/file/backend.h"
#include "store/file/file_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { TABLE_ENTRIES = MEMORY_ENTRIES, TABLE_HEAD = 256, ENTRY_SIZE = 384 };
enum { RUNS_AT = 97 * 4096, RUN_PAGES_AT = 16, SLOT_FAILURES = 4, SLOT_WORDS = 128, PARTS = 5 };

static const char key[] = "dlock:job", token[] = "0b8c9d1e-0000-4000-8000-000000000001";
static const char no_boot[] = "00000000-0000-4000-8000-000000000000";
static char folder[64];
static int folder_fd = -1;
static char boot_id[64];

static void empty_folder(void)
{
    DIR *list = fdopendir(openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    fuzz_expect(list != NULL);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(folder_fd, entry->d_name, 0);
    closedir(list);
}

static void remove_folder(void)
{
    empty_folder();
    (void)rmdir(folder);
}

static void prepare(void)
{
    /* In memory, if there is such a place. */
    snprintf(folder, sizeof folder, "%s/fuzz_lock_dir.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    fuzz_expect(mkdtemp(folder) != NULL &&
                (folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0 &&
                atexit(remove_folder) == 0);
    proc_boot_id(boot_id, sizeof boot_id);
    fuzz_expect(boot_id[0] != '\0');
}

/* The descriptor stays open. */
static int make_file(const char *name, const void *bytes, size_t size)
{
    int fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_expect(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    return fd;
}

static void make_lock_file(char *bytes, size_t size)
{
    char name[LOCK_FILE_NAME_SIZE];
    for (char *at = bytes;
         (at = memmem(at, size - (size_t)(at - bytes), no_boot, strlen(no_boot))) != NULL;)
        memcpy(at, boot_id, strlen(no_boot));
    lock_file_name(name, key);
    close(make_file(name, bytes, size));
}

static void make_table(const char *bytes, size_t size)
{
    static char table[TABLE_HEAD + TABLE_ENTRIES * ENTRY_SIZE];
    char name[LOCK_DIR_OWN_SIZE];
    uint64_t hash = text_hash(key);
    char *entry = table + TABLE_HEAD + hash % TABLE_ENTRIES * ENTRY_SIZE;
    lock_dir_own_name(name, "table");
    if (*bytes == '!') {
        close(make_file(name, bytes + 1, size - 1));
        return;
    }
    memset(table, 0, sizeof table);
    memcpy(table, "dltable\1", 8);
    memcpy(entry, bytes, size < ENTRY_SIZE ? size : ENTRY_SIZE);
    memcpy(entry, &hash, sizeof hash);
    close(make_file(name, table, sizeof table));
}

/* The slot with the number of the lock's entry, in a table that make_table() has made. */
static void make_runs(const char *bytes, size_t size)
{
    uint64_t words[SLOT_WORDS] = {0}, sum = UINT64_C(14695981039346656037);
    uint64_t hash = text_hash(key), number = hash % TABLE_ENTRIES, marks = UINT64_MAX;
    size_t from = *bytes == '!' ? 0 : SLOT_FAILURES, most = sizeof words - from * sizeof *words;
    char name[LOCK_DIR_OWN_SIZE];
    lock_dir_own_name(name, "table");
    int fd = openat(folder_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bytes += from == 0;
    size -= from == 0;
    memcpy(&words[from], bytes, size < most ? size : most);
    words[2] = hash;
    words[3] = INT64_MAX;
    for (size_t i = 2; i < SLOT_WORDS; i++)
        sum = (sum ^ words[i]) * UINT64_C(1099511628211);
    words[0] = from == 0 ? words[0] : sum;
    fuzz_expect(fd >= 0 && ftruncate(fd, RUNS_AT + TABLE_ENTRIES * (off_t)sizeof words) == 0 &&
                pwrite(fd, words, sizeof words, RUNS_AT + (off_t)(number * sizeof words)) > 0 &&
                pwrite(fd, &marks, sizeof marks, RUN_PAGES_AT + (off_t)(number / 256 * 8)) > 0);
    close(fd);
}

static void find_attached(void)
{
    struct outer_locks list = {0};
    outer_read_attached(&list, folder);
    for (size_t i = 0; i < list.count; i++) {
        const struct held *held = &list.list[i];
        fuzz_expect(held->backend[0] != '\0' && held->token[0] != '\0' && held->key[0] != '\0' &&
                    strchr(held->key, '\n') == NULL && strpbrk(held->token, " \n") == NULL);
    }
    outer_free(&list);
}

static bool visit_state(void *data, const struct lock_state *state)
{
    int *count = data;
    fuzz_print(state);
    fuzz_expect(state->owner_count > 0 || state->memory.last.end.how != RUN_NONE ||
                state->newer > 0);
    return ++*count < 100;
}

static void expect_owner(struct backend *backend, bool ours, bool any, struct bound bound)
{
    static struct lock_state state;
    struct errmsg why = {""};
    enum lock_result result = backend->look(backend, key, &state, bound, &why);
    if (result == LOCK_INVALID && !ours && state.newer > 0)
        return;
    fuzz_expect(result == LOCK_OK);
    fuzz_expect(!ours || lock_state_owner(&state, token) != NULL);
    fuzz_expect(any || (state.owner_count == 0 && !state.locked));
    fuzz_print(&state);
    lock_state_free(&state);
}

/* If it was one. */
static void expect_run(struct backend *backend, const struct run_end *end, struct bound bound)
{
    static struct lock_state state;
    struct errmsg why = {""};
    fuzz_expect(backend->look(backend, key, &state, bound, &why) == LOCK_OK);
    fuzz_expect(end->how == RUN_NONE || state.memory.last.end.how == end->how);
    fuzz_expect(!run_is_success(end) || state.memory.success.pid == state.memory.last.pid);
    lock_state_free(&state);
}

struct run {
    struct backend *backend;
    struct lock_request request;
    struct lease lease;
    bool taken;
};

static enum lock_result take(struct run *run, enum lock_mode mode, struct bound bound,
                             struct errmsg *why)
{
    struct holder holder;
    if (run->taken)
        return LOCK_HELD;
    (void)poll(NULL, 0, 1); /* no two runs of a process begin in the same millisecond */
    run->request.mode = mode;
    run->request.slots = mode == MODE_SLOTS ? 3 : 0;
    enum lock_result result =
        run->backend->take(run->backend, &run->request, &run->lease, &holder, bound, why);
    run->taken = result == LOCK_OK;
    if (run->taken) {
        fuzz_expect(run->lease.fence > 0 &&
                    (mode != MODE_SLOTS || (run->lease.slot >= 0 && run->lease.slot < 3)));
        expect_owner(run->backend, true, true, bound);
    }
    return result;
}

static void act(struct run *run, char action)
{
    struct bound bound = {deadline_after(DURATION_S(5)), -1};
    struct backend *backend = run->backend;
    struct lock_state state;
    struct errmsg why = {""};
    enum lock_result result = LOCK_OK;
    int count = 0;
    switch (action) {
    case 't': result = take(run, MODE_EXCLUSIVE, bound, &why); break;
    case 's': result = take(run, MODE_SHARED, bound, &why); break;
    case 'd':
        run->request.once_per = DURATION_S(60);
        result = take(run, MODE_EXCLUSIVE, bound, &why);
        run->request.once_per = DURATION_ZERO;
        break;
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5': run->lease.end = (struct run_end){(enum run_how)(action - '0'), 0, 0}; break;
    case 'o': result = take(run, MODE_SLOTS, bound, &why); break;
    case 'c': result = backend->check(backend, &run->lease, bound, &why); break;
    case 'e': result = backend->extend(backend, &run->lease, EXTEND_AT_LEAST, bound, &why); break;
    case 'l': expect_owner(backend, run->taken, true, bound); break;
    case 'i':
        result = backend->list(
            backend, &(struct listing){"dlock:", NULL, true, visit_state, &count}, bound, &why);
        break;
    case 'a': find_attached(); break;
    case 'r':
        result = backend->release(backend, &run->lease, bound, &why);
        fuzz_expect(!run->taken || result == LOCK_OK);
        if (run->taken && run->request.mode == MODE_EXCLUSIVE)
            expect_run(run->backend, &run->lease.end, bound);
        run->taken = false;
        break;
    case 'f':
        result = backend->force_release(backend, key, &state, bound, &why);
        if (result == LOCK_INVALID && !run->taken)
            break; /* a newer format's */
        fuzz_expect(result == LOCK_OK);
        lock_state_free(&state);
        run->taken = false;
        expect_owner(backend, false, false, bound);
        break;
    default: break;
    }
    fuzz_expect(result == LOCK_OK || result == LOCK_HELD || why.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *input = fuzz_text(data, size), *parts[PARTS] = {input}, name[64];
    size_t sizes[PARTS] = {size};
    struct run run = {.request = {.name = "job",
                                  .key = key,
                                  .token = token,
                                  .take_id = "0b8c9d1e-0000-4000-8000-000000000002",
                                  .remember = DURATION_S(60),
                                  .ttl = {60 * NS_PER_S}}};
    struct errmsg why = {""};
    int attached = -1;
    if (folder_fd < 0)
        prepare();
    for (int i = 0; i < PARTS - 1 && parts[i] != NULL; i++) {
        parts[i + 1] = memmem(parts[i], sizes[i], "\n--\n", 4);
        if (parts[i + 1] == NULL)
            break;
        sizes[i + 1] = sizes[i] - (size_t)(parts[i + 1] - parts[i]) - 4;
        sizes[i] = (size_t)(parts[i + 1] - parts[i]) + 1;
        parts[i + 1] += 4;
    }
    empty_folder();
    if (parts[1] != NULL)
        make_lock_file(parts[1], sizes[1]);
    if (parts[2] != NULL && sizes[2] > 0)
        make_table(parts[2], sizes[2]);
    if (parts[4] != NULL && sizes[4] > 0)
        make_runs(parts[4], sizes[4]);
    if (parts[3] != NULL) {
        snprintf(name, sizeof name, ".attached-%ld-x-0", (long)getpid());
        attached = make_file(name, parts[3], sizes[3]);
        fuzz_expect(flock(attached, LOCK_EX | LOCK_NB) == 0);
    }
    fuzz_expect(dir_backend_open(&run.backend, folder, &why) == LOCK_OK);
    lease_begin(&run.lease, &run.request, deadline_now(), 0);
    for (size_t i = 0; i < sizes[0] && i < 12; i++)
        act(&run, parts[0][i]);
    act(&run, 'f');
    run.backend->close(run.backend);
    if (attached >= 0)
        close(attached);
    free(input);
    return 0;
}
