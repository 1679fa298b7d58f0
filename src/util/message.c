#include "util/message.h"

#include "util/fileutils.h"
#include "util/text.h"
#include "util/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

/* --- the service manager -------------------------------------------------- */

enum { FDS_MOST = 16 };

bool sd_notify_address(struct sockaddr_un *to, socklen_t *size, const char *name)
{
    size_t length = strlen(name);
    if ((*name != '/' && *name != '@') || length < 2 || length >= sizeof to->sun_path)
        return false;
    *to = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(to->sun_path, name, length);
    if (*name == '@')
        to->sun_path[0] = '\0';
    /* An abstract name ends where `*size` says; a path also includes its NUL. */
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (*name == '/'));
    return true;
}

/* Reads "vsock:CID:PORT", or a form with a type, such as "vsock-stream:CID:PORT". Returns the type
 * (SOCK_DGRAM if none is given), or 0 if the name is something else. */
static int vsock_address(struct notify *notify, const char *name)
{
    static const struct {
        const char *prefix;
        int type;
    } kinds[] = {{"vsock:", SOCK_DGRAM},
                 {"vsock-dgram:", SOCK_DGRAM},
                 {"vsock-seqpacket:", SOCK_SEQPACKET},
                 {"vsock-stream:", SOCK_STREAM}};
    char *end = NULL;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].prefix);
        if (strncmp(name, kinds[i].prefix, length) != 0)
            continue;
        uint64_t cid = strtoull(name + length, &end, 10);
        uint64_t port = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
        if (port == 0 || *end != '\0' || cid > UINT32_MAX || port > UINT32_MAX)
            return 0;
        notify->to.vm = (struct sockaddr_vm){
            .svm_family = AF_VSOCK, .svm_cid = (unsigned)cid, .svm_port = (unsigned)port};
        notify->size = sizeof notify->to.vm;
        return kinds[i].type;
    }
    return 0;
}

