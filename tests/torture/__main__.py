"""``python -m tests.torture [PART…]``: each attack of each part, then one row of what came of it."""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.files import remove_path
from tests.hostile.escapes import PAYLOADS, SOURCES
from tests.hostile.family import NAMES
from tests.hostile.locks import KINDS as LOCKS
from tests.hostile.run_folders import ATTACKS as RUN_FOLDERS
from tests.hostile.shells import HERE
from tests.hostile.shells import NAMES as HOSTILE
from tests.hostile.test_repositories import REPOSITORIES
from tests.lab.clone import ROOT
from tests.torture import (
    attacks,
    deaths,
    hooks,
    owned,
    readers,
    scripts,
    servers,
    surroundings,
    wheels,
)
from tests.torture.bounded import Peak
from tests.torture.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.torture.bounded import Case


SHELL_LINES = len(HERE) * len(HOSTILE) * 10
"""For each shell: its own five texts, and five that are written for no shell in particular."""


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
    "family": Part(
        attacks.family,
        len(NAMES),
        f"{len(NAMES)} of PyTorch's names on the default index × wheel and source × demanded by torch and by a program",
    ),
    "repositories": Part(
        attacks.repositories, len(REPOSITORIES), f"{len(REPOSITORIES)} repositories of strangers"
    ),
    "locks": Part(
        attacks.locks,
        len(LOCKS),
        f"{len(LOCKS)} altered locks × checked, sealed anew and checked, synced from a cache",
    ),
    "run-folders": Part(
        attacks.run_folders,
        sum(len(attack.commands) for attack in RUN_FOLDERS.values()),
        f"{len(RUN_FOLDERS)} kinds of run folder that others may write to × the commands that are run there",
    ),
    "escapes": Part(
        attacks.escapes,
        len(SOURCES) * len(PAYLOADS),
        f"{len(SOURCES)} places that a text comes from × {len(PAYLOADS)} that deceive, as a terminal shows them",
    ),
    "shells": Part(
        attacks.shells,
        SHELL_LINES,
        f"lines that are printed for a shell, of {len(HOSTILE)} names, run",
    ),
    "settings": Part(
        surroundings.settings,
        len(surroundings.SETTINGS),
        f"{len(surroundings.SETTINGS)} settings of strangers that choose a source × named, refused without trust",
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
        "a hook ended by SIGKILL, or its file saved by others meanwhile × files of pip and uv; then removed",
    ),
    "scripts": Part(
        scripts.scripts,
        6,
        f"{scripts.AT_ONCE} scripts started at once, all of them looking unused, beside runs that are killed",
    ),
    "readers": Part(readers.readers, 300, "damaged documents for five minutes for each reader"),
}

PAGE = ROOT / "docs" / "evidence" / "torture.md"
HEAD = """\
# Attacks

What `python -m tests.torture --write` printed (`make torture` does the same without this page), on Linux x86_64 with
two cores that others used too, over loopback alone, without a GPU. An attack is broken where the run did not end within
its time, ended with a status that it should not have, left something half done or a traceback, touched what is not
its own, or where a process of ours or uv took more than 300 MB. uv is another program. It may hold 200 MB more than
twice what it has read from files and written to them, and 500 MB at most; then our watch ends it. What a server sends
is in no file until uv has put it into its cache, so an answer without an end stands out. The sound requests that were
tried against a real index (Linux, uv 0.13.8: apache-airflow[all], torch with vllm, ray[all] with transformers[all] and
mlflow, and, stopped after at most 70 s, old releases of airflow and awscli with boto3 and s3fs; most from an empty
cache, some from a full one, one from pages of HTML) were 6 to 68 MB above twice that, with up to 307 MB in all: awscli
most of all, whose old wheels are read by range. With uv's own 50 answers at once it is 150 MB for that, so uv is told
16.

| part | what | attacks | broken | ours | uv | the longest | in all | date |
|---|---|---|---|---|---|---|---|---|
"""


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
        """A row of the page's table, and a line for each reader."""
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
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"put the rows into {PAGE.name}, beside those of other parts",
    )
    options = parser.parse_args()
    if options.write and options.share < 1:
        parser.error("the page is of all of a part")
    folder, broken = Path(tempfile.mkdtemp(prefix="torture-")), 0
    try:
        place = Place.prepare(folder)
        for name in options.parts or PARTS:
            came = _attack(place, name, options.share)
            broken += len(came.broken)
            if options.write:
                _write(came.lines(), name)
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


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _write(lines: Iterable[str], name: str) -> None:
    """Put a part's lines into the page, in the place of those that it has of it."""
    there = PAGE.read_text("utf-8").removeprefix(HEAD).splitlines() if PAGE.exists() else []
    found = {
        part: [line for line in there if line.startswith((f"| {part} |", f"- {part}:"))]
        for part in PARTS
    }
    found[name] = list(lines)
    said = [line for part in PARTS for line in found[part]]
    rows = [line for line in said if line.startswith("|")]
    others = [line for line in said if not line.startswith("|")]
    PAGE.write_text(HEAD + "\n".join([*rows, *(["", *others] if others else []), ""]), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
