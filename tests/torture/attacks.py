"""Names, repositories and locks of strangers, as the tests of ``tests/hostile`` craft them, each run within limits."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from itertools import islice, product
from typing import TYPE_CHECKING

import tomli
import tomli_w

from tests.frozen import GPUINSTALL
from tests.hostile import run_folders as hostile_run_folders
from tests.hostile.escapes import PAYLOADS, SOURCES, seen
from tests.hostile.family import NAMES as FAMILY
from tests.hostile.family import TAG, TORCH, Attack
from tests.hostile.locks import KINDS as LOCKS
from tests.hostile.locks import tampered
from tests.hostile.repository import Repository
from tests.hostile.run_folders import ATTACKS as RUN_FOLDERS
from tests.hostile.shells import HERE, NAMES, SHELLS, printed, tried
from tests.hostile.test_repositories import REPOSITORIES
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop
from tests.torture.bounded import Case, judged, run
from tests.torture.place import gpuinstall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.torture.place import Place

LOCK = f"pylock.{TAG}.toml"
ASK = ("lock", "--target", TAG, f"torch=={TORCH}")


def family(place: Place, count: int) -> Iterator[Case]:
    """PyTorch's names on the default index, as a wheel and as source: demanded by torch and by a program."""
    for name in islice(FAMILY, count):
        for kind, wheels in (("wheel", True), ("source", False)):
            with place.served() as (index, here):
                attack = Attack(index, here.caches.parent / "executed")
                for wheel in (index.folder / "whl" / TAG).glob(f"{name.replace('-', '_')}-*"):
                    wheel.unlink()
                attack.plant([name], wheels=wheels, sources=not wheels)
                attack.demand([name])
                make_wheel(index.folder / "simple", "some-program", "1.0", requires=[name])
                for words in (ASK, (*ASK, "some-program")):
                    ended = gpuinstall(here, *words)
                    done = [f"asked for {path}" for path in attack.asked([name])]
                    done += ["its code ran"] if attack.mark.exists() else []
                    yield judged(f"{name} as a {kind}, {words[-1]}", ended, {3, 4}, ", ".join(done))


def repositories(place: Place, count: int) -> Iterator[Case]:
    """Folders that a stranger filled; what is the person's stays as it is."""
    for number, (name, hostile) in enumerate(islice(REPOSITORIES.items(), count)):
        repository = Repository(place.folder / f"home {number}")
        repository.prepare()
        hostile.craft(repository)
        before, person = repository.victims(), {"HOME": str(repository.home), "UV_OFFLINE": "1"}
        here = Workshop(repository.folder, repository.home / "caches", person)
        for words in hostile.commands:
            ended = run([*GPUINSTALL, *shlex.split(words)], here.environment, here.folder)
            more = "" if repository.victims() == before else "something of the person's was touched"
            yield judged(f"{name}: {words}", ended, {0, 2, 3, 4, 5, 6, 8}, more)


def run_folders(place: Place, count: int) -> Iterator[Case]:
    """Run folders that others may write to: each kind, and every command that is run there."""
    every = [(name, words) for name, attack in RUN_FOLDERS.items() for words in attack.commands]
    for number, (name, words) in enumerate(every[:: max(1, len(every) // count)]):
        repository = Repository(place.folder / f"run {number}")
        repository.prepare()
        hostile_run_folders.prepare(repository)
        RUN_FOLDERS[name].craft(repository)
        before = repository.victims()
        person = {
            "HOME": str(repository.home),
            "UV_OFFLINE": "1",
            "GPUINSTALL_SCRATCH": str(repository.home / "caches"),
        }
        here = Workshop(repository.folder, repository.home / "caches", person)
        ended = gpuinstall(here, *words.split(), "--run-dir", str(repository.folder))
        more = "" if repository.victims() == before else "something of the person's was touched"
        yield judged(f"{name}: {words}", ended, {0, 2, 4, 5, 6, 7}, more)


def escapes(place: Place, count: int) -> Iterator[Case]:
    """Texts from outside, as somebody sees them in a terminal."""
    every = [*product(SOURCES, PAYLOADS)]
    for number, (source, payload) in enumerate(every[:: max(1, len(every) // count)]):
        repository = Repository(place.folder / f"escape {number}")
        repository.prepare()
        person = {"HOME": str(repository.home), "UV_OFFLINE": "1"}
        here = Workshop(repository.folder, repository.home / "caches", person)
        case = seen(SOURCES[source], PAYLOADS[payload], repository, here.environment, place.folder)
        yield replace(case, name=f"{source} that {payload}")


def shells(place: Place, count: int) -> Iterator[Case]:
    """Lines that are printed for a shell, with names as somebody chooses them, run in each that is here."""
    every = [
        (program, what, line)
        for program, name in product(HERE, NAMES)
        for shell in (SHELLS[program], None)
        for what, line in printed(name, shell)
    ]
    for number, (program, what, line) in enumerate(every[:count]):
        start = time.monotonic()
        fault = tried(line, program, place.folder / f"shell {number}", os.environ)
        yield Case(f"{what} in {program}", fault, time.monotonic() - start)


def locks(place: Place, count: int) -> Iterator[Case]:
    """Locks that were altered: ``--check`` sees each, and ``sync`` takes none that harms."""
    with place.served() as (_, here):
        yield judged("the lock as it was made", gpuinstall(here, *ASK, "numpy"), {0})
        original = tomli.loads(here.lock(LOCK))
        for name, kind in islice(LOCKS.items(), count):
            (here.folder / LOCK).write_text(
                tomli_w.dumps(tampered(original, name)), encoding="utf-8"
            )
            yield judged(f"{name}, checked", gpuinstall(here, "lock", "--check", "--offline"), {6})
            (here.folder / LOCK).write_text(
                tomli_w.dumps(tampered(original, name, seal=True)), encoding="utf-8"
            )
            checked = gpuinstall(here, "lock", "--check")
            yield judged(
                f"{name}, sealed anew and checked", checked, {6} if kind.sealed_too else {0, 6}
            )
            synced = gpuinstall(here, "sync", "--target", TAG, "--venv", f".{name[:5]}")
            yield judged(f"{name}, synced", synced, {4, 6} if kind.refused else {0, 2, 4, 6})
