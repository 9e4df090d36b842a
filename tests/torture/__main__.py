"""``python -m tests.torture [PART…]``: each attack of each part, then one row of what came of it."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base.files import remove_path
from tests.torture import (
    deaths,
    hooks,
    owned,
    readers,
    scripts,
    servers,
    surroundings,
    wheels,
)
from tests.torture.bounded import Case, Peak
from tests.torture.place import Place


class Part(NamedTuple):
    """Attacks of one kind; ``whole`` says how much of them is all: runs, kinds, or seconds for each reader."""

    attack: Callable[[Place, int], Iterator[Case]]
    whole: int
    said: str


PARTS = {
    "kills": Part(
        deaths.kills,
        200,
        "an installation ended by SIGKILL at a random moment; each tenth is let through",
    ),
    "transfers": Part(
        deaths.transfers,
        30,
        "an installation ended by SIGKILL at even distances while uv fetches, then the same again",
    ),
    "faults": Part(
        deaths.faults, 12, "a rename, fsync, flock, mkdir or unlink of an installation fails"
    ),
    "starts": Part(
        owned.starts,
        60,
        "run --any --install --replace and env remove ended by SIGKILL among files of the user's",
    ),
    "servers": Part(
        servers.servers,
        len(servers.MANNERS),
        f"{len(servers.MANNERS)} kinds of server × page, metadata and wheel of both indexes",
    ),
    "wheels": Part(
        wheels.wheels,
        len(wheels.KINDS),
        f"{len(wheels.KINDS)} kinds of wheel that torch demands × an environment of ours and of others",
    ),
    "signals": Part(
        surroundings.signals,
        500,
        "an installation ended by a signal at a random moment, the parent alone or the group",
    ),
    "temporary": Part(
        surroundings.temporary,
        len(surroundings.SIZES) * len(surroundings.COMMANDS),
        "full folders for temporary files and limits of the shell × commands",
    ),
    "environments": Part(
        surroundings.environments,
        len(surroundings.STARTS),
        f"{len(surroundings.STARTS)} environments of others that do ill as they start × --into, verify, doctor",
    ),
    "clocks": Part(
        surroundings.clocks, 4, "files of another time, as after a clock was set back × commands"
    ),
    "bootstraps": Part(
        surroundings.bootstraps, 40, "bootstrap.py beside modules called as the standard library's"
    ),
    "hooks": Part(
        hooks.hooks,
        60,
        "a hook ended by SIGKILL × files of pip and uv; then removed",
    ),
    "scripts": Part(
        scripts.scripts,
        6,
        f"{scripts.AT_ONCE} scripts started at once, all of them looking unused, beside runs that are killed",
    ),
    "readers": Part(readers.readers, 300, "damaged documents for five minutes for each reader"),
}


class Came(NamedTuple):
    """What came of a part."""

    name: str
    cases: tuple[Case, ...]
    seconds: float

    @property
    def broken(self) -> list[Case]:
        """The attacks that did not fail."""
        return [case for case in self.cases if _fault(case)]

    def lines(self) -> Iterator[str]:
        """A row of a table, and a line for each reader."""
        peak = Peak()
        for case in self.cases:
            peak |= case.peak
        said = (
            PARTS[self.name].said,
            len(self.cases),
            len(self.broken),
            f"{peak.ours // 1_000_000} MB",
            f"{peak.uv // 1_000_000} MB" if peak.uv else "",
            f"{max(case.seconds for case in self.cases):.1f} s",
            f"{self.seconds / 60:.0f} min",
            datetime.datetime.now(tz=datetime.timezone.utc).date(),
        )
        yield f"| {self.name} | {' | '.join(map(str, said))} |"
        yield from (f"- {self.name}: {case.name}" for case in self.cases if self.name == "readers")


def main() -> int:
    """Attack, and say what held; 1 where something did not."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (all)"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="how much of each part, up to 1 (all of it)"
    )
    options = parser.parse_args()
    folder, broken = Path(tempfile.mkdtemp(prefix="torture-")), 0
    try:
        place = Place.prepare(folder)
        for name in options.parts or PARTS:
            came = _attack(place, name, options.share)
            broken += len(came.broken)
    finally:
        remove_path(folder)  # deeper than Python's own would go
    return 1 if broken else 0


def _fault(case: Case) -> str:
    """What was not as it should be, too much memory included."""
    return case.fault or case.peak.fault


def _attack(place: Place, name: str, share: float) -> Came:
    """Run one part, saying what did not hold at once."""
    start, cases = time.monotonic(), []
    for case in PARTS[name].attack(place, max(1, round(PARTS[name].whole * share))):
        cases.append(case)
        if said := _fault(case):
            _say(f"  {name}: {case.name}: {said}")
    came = Came(name, tuple(cases), time.monotonic() - start)
    _say(*came.lines())
    return came


def _say(*lines: str):
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
