"""Runs that die, and calls of the system that fail, at any moment: the environment is the old one or the new one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.torture.bounded import Case, judged, run
from tests.torture.place import gpuinstall, held_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.workshop import Workshop
    from tests.torture.bounded import Ended
    from tests.torture.place import Place

VERSIONS = ("2.13.0", "2.14.1")
LABELLED = {f"{version}+cpu" for version in VERSIONS}
CALLS = ("rename", "fsync", "flock", "mkdir", "unlink")
WHOLE = 10
"""After so many deaths a run is let through, which is to leave nothing behind."""


def kills(place: Place, times: int) -> Iterator[Case]:
    """End runs with SIGKILL at random moments."""
    chance = random.Random(1)
    with place.served() as (_, here):
        for version in VERSIONS:
            usual = gpuinstall(here, "install", f"torch=={version}")
            yield judged("a run that is let through", usual, {0})
        for number in range(times):
            yield _killed(here, number, chance.uniform(0, usual.seconds))
            if number % WHOLE == WHOLE - 1:
                yield _through(here, f"the run after {number + 1} deaths")


def faults(place: Place, times: int) -> Iterator[Case]:
    """Let one call of the system fail in a run, each kind at ``times`` places."""
    with place.served() as (_, here):
        gpuinstall(here, "install", "torch==2.13.0")
        for call in CALLS:
            counted = _failing(here, call, 10**9)
            total = int(counted.err.rpartition("calls: ")[2] or 0)
            for position in sorted({1 + round(step * total / times) for step in range(times)}):
                gpuinstall(here, "install", "torch==2.13.0", "--no-keep")
                ended = _failing(here, call, position)
                held = held_torch(here)
                yield judged(f"{call} {position}", ended, {0, 4}, "" if held in LABELLED else f"torch is {held}")
            yield _through(here, f"the run after {call}")


def _killed(here: Workshop, number: int, moment: float) -> Case:
    words = [*GPUINSTALL, "install", f"torch=={VERSIONS[number % 2]}"]
    running = subprocess.Popen(
        words, env=here.environment, cwd=here.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(moment)
    running.send_signal(signal.SIGKILL)
    running.wait()
    held = held_torch(here)
    return Case(f"killed after {moment:.2f} s", "" if held in LABELLED else f"torch is {held}", moment)


def _through(here: Workshop, name: str) -> Case:
    ended = gpuinstall(here, "install", "torch==2.14.1")
    work = here.folder / ".venv.gpuinstall"
    left = {entry.name for entry in work.iterdir()} if work.exists() else set()
    strange = sorted(left - {"previous", ".gitignore", "lock"})
    return judged(name, ended, {0}, f"left {strange}" if strange else "")


def _failing(here: Workshop, call: str, position: int) -> Ended:
    words = [sys.executable, "-m", "tests.lab.failing", call, str(position), "install", "torch==2.14.1"]
    return run(words, {**here.environment, "PYTHONPATH": str(ROOT)}, here.folder, 120 * (os.cpu_count() or 1))
