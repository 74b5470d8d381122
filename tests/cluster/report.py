"""The report of the test: a table of steps, and a list of failures."""

import time

HEADING = ["step", "s", "requests", "failed", "events acknowledged", "result"]


class Report:
    def __init__(self):
        self.rows, self.failures = [], []

    def step(self, name, started, result):
        """Adds a step without load."""
        self.row(name, time.monotonic() - started, ["", "", ""], result)

    def under_load(self, name, traffic, result):
        """Adds a step with the results of the load."""
        self.row(name, traffic.seconds, [traffic.total, traffic.failed, len(traffic.acknowledged)], result)

    def row(self, name, seconds, counts, result):
        self.rows.append([name, f"{seconds:.1f}", *map(str, counts), result])
        print(f"{name}: {result} ({seconds:.1f} s)", flush=True)

    def fail(self, message):
        self.failures.append(message)

    def print(self):
        rows = [HEADING, *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADING))]
        print()
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        print(flush=True)
