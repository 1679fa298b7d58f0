/* The arithmetic of leases: when they end, what a check adopts, which process is the holder. */
#include "unit.h"

#include "lock/lease.h"
#include "process/procfs.h"

#include <stdlib.h>
#include <unistd.h>

#define MS(n) ((int64_t)(n)*NS_PER_MS)
#define S(n) ((int64_t)(n)*NS_PER_S)

TEST(test_drift)
{
    static const struct {
        const char *name;
        int64_t ttl, drift;
    } rows[] = {
        {"the shortest lease", MS(100), MS(2)},
        {"at least 2ms", MS(199), MS(2)},
        {"1 %", S(10), MS(100)},
        {"an hour", S(3600), S(1)},
        {"at most 1s", S(30 * 86400), S(1)},
    };
    FOR_ROWS(row, rows)
    row_int(row->name, lease_drift((struct duration){row->ttl}).ns, row->drift);
}

TEST(test_begin)
{
    static const struct {
        const char *name;
        int64_t ttl, hold, deadline;
    } rows[] = {
        {"10s", S(10), 0, S(100) + S(10) - MS(100)},
        {"100ms", MS(100), 0, S(100) + MS(98)},
        {"held for at least 3s", S(10), S(3), S(100) + S(10) - MS(100)},
    };
    FOR_ROWS(row, rows)
    {
        struct lease lease;
        const struct lock_request request = {.name = "job",
                                             .key = "dlock:job",
                                             .token = "t",
                                             .take_id = "i",
                                             .ttl = {row->ttl},
                                             .hold_at_least = {row->hold},
                                             .mode = MODE_SLOTS,
                                             .slots = 3};
        struct deadline called = deadline_now();
        int64_t called_ms = wall_now_ms();
        lease_begin(&lease, &request, (struct deadline){S(100)}, 7);
        row_int(row->name, lease.deadline.boot_ns, row->deadline);
        row_int(row->name, lease.taken.boot_ns, S(100));
        row_true(row->name, lease.hold.boot_ns >= called.boot_ns + row->hold);
        row_true(row->name, lease.hold.boot_ns <= deadline_now().boot_ns + row->hold);
        row_true(row->name, lease.began_ms >= called_ms && lease.began_ms <= wall_now_ms());
        row_int(row->name, lease.set.ns, row->ttl);
        row_int(row->name, lease.fence, 7);
        row_int(row->name, lease.mode, MODE_SLOTS);
        row_int(row->name, lease.slots, 3);
        row_int(row->name, lease.slot, -1);
        row_false(row->name, lease.lost);
    }
}

TEST(test_grace)
{
    static const struct {
        const char *name;
        int64_t set, given, grace;
    } rows[] = {
        {"a tenth", S(20), -1, S(2)},
        {"at most 10s", S(3600), -1, S(10)},
        {"100s: just 10s", S(100), -1, S(10)},
        {"as given", S(20), S(5), S(5)},
        {"none", S(20), 0, 0},
        {"given for a lease that was cut", S(1), S(5), S(5)},
    };
    FOR_ROWS(row, rows)
    row_int(row->name, lease_grace((struct duration){row->set}, (struct duration){row->given}).ns,
            row->grace);
}

TEST(test_as_taken)
{
    static const struct {
        const char *name;
        int64_t ttl, set;
        bool same;
    } rows[] = {
        {"just so", S(20), S(20), true},
        {"a tenth less", S(20), S(18), true},
        {"a bit less than that", S(20), S(18) - 1, false},
        {"a tenth more", S(20), S(22), true},
        {"a bit more than that", S(20), S(22) + 1, false},
        {"10s of an hour", S(3600), S(3590), true},
        {"11s of an hour", S(3600), S(3589), false},
    };
    FOR_ROWS(row, rows)
    {
        const struct lease lease = {.ttl = {row->ttl}};
        row_int(row->name, lease_is_as_taken(&lease, (struct duration){row->set}), row->same);
    }
}

