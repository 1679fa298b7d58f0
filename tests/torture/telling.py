"""What a checker reports about a history."""

from figures import Table


def tell(checker, complaints_most=40):
    """Prints the report, and returns whether everything was as promised."""
    wrong, history = checker.wrong, checker.history
    if not any(counts["takes"] for counts in checker.counts.values()):
        wrong.append(("", "nothing was ever taken"))
    for backend, text in wrong[:complaints_most]:
        print("%s%s" % (backend + ": " if backend else "", text))
    if len(wrong) > complaints_most:
        print("... and %d more" % (len(wrong) - complaints_most))
    for backend in sorted(backend for backend in checker.counts if backend):
        tell_backend(checker, backend, checker.counts[backend])
    if history.late:
        print("the machine woke a worker 3 ms late or more: %d times, at most %.0f ms" % (
            len(history.late), 1000 * max(by for _, by in history.late)))
    return not wrong


def tell_backend(checker, backend, counts):
    wrong = sum(where == backend for where, _ in checker.wrong)
    seconds = (checker.history.last or 0) - (checker.history.first or 0)
    print("%s: %d takes, %d hand-overs after a lease's end, %d stops (124), %d overlaps, %d wrong" % (
        backend, counts["takes"], counts["hand-overs after a lease's end"], counts["stops (124)"], counts["overlaps"], wrong))
    print("  %d runs of dlock in %.0f s; killed: %d, frozen: %d, of these waiting in a group: %d, sent signals: %d, "
          "a flood of them: %d; locks taken away: %d" % (
              counts["runs"], seconds, *(counts[what] for what in ("dlocks killed", "dlocks frozen", "in groups", "signals",
                                                                   "flooded", "locks taken away"))))
    if counts["newer"]:
        print("  of the next format: %d runs, and so many of the older one refused: %d" % (counts["newer"], counts["status: 78"]))
    drawn = [what[len("drawn: "):] for what in sorted(counts) if what.startswith("drawn: ") and counts[what]]
    if drawn:
        print("  deeds done, of those drawn: %s" % ", ".join(
            "%s %d of %d" % (what, counts["done: " + what], counts["drawn: " + what]) for what in drawn))
    for title, start in (("hand-overs from one to one who waited", "order: "), ("exit statuses", "status: "),
                         ("faults drawn", "fault: "), ("faults that could not be played", "failed fault: ")):
        told = ["%s %d" % (what[len(start):], counts[what]) for what in sorted(counts) if what.startswith(start) and counts[what]]
        if told:
            print("  %s: %s" % (title, ", ".join(told)))
    print("  latest life of a command after its deadline: %.1f ms; overlaps of leases below %d ms: %d; "
          "while the machine was late: %d" % (1000 * checker.most_overrun[backend], 1000 * checker.strict_ttl,
                                              counts["short overlaps"], counts["late overlaps"]))
    print("  longest wait for a free lock: %.3f s" % checker.longest_free[backend])
    print("  memories of locks judged: %d, estimates of run times: %d; pauses: %d; refused with --once-per: %d" % (
        counts["memories"], counts["run times"], counts["pauses"], counts["skips"]))
    if counts["machine stalled"]:
        print("  put down to a machine that stalled: %d" % counts["machine stalled"])
    excused = {what[9:]: counts[what] for what in sorted(counts) if what.startswith("excused: ")}
    for reason, number in excused.items():
        print("  at once by design: %d (%s)" % (number, reason))


# The reasons why two may overlap, by a word in each, in the order and the words of doc/reliability.md.
REASONS = ("daemon", "dying", "frozen", "taken away", "lost")


def figures_of(checker):
    """The table of doc/reliability.md."""
    header = ["stage", "takes", "runs of dlock", "after a lease's end; order", "pauses; refused by `--once-per`", "deeds", "faults",
              "at once, excused", "overlaps", "wrong", "longest wait", "time"]
    return Table("", header, [row_of(checker, backend) for backend in sorted(filter(None, checker.counts))])


def row_of(checker, backend):
    counts, history = checker.counts[backend], checker.history
    excused = {what[9:]: counts[what] for what in sorted(counts) if what.startswith("excused: ")}
    deeds, faults = ([counts[what] for what in counts if what.startswith(start) and counts[what]] for start in ("done: ", "fault: "))
    at_once = {word: sum(number for reason, number in excused.items() if word in reason) for word in REASONS}
    at_once["late"] = counts["late overlaps"] + counts["short overlaps"]
    return ["`%s`" % backend, "{:,}".format(counts["takes"]), "{:,}".format(counts["runs"]),
            "%d; %d" % (counts["hand-overs after a lease's end"], counts["order: checked"]),
            "%d; %d" % (counts["pauses"], counts["skips"]), *("{:,} of {} kinds".format(sum(drawn), len(drawn)) for drawn in (deeds, faults)),
            ", ".join("%s %d" % pair for pair in at_once.items() if pair[1]) or "-", str(counts["overlaps"]),
            str(sum(where == backend for where, _ in checker.wrong)), "%.1f s" % checker.longest_free[backend],
            "%.0f s" % ((history.last or 0) - (history.first or 0))]
