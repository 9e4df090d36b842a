"""Runs of ``run --any`` and ``env remove`` that die among files of the user's: none of these is ever lost."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace

from tests.frozen import GPUINSTALL
from tests.lab.workshop import Workshop
from tests.torture.bounded import Case, judged
from tests.torture.place import Place, gpuinstall

START = (
    "run",
    "--any",
    "--no-proof",
    "--install",
    "--replace",
    "python",
    "-c",
    "pass",
)
REMOVE = ("env", "remove", "--venv", ".venv-cpu", "--yes")
PLACES = (
    ".venv-cpu",
    ".venv-cpu/notes",
    ".venv-cpu/lib",
    ".venv-cpu.gpuinstall",
    ".venv-cpu.gpuinstall/previous",
    ".venv-cpu.kept",
)
THROUGH = 10
"""After so many deaths a run is let through."""


def starts(place: Place, times: int) -> Iterator[Case]:
    """End runs with SIGKILL at random moments, each after the user has put a file somewhere."""
    chance = random.Random(1)
    with place.served() as (_, served):
        here = replace(served, variables={**served.variables, "GPUINSTALL_ALLOW_CPU": "1"})
        locks = []
        for version in ("2.13.0", "2.14.1"):
            gpuinstall(here, "lock", f"torch=={version}", "--target", "cpu")
            locks.append((here.folder / "pylock.cpu.toml").read_text(encoding="utf-8"))
        usual = gpuinstall(here, *START)
        yield judged("a run that is let through", usual, {0})
        for number in range(times):
            folder = here.folder / PLACES[number % len(PLACES)]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"mine-{number}").write_text("mine", encoding="utf-8")
            # Another lock in the place of the last one: there is something to replace.
            (here.folder / "pylock.cpu.toml").write_text(locks[number % 2], encoding="utf-8")
            words = REMOVE if number % 4 == 3 else START
            moment = chance.uniform(0, usual.seconds)
            yield _killed(here, words, moment, made=number + 1)
            if number % THROUGH == THROUGH - 1:
                ended = gpuinstall(here, *START)
                yield judged(
                    f"the run after {number + 1} deaths", ended, {0}, _lost(here, number + 1)
                )


def _killed(here: Workshop, words: tuple[str, ...], moment: float, *, made: int) -> Case:
    running = subprocess.Popen(
        [*GPUINSTALL, *words],
        env=here.environment,
        cwd=here.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(moment)
    running.send_signal(signal.SIGKILL)
    running.wait()
    return Case(f"{words[0]} killed after {moment:.2f} s", _lost(here, made), moment)


def _lost(here: Workshop, made: int) -> str:
    """Name the files of the user's that are nowhere any more."""
    there = {path.name for path in here.folder.rglob("mine-*")}
    lost = sorted({f"mine-{number}" for number in range(made)} - there)
    return f"lost {', '.join(lost)}" if lost else ""