TEST(test_warning)
{
    static const struct {
        const char *name;
        int64_t set, deadline, warning;
    } rows[] = {
        {"the last tenth", S(20), S(100), S(98)},
        {"of an hour", S(3600), S(5000), S(4640)},
        {"no lease", 0, S(100), S(100)},
    };
    FOR_ROWS(row, rows)
    {
        const struct lease lease = {.set = {row->set}};
        row_int(row->name, lease_warning_time(&lease, (struct deadline){row->deadline}).boot_ns,
                row->warning);
    }
    struct lease lease = {.set = DURATION_S(20), .deadline = deadline_after(DURATION_S(10))};
    row_false("half of it is left", lease_as_good_as_over(&lease));
    lease.deadline = deadline_after(DURATION_MS(1900));
    row_true("less than a tenth is left", lease_as_good_as_over(&lease));
    lease.deadline = (struct deadline){1};
    row_true("nothing is left", lease_as_good_as_over(&lease));
}

/* A lease of 10 s, acquired at 100 s: it ends at 109.9 s, and at END on the store's clock. */
enum { END = 1000000 };

static struct lease a_lease(void)
{
    return (struct lease){.ttl = DURATION_S(10),
                          .set = DURATION_S(10),
                          .taken = {S(100)},
                          .deadline = {MS(109900)},
                          .granted = {MS(109900)},
                          .end_ms = END};
}

TEST(test_adopt)
{
    static const struct {
        const char *name;
        int64_t before, after, left, end_ms; /* of the check */
        int64_t deadline, granted, set;
    } rows[] = {
        {"nothing has changed", S(105), S(105), S(5), END, MS(109900), MS(109900), S(10)},
        {"the answer took a while", S(105), S(106), MS(4500), END, MS(109900), MS(109900), S(10)},
        {"the clock was read twice", S(105), S(105), MS(5020), END + 20, MS(109900), MS(109900),
         S(10)},
        {"and rounded", S(105), S(105), MS(4980), END - 20, MS(109900), MS(109900), S(10)},
        {"the store's clock was set back by 20s", S(105), S(105), S(25), END, MS(109900),
         MS(109900), S(10)},
        {"the store's clock was set ahead by 3s", S(105), S(105), S(2), END, MS(106980), MS(109900),
         S(10)},
        {"the store's clock was set beyond the end", S(105), S(105), 0, END, MS(104998), MS(109900),
         S(10)},
        {"extended by another by 10s", S(105), S(105), S(15), END + 10000, MS(119850), MS(119850),
         S(15)},
        {"extended to a minute", S(105), S(105), S(60), END + 55000, MS(164400), MS(164400), S(60)},
        {"extended to a day, counted from the question", S(105), S(106), S(86400), END + 86395000,
         S(86504), S(86504), S(86400)},
        {"extended by a little", S(105), S(105), MS(5021), END + 21, NS_PER_US * 109970790,
         NS_PER_US * 109970790, MS(5021)},
        {"cut to a second", S(105), S(105), S(1), END - 4000, MS(105990), MS(105990), S(1)},
        {"cut to nothing", S(105), S(105), 0, END - 5000, MS(104998), MS(104998), 0},
        {"the answer came after the end", S(105), S(120), MS(4800), END, MS(109900), MS(109900),
         S(10)},
    };
    FOR_ROWS(row, rows)
    {
        struct lease lease = a_lease();
        lease_adopt(&lease, (struct deadline){row->before}, (struct deadline){row->after},
                    (struct duration){row->left}, row->end_ms);
        row_int(row->name, lease.deadline.boot_ns, row->deadline);
        row_int(row->name, lease.granted.boot_ns, row->granted);
        row_int(row->name, lease.set.ns, row->set);
    }
}

TEST(test_adopt_again)
{
    struct lease lease = a_lease();
    struct deadline at = {S(105)};
    lease_adopt(&lease, at, at, DURATION_S(2), END);
    row_int("the clock was set ahead", lease.deadline.boot_ns, MS(106980));
    lease_adopt(&lease, at, at, DURATION_S(5), END);
    row_int("and set back", lease.deadline.boot_ns, MS(109900));
    lease_adopt(&lease, at, at, DURATION_S(60), END + 55000);
    lease_adopt(&lease, at, at, DURATION_S(60), END + 55000);
    row_int("extended, and asked again", lease.deadline.boot_ns, MS(164400));
    lease_adopt(&lease, at, at, DURATION_S(80), END + 55000);
    row_int("then the clock was set back", lease.deadline.boot_ns, MS(164400));
}

/* Whatever the store answers, the lease ends no later than the store keeps the lock, or than it was
 * granted for. */
