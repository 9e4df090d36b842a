"""What every measurement is made with: programs that are timed, things that take turns, and the line of the report."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.environments import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Words = Sequence[str | Path]

TOOLS = Path(sys.executable).parent
GPUINSTALL, UV = str(TOOLS / "gpuinstall"), str(TOOLS / "uv")
PYTHON = ".".join(map(str, sys.version_info[:2]))
VERIFIED = re.compile(r"^Verified .* ([\d.]+) s$", re.MULTILINE)
"""What ``install`` says of the proof, which the bare tools do not give."""


@dataclass(frozen=True)
class Row:
    """A measurement, how it compares, and what it should be; ``met`` is None if there is no goal."""

    what: str
    ours: str = ""
    beside: str = ""
    compared: str = ""
    goal: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        marks = {
            True: "met",
            False: "MISSED",
            None: "",
        }
        figures = f"{self.ours:>9} {self.beside:>10} {self.compared:>8}"
        line = f"{self.what:<46} {figures}  {self.goal} {marks[self.met]}"
        return line.rstrip()


@dataclass(frozen=True)
class Pair:
    """The median seconds of ours and of what stands beside it."""

    ours: float
    beside: float

    @classmethod
    def of_turns(cls, turns: Sequence[tuple[float, float]]) -> Pair:
        """Return the medians of turns, each the seconds of ours and of the other."""
        ours, beside = zip(*turns, strict=True)
        return cls(statistics.median(ours), statistics.median(beside))

    def times(
        self,
        what: str,
        most: float | None = None,
    ) -> Row:
        """Return the row that says how many times as long ours takes."""
        ratio = self.ours / self.beside
        row = Row(what, duration(self.ours), duration(self.beside), f"{ratio:.2f}×")
        if most is None:
            return row
        return replace(row, goal=f"≤ {most:g}×", met=ratio <= most)

    def more(
        self,
        what: str,
        most: float | None = None,
    ) -> Row:
        """Return the row that says how many seconds more ours takes."""
        more = self.ours - self.beside
        sign = "+" if more >= 0 else ""
        compared = f"{sign}{duration(more)}"
        row = Row(what, duration(self.ours), duration(self.beside), compared)
        if most is None:
            return row
        return replace(row, goal=f"≤ {duration(most)} more", met=more <= most)


def single(
    what: str,
    took: float,
    most: float | None = None,
    beside: str = "",
) -> Row:
    """Return the row of seconds that are compared with nothing but a goal."""
    row = Row(what, duration(took), beside)
    if most is None:
        return row
    return replace(row, goal=f"≤ {duration(most)}", met=took <= most)


def duration(seconds: float) -> str:
    """Write a time."""
    if abs(seconds) < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s"


def paired(
    ours: Callable[[], float],
    beside: Callable[[], float],
    runs: int,
) -> Pair:
    """Take turns, after one turn that does not count, so that what slows the machine down slows both.

    Args:
        ours: Returns its seconds, as ``beside`` does.
        beside: What ours is compared with.
        runs: How many turns count.
    """
    turns = [(ours(), beside()) for _ in range(runs + 1)]
    return Pair.of_turns(turns[1:])


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def seconds(
    argv: Words,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> float:
    """Run a program to its good end and return how long it took."""
    return timed(partial(run, argv, env=env, cwd=cwd))


def installed(
    argv: Words,
    *,
    env: Mapping[str, str],
    cwd: Path,
) -> tuple[float, float]:
    """Run an installation of ours; return its seconds without those of its proof, and those of the proof."""
    began = time.perf_counter()
    done = _finished(argv, env, cwd)
    took = time.perf_counter() - began
    verified = VERIFIED.search(done.stderr)
    if done.returncode or not verified:
        raise RuntimeError(done.stderr)
    proof = float(verified[1])
    return took - proof, proof


def run(
    argv: Words,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a program and return its output; what it reports on failure is raised."""
    done = _finished(argv, env, cwd)
    if done.returncode:
        command = " ".join(map(str, argv))
        raise RuntimeError(
            f"{command} ended with {done.returncode}:\n{done.stderr}{done.stdout}"
        )
    return done.stdout


def _finished(
    argv: Words,
    env: Mapping[str, str] | None,
    cwd: Path | None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, argv)),
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def real_torch() -> Path | None:
    """Return the wheel of the real torch for the CPU in pip's find-links; None if there is none."""
    folder = Path(os.environ.get("PIP_FIND_LINKS") or "/nonexistent")
    python = PYTHON.replace(".", "")
    wheels = folder.glob(f"torch-{VERSION}-cp{python}-*.whl")
    return next(wheels, None)
