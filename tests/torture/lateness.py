"""How late the machine was, and when.

A busy machine lets those wait who should run. What is put down to that is measured where it happened: one stall is no
excuse for what goes wrong a minute later.
"""

import collections

# A busy machine delays wake-ups least; forks and deaths wait longer. So a late one counts in this step and the next.
STEP = 0.5


class Lateness:
    def __init__(self, late):
        """`late`: (when, by how much) a process was woken late, in seconds."""
        self.steps = collections.defaultdict(float)
        for stamp, by in late:
            for step in range(int((stamp - by) / STEP), int(stamp / STEP) + 1):
                self.steps[step] = max(self.steps[step], by)

    def near(self, begin, end=None):
        """The largest delay of any process in that time, or just before or after it."""
        last = begin if end is None else max(begin, end)
        return max(self.steps.get(step, 0) for step in range(int(begin / STEP) - 1, int(last / STEP) + 2))
