"""``python -m tests.torture [PART…] [--share N]``: each attack of each part, then one line of what came of it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.files import remove
from tests.hostile.family import NAMES
from tests.hostile.locks import KINDS as LOCKS
from tests.hostile.test_repositories import REPOSITORIES
from tests.torture import attacks, deaths, readers, servers, wheels
from tests.torture.bounded import MEMORY_BYTES
from tests.torture.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.torture.bounded import Case

PARTS: dict[str, tuple[Callable[[Place, int], Iterator[Case]], int]] = {
    "kills": (deaths.kills, 200),
    "faults": (deaths.faults, 12),
    "servers": (servers.servers, len(servers.MANNERS)),
    "wheels": (wheels.wheels, len(wheels.KINDS)),
    "family": (attacks.family, len(NAMES)),
    "repositories": (attacks.repositories, len(REPOSITORIES)),
    "locks": (attacks.locks, len(LOCKS)),
    "readers": (readers.readers, 300),
}
"""Each part, and how much of it is all: runs, kinds, or seconds for each reader."""


def main() -> int:
    """Attack, and say what held; 1 where something did not."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (all)")
    parser.add_argument("--share", type=float, default=1.0, help="how much of each part, up to 1 (all of it)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        place = Place.prepare(folder)
        broken = [_attack(place, name, options.share) for name in options.parts or PARTS]
    finally:
        remove(folder)  # deeper than Python's own would go
    return 1 if any(broken) else 0


def _fault(case: Case) -> str:
    """What was not as it should be, too much memory included."""
    return case.fault or (f"{case.peak // 1_000_000} MB" if case.peak > MEMORY_BYTES else "")


def _attack(place: Place, name: str, share: float) -> int:
    """Run one part; return how many of its attacks did not fail."""
    part, whole = PARTS[name]
    start, cases = time.monotonic(), []
    for case in part(place, max(1, round(whole * share))):
        cases.append(case)
        if said := _fault(case):
            sys.stdout.write(f"  {name}: {case.name}: {said}\n")
        elif name == "readers":
            sys.stdout.write(f"  {name}: {case.name}\n")
    broken = sum(bool(_fault(case)) for case in cases)
    peak = max((case.peak for case in cases), default=0) // 1_000_000
    longest = max((case.seconds for case in cases), default=0.0)
    took = time.monotonic() - start
    line = f"{name:<14}{len(cases):>7} attacks {broken:>4} broken   {peak:>4} MB   {longest:>6.1f} s the longest"
    sys.stdout.write(f"{line}   {took:>6.0f} s\n")
    sys.stdout.flush()
    return broken


if __name__ == "__main__":
    sys.exit(main())