TEST(test_adopt_is_safe)
{
    static const int64_t lefts[] = {0,    MS(1), MS(100), S(1),    S(5),
                                    S(9), S(10), S(11),   S(3600), S(30 * 86400)};
    static const int64_t ways[] = {0, MS(1), MS(50), S(1), S(8)};
    static const int64_t ends[] = {END - 5000, END - 21, END, END + 21, END + 3600000};
    char name[80];
    FOR_ROWS(left, lefts)
    {
        FOR_ROWS(way, ways)
        {
            FOR_ROWS(end, ends)
            {
                struct lease lease = a_lease();
                struct deadline before = {S(105)}, after = {S(105) + *way};
                snprintf(name, sizeof name, "left %" PRId64 ", way %" PRId64 ", end %" PRId64,
                         *left, *way, *end);
                lease_adopt(&lease, before, after, (struct duration){*left}, *end);
                row_true(name, lease.deadline.boot_ns <= after.boot_ns + *left);
                row_true(name, lease.deadline.boot_ns <= lease.granted.boot_ns);
                struct deadline first = lease.deadline;
                lease_adopt(&lease, before, after, (struct duration){*left}, *end);
                row_int(name, lease.deadline.boot_ns,
                        first.boot_ns); /* the same answer again changes nothing */
            }
        }
    }
}

TEST(test_extend_and_cut)
{
    static const struct {
        const char *name;
        int64_t before, least, deadline, set; /* of lease_extend() */
        int64_t cut, cut_deadline;            /* of lease_cut() after that */
    } rows[] = {
        {"extended", S(105), S(10), MS(114900), S(10), S(112), S(112)},
        {"to longer", S(105), S(60), MS(164400), S(60), S(200), MS(164400)},
        {"a promise of less", S(105), S(1), MS(109900), S(10), S(109), S(109)},
        {"cut to what is over", S(105), S(10), MS(114900), S(10), S(1), S(1)},
    };
    FOR_ROWS(row, rows)
    {
        struct lease lease = a_lease();
        lease_extend(&lease, (struct deadline){row->before}, (struct duration){row->least});
        row_int(row->name, lease.deadline.boot_ns, row->deadline);
        row_int(row->name, lease.granted.boot_ns, row->deadline);
        row_int(row->name, lease.set.ns, row->set);
        lease_cut(&lease, (struct deadline){row->cut});
        row_int(row->name, lease.deadline.boot_ns, row->cut_deadline);
        row_int(row->name, lease.granted.boot_ns, row->cut_deadline);
    }
}

TEST(test_modes)
{
    static const struct {
        enum lock_mode mode;
        const char *name;
    } rows[] = {{MODE_EXCLUSIVE, "exclusive"}, {MODE_SHARED, "shared"}, {MODE_SLOTS, "slots"}};
    static const char *const none[] = {"", "Shared", "slot", "exclusive "};
    enum lock_mode mode;
    FOR_ROWS(row, rows)
    {
        row_text(row->name, lock_mode_name(row->mode), row->name);
        row_true(row->name, lock_mode_parse(row->name, &mode) && mode == row->mode);
    }
    FOR_ROWS(row, none)
    row_false(*row, lock_mode_parse(*row, &mode));
}

static struct holder a_holder(void)
{
    return (struct holder){.known = true,
                           .pid = 10,
                           .pid_start = 500,
                           .pid_space = 4026531836,
                           .host = "h",
                           .boot_id = "b",
                           .user = "u",
                           .command = "c",
                           .since_wall_ms = 1000};
}

