"""Runs that die, and calls of the system that fail, at any moment: the environment is the old one or the new one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.frozen import GPUINSTALL
from tests.lab import stub_torch
from tests.lab.clone import ROOT
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop
from tests.torture.bounded import Case, Ended, judged, run
from tests.torture.place import Place, gpuinstall, held_torch

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


def transfers(place: Place, times: int) -> Iterator[Case]:
    """End runs with SIGKILL at even distances in the time that uv fetches in; the run after one fetches each file once.

    The caches are empty before each pair of runs: torch has 12 MB, which takes a second.
    """
    for number in range(times):
        with place.served() as (index, hasty):
            here = replace(
                hasty, variables={**hasty.variables, "GPUINSTALL_SILENCE": "20"}
            )  # the line is slow, not dead
            wheel = next((index.folder / "whl" / "cpu").glob("torch-2.14.1+cpu-*.whl"))
            content: dict[str, str | bytes] = {**stub_torch.modules("2.14.1+cpu", "cpu")}
            content["torch/lib/filling"] = os.urandom(12_000_000)
            make_wheel(
                wheel.parent, "torch", "2.14.1+cpu", wheel.stem.split("-", 2)[2], modules=content
            )
            for host in index.hosts:
                host.pace = 0.005
            running = _start(here, "torch==2.14.1")
            while not index.sent() and running.poll() is None:
                time.sleep(0.01)
            moment = 1.2 * (number + 0.5) / times
            time.sleep(moment)
            running.send_signal(signal.SIGKILL)
            running.wait()
            there = (here.folder / ".venv").exists() and held_torch(here)
            index.forget()
            ended = gpuinstall(here, "install", "torch==2.14.1")
            twice = [
                name
                for name, size in index.sent().items()
                if size > 1.1 * (wheel.stat().st_size + 65536)
            ]
            wrong = (
                f"torch is {there}"
                if there not in {False, "2.14.1+cpu"}
                else f"sent twice: {twice}"
                if twice
                else ""
            )
            wrong = wrong or (
                ""
                if held_torch(here) == "2.14.1+cpu"
                else f"torch is {held_torch(here)} in the end"
            )
            yield judged(f"killed {moment:.2f} s into the transfer, then again", ended, {0}, wrong)


def faults(place: Place, times: int) -> Iterator[Case]:
    """Let one call of the system fail in a run, each kind at ``times`` places."""
    with place.served() as (_, here):
        gpuinstall(here, "install", "torch==2.13.0")
        for call in CALLS:
            counted = _failing(here, call, 10**9)
            total = int(counted.err.rpartition("calls: ")[2] or 0)
            for position in sorted({1 + round(step * total / times) for step in range(times)}):
                gpuinstall(here, "install", "torch==2.13.0")
                ended = _failing(here, call, position)
                held = held_torch(here)
                yield judged(
                    f"{call} {position}",
                    ended,
                    {0, 4},
                    "" if held in LABELLED else f"torch is {held}",
                )
            yield _through(here, f"the run after {call}")


def _killed(here: Workshop, number: int, moment: float) -> Case:
    running = _start(here, f"torch=={VERSIONS[number % 2]}")
    time.sleep(moment)
    running.send_signal(signal.SIGKILL)
    running.wait()
    held = held_torch(here)
    return Case(
        f"killed after {moment:.2f} s", "" if held in LABELLED else f"torch is {held}", moment
    )


def _start(here: Workshop, requirement: str) -> subprocess.Popen[bytes]:
    words = [*GPUINSTALL, "install", requirement]
    return subprocess.Popen(
        words,
        env=here.environment,
        cwd=here.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _through(here: Workshop, name: str) -> Case:
    ended = gpuinstall(here, "install", "torch==2.14.1")
    work = here.folder / ".venv.gpuinstall"
    left = {entry.name for entry in work.iterdir()} if work.exists() else set()
    strange = sorted(left - {"previous", ".gitignore", "lock"})
    return judged(name, ended, {0}, f"left {strange}" if strange else "")


def _failing(here: Workshop, call: str, position: int) -> Ended:
    words = [
        sys.executable,
        "-m",
        "tests.lab.failing",
        call,
        str(position),
        "install",
        "torch==2.14.1",
    ]
    return run(
        words,
        {**here.environment, "PYTHONPATH": str(ROOT)},
        here.folder,
        120 * (os.cpu_count() or 1),
    )
