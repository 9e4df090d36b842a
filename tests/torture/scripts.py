"""Scripts that are started at once, killed, and pruned at any moment: every other one runs to its end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from tests.frozen import GPUINSTALL
from tests.lab.workshop import Workshop
from tests.torture.bounded import Case, judged
from tests.torture.place import Place, gpuinstall

AT_ONCE = 8
KILLED = 2
"""How many further scripts of each round are killed."""
SECONDS = 500.0
"""What a run may take that shares two cores with nine others."""
EVERY_S = 0.2
VERSIONS = ("2.13.0", "2.14.1")
SCRIPT = """\
# /// script
# requires-python = "=={python}.*"
# dependencies = ["torch=={torch}"]
# ///
import pathlib, time
import torch
time.sleep(2)
print(torch.__version__, "whole" if pathlib.Path(torch.__file__).exists() else "lost")
"""


def scripts(place: Place, rounds: int) -> Iterator[Case]:
    """Start scripts together, while all environments are pruned and some runs are killed."""
    chance = random.Random(5)
    with place.served() as (_, here):
        names = [_write(here, number) for number in range(AT_ONCE + KILLED)]
        usual = gpuinstall(here, "run", names[0], seconds=SECONDS)
        yield judged("a script by itself", usual, {0}, _wrong(usual.out, 0))
        for number in range(rounds):
            yield from _round(here, names, number, chance, usual.seconds)


def _write(here: Workshop, number: int) -> str:
    name = f"train{number}.py"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = SCRIPT.format(python=python, torch=VERSIONS[number % len(VERSIONS)])
    (here.folder / name).write_text(text, encoding="utf-8")
    return name


def _round(
    here: Workshop, names: list[str], number: int, chance: random.Random, seconds: float
) -> Iterator[Case]:
    """Start all scripts together, in another order each time; the last ones are killed."""
    order = chance.sample(range(len(names)), len(names))
    start = partial(gpuinstall, here, "run", seconds=SECONDS)
    with (
        _pruned(here),
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        ends = {which: threads.submit(start, names[which]) for which in order[:AT_ONCE]}
        for which in order[AT_ONCE:]:
            # Together they take much longer than one alone.
            _kill(here, names[which], chance.uniform(0, seconds * AT_ONCE / 2))
        for which, waiting in ends.items():
            ended = waiting.result()
            name = f"{names[which]} of round {number + 1}"
            yield judged(name, ended, {0}, _wrong(ended.out, which) if ended.status == 0 else "")


@contextmanager
def _pruned(here: Workshop) -> Iterator[None]:
    """Remove what may be removed, again and again."""
    is_over = threading.Event()

    def prune():
        while not is_over.wait(EVERY_S):
            gpuinstall(here, "env", "prune", "--yes")

    thread = threading.Thread(target=prune)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _kill(here: Workshop, name: str, moment: float):
    running = subprocess.Popen(
        [*GPUINSTALL, "run", name],
        env=here.environment,
        cwd=here.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(moment)
    running.send_signal(signal.SIGKILL)
    running.wait()


def _wrong(out: str, number: int) -> str:
    expected = f"{VERSIONS[number % len(VERSIONS)]}+cpu whole"
    return "" if out.strip() == expected else f"it printed {out.strip()!r}"
