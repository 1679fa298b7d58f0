#include "lease.h"

#include "text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct duration lease_drift(struct duration ttl)
{
    struct duration drift = {ttl.ns / 100};
    return duration_min(duration_max(drift, DURATION_MS(2)), DURATION_S(1));
}

void lease_begin(struct lease *lease, const struct lock_request *request, struct deadline before, int64_t fence)
{
    *lease = (struct lease){
        .name = request->name,
        .key = request->key,
        .token = request->token,
        .take_id = request->take_id,
        .ttl = request->ttl,
        .fence = fence,
        .taken = before,
        .deadline = deadline_minus(deadline_plus(before, request->ttl), lease_drift(request->ttl)),
    };
}

struct deadline lease_warning_time(const struct lease *lease, struct deadline deadline)
{
    return deadline_minus(deadline, (struct duration){lease->ttl.ns / 10});
}

bool lease_as_good_as_over(const struct lease *lease)
{
    return deadline_passed(lease_warning_time(lease, lease->deadline));
}

void lease_adopt(struct lease *lease, struct deadline before, struct deadline after, struct duration left)
{
    struct duration drift = lease_drift(lease->ttl);
    /* The store read its clock between before and after: the lock ends within these two. */
    struct deadline earliest = deadline_minus(deadline_plus(before, left), drift);
    struct deadline latest = deadline_plus(after, left);
    bool extended = deadline_before(deadline_plus(lease->deadline, drift), earliest);
    bool shortened = deadline_before(latest, lease->deadline);
    if (extended || shortened)
        lease->deadline = earliest;
}

/* Reads a small file of /proc; "" where it cannot be read. */
static void read_proc(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* proc(5): starttime is the 20th field after the command's name, which stands
 * in parentheses and may itself contain any character. */
static int64_t own_start_time(void)
{
    char stat[1024];
    read_proc("/proc/self/stat", stat, sizeof stat);
    const char *at = strrchr(stat, ')');
    for (int field = 0; at != NULL && field < 20; field++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoll(at, NULL, 10);
}

void holder_self(struct holder *self, const char *command)
{
    *self = (struct holder){.known = true, .pid = getpid(), .since_wall_ms = wall_now_ms()};
    if (gethostname(self->host, sizeof self->host - 1) != 0)
        self->host[0] = '\0';
    read_proc("/proc/sys/kernel/random/boot_id", self->boot_id, sizeof self->boot_id);
    self->pid_start = own_start_time();
    /* Not getpwuid(3): it may load and ask a directory service at every run. */
    const char *user = getenv("LOGNAME");
    if (user == NULL || *user == '\0')
        user = getenv("USER");
    if (user != NULL && *user != '\0')
        text_copy(self->user, sizeof self->user, user);
    else
        snprintf(self->user, sizeof self->user, "%ld", (long)geteuid());
    text_copy(self->command, sizeof self->command, command);
}
