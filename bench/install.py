"""Measure an installation against uv and pip with warm caches."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.clone import Person
from tests.lab.index import SimulatedIndex
from tests.lab.releases import LINUX, catalog_index

from bench.harness import (
    GPUINSTALL,
    PYTHON,
    UV,
    Row,
    installed,
    paired,
    real_torch,
    seconds,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


RUNS = 7


@dataclass(frozen=True)
class Contest:
    """A set of packages that each tool installs into an empty folder."""

    folder: Path
    environment: dict[str, str]
    requirement: str
    uv_sources: tuple[str, ...] = ()
    pip_sources: tuple[str, ...] = ()

    def ours(self) -> float:
        """Install with gpuinstall, without the time of verification."""
        words = f"install {self.requirement} --python {PYTHON} --backend cpu"
        command = [GPUINSTALL, *words.split()]
        took, _ = installed(command, env=self.environment, cwd=self.empty())
        return took

    def uv(self) -> float:
        """Install with ``uv venv`` and ``uv pip install``."""
        words = "pip install --python .venv/bin/python"
        return self.both(
            [UV, "venv", "--python", sys.executable, ".venv"],
            [UV, *words.split(), *self.uv_sources, self.requirement],
        )

    def pip(self) -> float:
        """Install with ``python -m venv`` and ``pip install``."""
        words = ".venv/bin/python -m pip install"
        return self.both(
            [sys.executable, "-m", "venv", ".venv"],
            [*words.split(), *self.pip_sources, self.requirement],
        )

    def both(self, *commands: Sequence[str | Path]) -> float:
        """Run commands in an empty folder."""
        folder = self.empty()
        return sum(
            seconds(command, env=self.environment, cwd=folder) for command in commands
        )

    def empty(self) -> Path:
        """Create the empty folder and wait until the disk is idle."""
        project = self.folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir(parents=True)
        os.sync()
        return project


def rows() -> Iterator[Row]:
    """Compare small packages of a local index, then the real torch."""
    with tempfile.TemporaryDirectory() as folder:
        made = catalog_index(
            Path(folder) / "index", ["2.14.1"], platforms=[LINUX], pythons=[PYTHON]
        )
        with SimulatedIndex(made) as index:
            contest = small(Path(folder) / "warm", index)
            yield paired(contest.ours, contest.uv, RUNS).more(
                "install, warm, small packages, against uv", 1
            )
    yield from _real()


def small(folder: Path, index: SimulatedIndex) -> Contest:
    """Return the comparison with a fake torch and separate caches."""
    person = Person(folder)
    folder.mkdir(parents=True, exist_ok=True)
    caches = {
        "UV_CACHE_DIR": str(folder / "uv"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    family = f"{index.torch_index}/cpu"
    return Contest(
        folder,
        {
            **person.environment(),
            **index.environment(),
            **caches,
        },
        "torch==2.14.1",
        ("--index", family),
    )


def _real() -> Iterator[Row]:
    """Compare the wheel of torch in PIP_FIND_LINKS."""
    wheel = real_torch()
    if wheel is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        sources = ("--find-links", str(wheel.parent))
        requirement = f"torch=={wheel.name.split('-')[1]}"
        contest = Contest(
            Path(folder),
            Person(Path(folder)).environment(),
            requirement,
            sources,
            sources,
        )
        yield paired(contest.ours, contest.uv, RUNS).more(
            "install, warm, the real torch, against uv", 1
        )
        yield paired(contest.ours, contest.pip, 1).times(
            "install, warm, the real torch, against pip", 0.2
        )