TEST(test_identity)
{
    const struct {
        const char *name;
        int64_t pid, start, space;
        const char *boot, *host, *command;
        bool known, near, process, same;
    } rows[] = {
        {"itself", 10, 500, 4026531836, "b", "h", "c", true, true, true, true},
        {"another process", 11, 500, 4026531836, "b", "h", "c", true, true, false, false},
        {"a later one with the same pid", 10, 501, 4026531836, "b", "h", "c", true, true, false,
         false},
        {"another container", 10, 500, 4026531999, "b", "h", "c", true, false, false, false},
        {"another boot", 10, 500, 4026531836, "b2", "h", "c", true, false, false, false},
        {"a boot without an id", 10, 500, 4026531836, "", "h", "c", true, false, false, false},
        {"a pid namespace that is not known", 10, 500, 0, "b", "h", "c", true, false, false, false},
        {"no pid", 0, 0, 4026531836, "b", "h", "c", true, false, false, false},
        {"of which nothing is told", 10, 500, 4026531836, "b", "h", "c", false, false, false,
         false},
        {"another host's name for it", 10, 500, 4026531836, "b", "h2", "c", true, true, true,
         false},
        {"that has become another command", 10, 500, 4026531836, "b", "h", "d", true, true, true,
         false},
    };
    const struct holder self = a_holder();
    FOR_ROWS(row, rows)
    {
        struct holder holder = a_holder();
        holder.known = row->known;
        holder.pid = (pid_t)row->pid;
        holder.pid_start = row->start;
        holder.pid_space = row->space;
        snprintf(holder.boot_id, sizeof holder.boot_id, "%s", row->boot);
        snprintf(holder.host, sizeof holder.host, "%s", row->host);
        snprintf(holder.command, sizeof holder.command, "%s", row->command);
        row_int(row->name, holder_is_near(&holder, &self), row->near);
        row_int(row->name, holder_is_process(&holder, &self), row->process);
        row_int(row->name, holder_is_same(&holder, &self), row->same);
    }
    struct holder nobody = a_holder(), nowhere = a_holder();
    nobody.boot_id[0] = '\0';
    row_false("neither boot has an id", holder_is_near(&nobody, &nobody));
    nowhere.pid_space = 0;
    row_false("neither pid namespace is known", holder_is_near(&nowhere, &nowhere));
}

TEST(test_holder_end)
{
    struct holder holder = a_holder();
    row_int("unknown", holder_end(&holder).boot_ns, DEADLINE_NEVER.boot_ns);
    holder.expires = true;
    row_int("over", holder_end(&holder).boot_ns, DEADLINE_NEVER.boot_ns);
    holder.left = DURATION_S(5);
    struct deadline before = deadline_now();
    int64_t end = holder_end(&holder).boot_ns;
    row_true("5s and a moment",
             end > before.boot_ns + S(5) && end <= deadline_now().boot_ns + S(5) + MS(1));
    holder.pause.left = DURATION_S(9);
    row_true("a pause that ends later", holder_end(&holder).boot_ns > before.boot_ns + S(9));
    holder.pause.left = DURATION_S(1);
    row_true("a pause that ends sooner", holder_end(&holder).boot_ns > before.boot_ns + S(5));
}

TEST(test_filled)
{
    static const struct {
        const char *name, *logname, *user, *filled;
    } rows[] = {
        {"LOGNAME counts first", "ann", "bob", "ann"},
        {"then USER", "", "bob", "bob"},
        {"no LOGNAME", NULL, "bob", "bob"},
    };
    struct proc_stat stat;
    char boot_id[sizeof(((struct holder *)NULL)->boot_id)];
    row_true("of this process", proc_stat_read(getpid(), &stat));
    proc_boot_id(boot_id, sizeof boot_id);
    FOR_ROWS(row, rows)
    {
        struct holder holder;
        if (row->logname == NULL)
            unsetenv("LOGNAME");
        else
            setenv("LOGNAME", row->logname, 1);
        setenv("USER", row->user, 1);
        holder_fill(&holder, getpid(), "make all");
        row_true(row->name, holder.known);
        row_text(row->name, holder.user, row->filled);
        row_text(row->name, holder.command, "make all");
        row_text(row->name, holder.boot_id, boot_id);
        row_int(row->name, holder.pid, getpid());
        row_int(row->name, holder.pid_start, stat.start);
        row_int(row->name, holder.pid_space, proc_pid_space());
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ENTRY("a lease is cut by 1 % at its end, 2ms to 1s", test_drift),
        ENTRY("a lease begins before its take was sent", test_begin),
        ENTRY("the grace is as given, or a tenth of the lease up to 10s", test_grace),
        ENTRY("a check that came late makes no other lease of it", test_as_taken),
        ENTRY("the warning comes with the last tenth", test_warning),
        ENTRY("a check adopts what others made of the lease, and not what was made of the store's "
              "clock",
              test_adopt),
        ENTRY("a clock that is set ahead and back, and an extension between", test_adopt_again),
        ENTRY("no answer lets a lease last longer than the store keeps the lock",
              test_adopt_is_safe),
        ENTRY("a lease is extended to no less than it has, and cut to no more",
              test_extend_and_cut),
        ENTRY("modes by name", test_modes),
        ENTRY("a holder is near, a process, the same, by what is known of it", test_identity),
        ENTRY("when a holder's lease will have ended", test_holder_end),
        ENTRY("a holder is filled in with what others need to recognize the process", test_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
