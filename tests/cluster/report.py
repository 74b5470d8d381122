"""What the test saw: a table of its steps, and what was not as it must be."""

import time

HEADING = ["step", "s", "requests", "failed", "events acknowledged", "result"]


class Report:
    def __init__(self):
        self.rows, self.complaints = [], []

    def step(self, name, started, result):
        """What took how long."""
        self.row(name, time.monotonic() - started, ["", "", ""], result)

    def under_load(self, name, traffic, result):
        """What happened to the load meanwhile."""
        self.row(name, traffic.seconds, [traffic.total, traffic.failed, len(traffic.acknowledged)], result)

    def row(self, name, seconds, counts, result):
        self.rows.append([name, f"{seconds:.1f}", *map(str, counts), result])
        print(f"{name}: {result} ({seconds:.1f} s)", flush=True)

    def complain(self, what):
        self.complaints.append(what)

    def print(self):
        rows = [HEADING, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADING))]
        print()
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        print(flush=True)
