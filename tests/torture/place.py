"""The place of the attacks: wheels of two releases, a driver without a GPU, and a fresh folder for each case."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from gpuinstall.base.files import remove_path
from tests.frozen import GPUINSTALL
from tests.lab.driver import FakeDriver, build, environment
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.workshop import Workshop
from tests.torture.bounded import SECONDS, Ended, run

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BRIEF = {"GPUINSTALL_SILENCE": "1", "GPUINSTALL_FLOOR": "1000", "UV_HTTP_RETRIES": "0"}
"""Patience with servers that leaves an attack no time."""
_NUMBERS = count()


@dataclass(frozen=True)
class Place:
    """``folder`` holds the wheels, the driver's library and the cases."""

    folder: Path

    @classmethod
    def prepare(cls, folder: Path) -> Place:
        """Make the wheels and the driver."""
        catalog_index(
            folder / "wheels", ("2.13.0", "2.14.1"), platforms=(LINUX,), pythons=(PYTHON,)
        )
        os.environ.update(
            environment(FakeDriver(nvml_missing=True, cu_missing=True), build(folder), folder)
        )
        return cls(folder)

    @contextmanager
    def served(self) -> Iterator[tuple[StandInIndex, Workshop]]:
        """An index of its own, with a project and caches of its own; all of it goes at the end."""
        here = self.folder / f"case {next(_NUMBERS)}"
        shutil.copytree(self.folder / "wheels", here / "served", copy_function=os.link)
        (here / "project").mkdir()
        with StandInIndex(here / "served") as index:
            yield index, Workshop(here / "project", here / "caches", index.environment() | BRIEF)
        remove_path(here)


def gpuinstall(workshop: Workshop, *words: str, seconds: float = SECONDS) -> Ended:
    """Run it in a workshop, within limits."""
    return run([*GPUINSTALL, *words], workshop.environment, workshop.folder, seconds)


def held_torch(workshop: Workshop) -> str:
    """The torch that the environment imports; what went wrong where it does not."""
    python = str(workshop.folder / ".venv" / "bin" / "python")
    if not (workshop.folder / ".venv" / "bin" / "python").exists():
        return "none: there is no environment"
    done = run(
        [python, "-c", "import torch; print(torch.__version__)"],
        workshop.environment,
        workshop.folder,
    )
    return done.out.strip() if done.status == 0 else f"none: {done.err.strip()[-200:]}"
