"""Prints how long each pattern of the failure table takes for the worst text made from itself: the slowest first.

``python -m tools.pattern_times [COUNT]``. A text has as many characters as a quarter of the widest window in a log.
"""

from __future__ import annotations

import sys

from tests.unit.failures.attacks import patterns, worst_seconds


def main(count: int | None) -> None:
    """Print milliseconds of processor time and the pattern, then what all of them take."""
    times = [(worst_seconds(pattern, 0.0), pattern.says) for pattern in patterns()]
    times.sort(reverse=True)
    for seconds, says in times[:count]:
        write_line(seconds, says)
    write_line(sum(seconds for seconds, _ in times), f"all {len(times)} patterns")


def write_line(seconds: float, says: str) -> None:
    """Write one line of the list."""
    sys.stdout.write(f"{seconds * 1000:8.3f} ms  {says}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else None)
