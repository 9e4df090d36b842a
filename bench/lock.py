"""Measure ``lock`` against ``uv pip compile``, and an unchanged ``sync``."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tests.lab.clone import Person
from tests.lab.index import SimulatedIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel

from bench.harness import (
    GPUINSTALL,
    PYTHON,
    UV,
    Row,
    duration,
    paired,
    run,
    seconds,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.lab.host import Answer, Host

FAMILY = ("torch", "numpy")
PROGRAM = ("painter",)
RUNS = 7
ROUND_TRIP_S = 0.05
"""The duration of a request to a distant index."""


class Project(TypedDict):
    """The folder and variables of a command."""

    env: dict[str, str]
    cwd: Path


@dataclass(frozen=True)
class Desk:
    """A parent of project folders, with a local index."""

    place: Path
    environment: dict[str, str]
    family: str

    def lock(self, requirements: tuple[str, ...] = FAMILY) -> float:
        """Write a lock file with gpuinstall, from empty caches."""
        return seconds(_lock("cu126", requirements), **self.project())

    def compile(
        self,
        requirements: tuple[str, ...] = ("torch==2.14.1", "numpy"),
    ) -> float:
        """Write a lock file with uv, from an empty cache."""
        project = self.project()
        file = project["cwd"] / "requirements.in"
        file.write_text("\n".join(requirements), encoding="utf-8")
        words = f"--index {self.family} --index-strategy unsafe-best-match"
        command = [UV, "pip", "compile", "--python", sys.executable, *words.split()]
        return seconds([*command, "requirements.in", "-o", "pylock.uv.toml"], **project)

    def project(self) -> Project:
        """Create a project with its own caches."""
        folder = Path(tempfile.mkdtemp(dir=self.place))
        caches = {
            "UV_CACHE_DIR": str(folder / "uv"),
            "XDG_CACHE_HOME": str(folder / "ours"),
        }
        return {"env": {**self.environment, **caches}, "cwd": folder}


def rows() -> Iterator[Row]:
    """Measure with a local index that delays each response."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with SimulatedIndex(_served(folder / "index")) as index:
            desk = _desk(folder / "desk", index)
            yield _nothing_to_do(desk)
            for host in index.hosts:
                delay(host)
            pair = paired(desk.lock, desk.compile, RUNS)
            yield pair.times("lock, against uv pip compile")
            program = partial(desk.lock, PROGRAM)
            pair = paired(program, partial(desk.compile, PROGRAM), RUNS)
            yield pair.times("lock of a program, against uv pip compile", 2.5)


def _served(folder: Path) -> Path:
    """Create an index with two torch releases and a program."""
    catalog_index(folder, ["2.13.0", "2.14.1"])
    parts = [f"part-{number}" for number in range(20)]
    for part in parts:
        make_wheel(folder / "simple", part, "1.0", requires=["numpy"])
    make_wheel(folder / "simple", "painter", "1.0", requires=["torch"])
    make_wheel(folder / "simple", "painter", "2.0", requires=["torch==2.13.0", *parts])
    return folder


def _desk(folder: Path, index: SimulatedIndex) -> Desk:
    folder.mkdir()
    environment = {**Person(folder).environment(), **index.environment()}
    return Desk(folder, environment, f"{index.torch_index}/cu126")


def _lock(target: str, requirements: Iterable[str] = FAMILY) -> list[str | Path]:
    command = [GPUINSTALL, "lock", *requirements, "--python", PYTHON]
    return [*command, "--target", target]


def delay(host: Host) -> None:
    """Delay each response of a host by one round trip."""
    respond = host.respond

    def late(path: str, headers: dict[str, str]) -> Answer:
        time.sleep(ROUND_TRIP_S)
        return respond(path, headers)

    host.respond = late


def _nothing_to_do(desk: Desk) -> Row:
    """Measure an unchanged ``sync`` without its probe."""
    project = desk.project()
    run(_lock("cpu"), **project)
    run([GPUINSTALL, "sync"], **project)
    uv = [UV, "pip", "sync", "--python", ".venv/bin/python", "pylock.cpu.toml"]
    pair = paired(lambda: _beside_probe(project), lambda: seconds(uv, **project), 9)
    what = "unchanged sync without its probe, and uv's"
    return single(what, pair.ours, 0.3, other=duration(pair.other))


def _beside_probe(project: Project) -> float:
    """Return the seconds of a sync without a probe."""
    sync = seconds([GPUINSTALL, "sync"], **project)
    return sync - seconds([GPUINSTALL, "probe"], **project)
