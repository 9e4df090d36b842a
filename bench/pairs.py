"""Paired timing: two things take turns, so that what slows the machine down slows both, and medians are compared."""

from __future__ import annotations

import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Pair:
    """The median seconds of ours and of what stands beside it."""

    ours: float
    beside: float

    @property
    def ratio(self) -> float:
        """How many times as long ours takes."""
        return self.ours / self.beside


def paired(ours: Callable[[], float], beside: Callable[[], float], runs: int) -> Pair:
    """Take turns ``runs`` times, after one turn that does not count; each returns its seconds."""
    ours(), beside()
    taken = [(ours(), beside()) for _ in range(runs)]
    return Pair(statistics.median(one for one, _ in taken), statistics.median(other for _, other in taken))


def seconds(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> float:
    """Run a program to its good end and return how long it took."""
    began = time.perf_counter()
    run(argv, env=env, cwd=cwd)
    return time.perf_counter() - began


def run(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program and return its output; what it says on failure is raised."""
    words = [str(word) for word in argv]
    done = subprocess.run(
        words, env=env, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr}{done.stdout}")
    return done.stdout
