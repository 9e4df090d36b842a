"""Run programs alternately, and print the medians of their seconds."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.lab.host import Answer, Host

TOOLS = Path(sys.executable).parent
UV = TOOLS / "uv"
PYTHON = ".".join(map(str, sys.version_info[:2]))
RUNS = 5
ROUND_TRIP_S = 0.05
"""The duration of a request to a distant index."""
VERIFIED = re.compile(r"^Verified .* ([\d.]+) s$", re.MULTILINE)
"""The line of ``install`` about verification, which uv lacks."""
PROGRAMS = {"gpuinstall": TOOLS / "gpuinstall"}
if "BENCH_BEFORE" in os.environ:
    PROGRAMS["before"] = Path(os.environ["BENCH_BEFORE"]).absolute()


class Cost(NamedTuple):
    """Seconds of a command: real time without verification, and CPU time."""

    wall: float
    cpu: float


def measure(
    *commands: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
) -> Cost:
    """Run commands, and return their seconds, or raise the error of one."""
    start, used = time.perf_counter(), _children_seconds()
    verification = 0.0
    for command in commands:
        done = subprocess.run(
            command,
            env=env,
            cwd=cwd,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command}:\n{done.stderr}{done.stdout}")
        verified = VERIFIED.search(done.stderr)
        verification += float(verified[1]) if verified else 0
    wall = time.perf_counter() - start - verification
    return Cost(wall, _children_seconds() - used)


def _children_seconds() -> float:
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def compare(
    what: str, uv: Callable[[], Cost], own: Callable[[str], Cost], runs: int = RUNS
) -> None:
    """Print the medians of alternating runs, after one run without a result.

    Args:
        what: The row's label.
        uv: Runs uv.
        own: Runs the program with a name in ``PROGRAMS``.
        runs: The number of runs.
    """
    turns = [[uv(), *map(own, PROGRAMS)] for _ in range(runs + 1)][1:]
    medians = [
        [statistics.median(seconds) for seconds in zip(*costs, strict=True)]
        for costs in zip(*turns, strict=True)
    ]
    figures = "".join(f"{wall:9.2f} {cpu:8.2f}" for wall, cpu in medians)
    sys.stdout.write(f"{what:<40}{figures}\n")
    sys.stdout.flush()


def delay(host: Host) -> None:
    """Delay each response of a host by one round trip."""
    respond = host.respond

    def late(path: str, headers: dict[str, str]) -> Answer:
        time.sleep(ROUND_TRIP_S)
        return respond(path, headers)

    host.respond = late
