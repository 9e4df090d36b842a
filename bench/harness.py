"""Time programs alternately and format the lines of the report."""

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
"""The line of ``install`` about verification, which uv and pip lack."""


@dataclass(frozen=True)
class Row:
    """A measurement with its goal; ``met`` is None without one."""

    what: str
    ours: str = ""
    other: str = ""
    compared: str = ""
    goal: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        marks = {
            True: "met",
            False: "MISSED",
            None: "",
        }
        figures = f"{self.ours:>9} {self.other:>10} {self.compared:>8}"
        line = f"{self.what:<46} {figures}  {self.goal} {marks[self.met]}"
        return line.rstrip()


@dataclass(frozen=True)
class Pair:
    """The median seconds of gpuinstall and of the other tool."""

    ours: float
    other: float

    @classmethod
    def of_turns(cls, turns: Sequence[tuple[float, float]]) -> Pair:
        """Return the medians of turns."""
        ours, other = zip(*turns, strict=True)
        return cls(statistics.median(ours), statistics.median(other))

    def times(
        self,
        what: str,
        most: float | None = None,
    ) -> Row:
        """Return the row with the ratio of both."""
        ratio = self.ours / self.other
        row = Row(what, duration(self.ours), duration(self.other), f"{ratio:.2f}×")
        if most is None:
            return row
        return replace(row, goal=f"≤ {most:g}×", met=ratio <= most)

    def more(
        self,
        what: str,
        most: float | None = None,
    ) -> Row:
        """Return the row with the difference of both."""
        more = self.ours - self.other
        sign = "+" if more >= 0 else ""
        compared = f"{sign}{duration(more)}"
        row = Row(what, duration(self.ours), duration(self.other), compared)
        if most is None:
            return row
        return replace(row, goal=f"≤ {duration(most)} more", met=more <= most)


def single(
    what: str,
    took: float,
    most: float | None = None,
    other: str = "",
) -> Row:
    """Return the row of seconds without a comparison."""
    row = Row(what, duration(took), other)
    if most is None:
        return row
    return replace(row, goal=f"≤ {duration(most)}", met=took <= most)


def duration(seconds: float) -> str:
    """Format a duration."""
    if abs(seconds) < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s"


def paired(
    ours: Callable[[], float],
    other: Callable[[], float],
    runs: int,
) -> Pair:
    """Measure alternately after a warm-up, so that load affects both equally.

    Args:
        ours: Returns its seconds.
        other: Returns the seconds of the other tool.
        runs: The number of turns.
    """
    turns = [(ours(), other()) for _ in range(runs + 1)]
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
    """Run a program and return its seconds."""
    return timed(partial(run, argv, env=env, cwd=cwd))


def installed(
    argv: Words,
    *,
    env: Mapping[str, str],
    cwd: Path,
) -> tuple[float, float]:
    """Run an installation; return the seconds without and of verification."""
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
    """Run a program and return its output, or raise its error."""
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
    """Return torch's CPU wheel in pip's find-links, or None."""
    folder = Path(os.environ.get("PIP_FIND_LINKS") or "/nonexistent")
    python = PYTHON.replace(".", "")
    wheels = folder.glob(f"torch-{VERSION}-cp{python}-*.whl")
    return next(wheels, None)
