/* Runs a command under a seccomp filter that refuses one system call, as sandboxes do.
 *
 *   refuse_call EPERM|ENOSYS CALL COMMAND [ARG...]
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    unsigned number;
} calls[] = {
    {"clone3", SYS_clone3},
    {"inotify_add_watch", SYS_inotify_add_watch},
    {"inotify_init1", SYS_inotify_init1},
    {"pidfd_open", SYS_pidfd_open},
    {"pidfd_send_signal", SYS_pidfd_send_signal},
    {"timerfd_create", SYS_timerfd_create},
    {"vfork", SYS_vfork},
};

enum { CANNOT = 99 };

static int refuse(unsigned call, unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return CANNOT;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(argv[2], calls[i].name) == 0) {
            if (refuse(calls[i].number, strcmp(argv[1], "EPERM") == 0 ? EPERM : ENOSYS) == 0)
                execvp(argv[3], argv + 3);
            perror("refuse_call");
            return CANNOT;
        }
    fprintf(stderr, "refuse_call: %s is not among its calls\n", argv[2]);
    return CANNOT;
}