static bool open_socket(struct notify *notify, int type)
{
    notify->type = type;
    notify->fd = socket(notify->to.any.sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return notify->fd >= 0;
}

/* As in sd_notify(3): if the name has no type, tries several types, because the hypervisor may not
 * support all of them. */
static void open_vsock(struct notify *notify, const char *name)
{
    int type = vsock_address(notify, name);
    bool may_differ = strncmp(name, "vsock:", strlen("vsock:")) == 0;

    const int types[] = {type, SOCK_SEQPACKET, SOCK_STREAM};
    size_t count = type == 0 ? 0 : may_differ ? 3 : 1;

    for (size_t i = 0; i < count && !open_socket(notify, types[i]); i++)
        continue;
}

void sd_notify_open(struct notify *notify)
{
    const char *name = getenv("NOTIFY_SOCKET");
    *notify = (struct notify){.fd = -1};
    if (name != NULL && sd_notify_address(&notify->to.un, &notify->size, name))
        (void)open_socket(notify, SOCK_DGRAM);
    else if (name != NULL)
        open_vsock(notify, name);
}

/* Connects to the service manager, which is on the same machine and answers in a fraction of a
 * millisecond. If the manager does not answer, the message is dropped, because dlock must be able
 * to stop the command in time. */
static bool connect_anew(struct notify *notify)
{
    enum { ANSWER_MS = 5 };
    int error = 0;
    socklen_t size = sizeof error;

    if (!open_socket(notify, notify->type))
        return false;
    if (connect(notify->fd, &notify->to.any, notify->size) == 0)
        return true;
    struct pollfd answer = {.fd = notify->fd, .events = POLLOUT};
    if (errno == EINPROGRESS && poll(&answer, 1, ANSWER_MS) == 1 &&
        getsockopt(notify->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
        return true;
    fd_close(&notify->fd);
    return false;
}

static void send_all(const struct notify *notify, const char *text, size_t length, const int *fds,
                     size_t fd_count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control = {0};
    struct notify to = *notify;
    struct iovec part = {(void *)(uintptr_t)text, length}; /* sendmsg(2) does not change the text */
    struct msghdr message = {
        .msg_name = &to.to, .msg_namelen = to.size, .msg_iov = &part, .msg_iovlen = 1};

    if (to.type != SOCK_DGRAM) {
        message.msg_name = NULL;
        message.msg_namelen = 0;
        if (!connect_anew(&to))
            return;
    }
    if (fd_count > 0 && to.to.any.sa_family == AF_UNIX) {
        message.msg_control = control.bytes;
        message.msg_controllen = (socklen_t)CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = &control.header;
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = (socklen_t)CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }

    while (sendmsg(to.fd, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
    if (to.type != SOCK_DGRAM)
        fd_close(&to.fd); /* this ends the message */
}

void sd_notify_send(const struct notify *notify, const char *format, ...)
{
    char text[2048];
    va_list args;
    if (notify->fd < 0)
        return;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0)
        send_all(notify, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1,
                 NULL, 0);
}

void sd_notify_forward(const struct notify *notify, const char *text, size_t length, const int *fds,
                       size_t fd_count)
{
    static const char main_pid[] = "MAINPID"; /* also matches MAINPIDFD and MAINPIDFDID */
    char kept[4096];
    size_t used = 0;
    if (notify->fd < 0 || length > sizeof kept || fd_count > FDS_MOST)
        return;

    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - (text + at)) + 1 : length - at;
        if (line < sizeof main_pid - 1 || memcmp(text + at, main_pid, sizeof main_pid - 1) != 0) {
            memcpy(kept + used, text + at, line);
            used += line;
        }
        at += line;
    }

    if (used > 0)
        send_all(notify, kept, used, fds, fd_count);
}

/* --- messages ------------------------------------------------------------- */

/* How long dlock waits while no process reads stderr (because of a pager, Ctrl-S or a logger that
 * hangs). This is shorter than the grace period of all but the shortest leases, so that dlock can
 * still stop the command in time. */
static const struct duration patience = {20 * NS_PER_MS};

/* Writes with splice(2), which does not wait. Opening the pipe again in non-blocking mode would
 * fail for another user's pipe. */
static ssize_t write_to_pipe(const char *bytes, size_t length)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return write(STDERR_FILENO, bytes, length);
    ssize_t written = write(ends[1], bytes, length);
    if (written > 0)
        written = splice(ends[0], NULL, STDERR_FILENO, NULL, (size_t)written, SPLICE_F_NONBLOCK);
    fd_close(&ends[0]);
    fd_close(&ends[1]);
    /* A sandbox may forbid splice(2). */
    return written < 0 && (errno == EINVAL || errno == ENOSYS) ? write(STDERR_FILENO, bytes, length)
                                                               : written;
}

static ssize_t write_to_terminal(const char *bytes, size_t length)
{
    int fd = open("/proc/self/fd/2", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    ssize_t written = write(fd >= 0 ? fd : STDERR_FILENO, bytes, length);
    fd_close(&fd);
    return written;
}

/* Other processes, such as the command, write to the same open file, so dlock must not make the
 * file non-blocking. poll(2) alone is not enough, because others may fill the file after poll(2)
 * has reported room. */
static ssize_t write_without_waiting(const char *bytes, size_t length)
{
    struct stat file = {0};
    if (fstat(STDERR_FILENO, &file) == 0 && S_ISSOCK(file.st_mode))
        return send(STDERR_FILENO, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (S_ISFIFO(file.st_mode))
        return write_to_pipe(bytes, length);
    if (S_ISCHR(file.st_mode) && isatty(STDERR_FILENO) == 1)
        return write_to_terminal(bytes, length);
    return write(STDERR_FILENO, bytes, length);
}

/* Writes fewer than PIPE_BUF bytes at once, so that the lines of many processes do not mix. If
 * stderr is closed or full, the line is dropped. */
bool message_write(const char *bytes, size_t length)
{
    struct deadline until = deadline_after(patience);
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t written;
    do {
        if (poll(&fd, 1, deadline_poll_ms(until)) != 1 || (fd.revents & POLLOUT) == 0)
            return false;
        written = write_without_waiting(bytes, length);
    } while (written < 0 && errno == EAGAIN && !deadline_passed(until));
    return written == (ssize_t)length;
}

/* True if stderr is still the stream that systemd gave the service, and was not redirected later.
 * $JOURNAL_STREAM has the device and inode of that stream (systemd.exec(5)). */
static bool is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    char ours[64];
    if (stream == NULL || fstat(STDERR_FILENO, &status) != 0)
        return false;
    snprintf(ours, sizeof ours, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    return strcmp(stream, ours) == 0;
}

void messages_open(struct messages *out)
{
    /* Every CI service sets CI. */
    const char *ci = getenv("CI");
    out->ci = ci != NULL && *ci != '\0' && strcmp(ci, "false") != 0;
    out->terminal = isatty(STDERR_FILENO) == 1;
    out->journal = is_journal();
    sd_notify_open(&out->notify);
}

/* Does what syslog(3) does, but never waits: a logger that hangs must not delay the end of a
 * lease. */
static NOT_INLINED void write_to_syslog(const struct messages *out, int priority, const char *name,
                                        const char *text)
{
    static const struct sockaddr_un logger = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
    char line[PIPE_BUF], when[32];
    time_t now = (time_t)(wall_now_ms() / 1000);
    struct tm local;
    int facility = out->terminal ? LOG_USER : LOG_CRON;
    if (localtime_r(&now, &local) == NULL ||
        strftime(when, sizeof when, "%b %e %H:%M:%S", &local) == 0)
        return;
    int length = snprintf(line, sizeof line, "<%d>%s dlock[%ld]: %s%s%s", facility | priority, when,
                          (long)getpid(), name, *name != '\0' ? ": " : "", text);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && length > 0 && connect(fd, (const struct sockaddr *)&logger, sizeof logger) == 0)
        (void)!send(fd, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1,
                    MSG_NOSIGNAL);
    fd_close(&fd);
}

void say(const struct messages *out, enum message_kind kind, const char *format, ...)
{
    enum { ESCAPED_SIZE = 3072 };
    static const struct {
        int priority, least_verbosity;
    } kinds[] = {
        [MESSAGE_ERROR] = {LOG_ERR, INT_MIN}, [MESSAGE_WARNING] = {LOG_WARNING, 0},
        [MESSAGE_NOTICE] = {LOG_NOTICE, 0},   [MESSAGE_CONFLICT] = {LOG_NOTICE, 1},
        [MESSAGE_VERBOSE] = {LOG_INFO, 1},
    };
    char text[2048], name[256], priority[8] = "", line[ESCAPED_SIZE + sizeof name + 16];
    _Static_assert(sizeof line <= PIPE_BUF, "a line must be written at once");
    bool noted = kind == MESSAGE_CONFLICT && (out->terminal || out->ci) && out->verbosity == 0;
    if (out->verbosity < kinds[kind].least_verbosity && !noted)
        return;

    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0)
        return;

    if (out->journal) /* a prefix as in sd-daemon(3) */
        snprintf(priority, sizeof priority, "<%d>", kinds[kind].priority);
    text_escape(name, sizeof name, out->name != NULL ? out->name : "");
    int begin =
        snprintf(line, sizeof line, "%sdlock: %s%s", priority, name, *name != '\0' ? ": " : "");
    const char *escaped = text_escape(line + begin, ESCAPED_SIZE, text);
    if (out->syslog)
        write_to_syslog(out, kinds[kind].priority, name, escaped);
    size_t whole = strlen(line);
    line[whole] = '\n';
    (void)message_write(line, whole + 1);
}

void say_status(const struct messages *out, const char *format, ...)
{
    char text[1024], escaped[1536];
    va_list args;
    if (out->notify.fd < 0)
        return;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0)
        sd_notify_send(&out->notify, "STATUS=%s", text_escape(escaped, sizeof escaped, text));
}
