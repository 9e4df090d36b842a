"""Measure small changes of an environment against uv."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.environments import VERSION
from tests.lab.index import SimulatedIndex

from bench.harness import (
    GPUINSTALL,
    UV,
    Pair,
    Row,
    installed,
    paired,
    real_torch,
    run,
    seconds,
    single,
    timed,
)
from bench.lock import delay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PYTHON = "3.11"
RUNS = 7
MAX_OF_THE_FIRST = 0.6
OTHERS = ("numpy", "einops", "cowsay", "setuptools", "wheel", "pip")
"""The packages of the changes and their build tools."""
_SETUP = "from setuptools import setup\n\nsetup(name='mine', version='1', py_modules=['mine'])\n"


class Journey(NamedTuple):
    """A command of gpuinstall and the equivalent of uv."""

    what: str
    ours: str
    other: str
    most_more_s: float | None = None
    """The goal: the additional seconds that gpuinstall may take."""


JOURNEYS = (
    Journey("a package comes", "install einops", "pip install einops", 0.8),
    Journey("a package goes", "remove einops", "pip uninstall einops", 0.8),
    Journey(
        "an upgrade with nothing to do",
        "install --upgrade numpy",
        "pip install --upgrade numpy",
        0.3,
    ),
    Journey(
        "-r with an extra index", "install -r extra.txt", "pip install -r extra.txt"
    ),
    Journey("-e ./mine with a setup.py", "install -e ./mine", "pip install -e ./mine"),
    Journey("run script.py", "run mine/mine.py", "run --no-project mine/mine.py"),
    Journey(
        "two packages go, one that a .pth file links",
        f"install --only torch=={VERSION} numpy",
        "pip uninstall cowsay mine",
    ),
)
"""The changes of a round. The last one restores the initial environments."""


@dataclass(frozen=True)
class Project:
    """Folders with torch and NumPy in environments of gpuinstall and uv."""

    folder: Path
    index: SimulatedIndex
    place: str = "ours"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every command, with separate caches and records."""
        variables = {**os.environ, **self.index.environment()}
        # An installed program has compiled modules.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        folders = {
            "XDG_CACHE_HOME": "cache",
            "XDG_STATE_HOME": "state",
            "XDG_CONFIG_HOME": "config",
            "UV_CACHE_DIR": "uv",
            "PYTHONPYCACHEPREFIX": "pyc",
        }
        for name, place in folders.items():
            variables[name] = str(self.folder / place)
        return variables

    def install(self) -> tuple[float, float]:
        """Return the seconds of an installation and of its verification."""
        (self.folder / self.place).mkdir(exist_ok=True)
        words = f"install torch=={VERSION} numpy --python {PYTHON} --replace"
        command = [GPUINSTALL, *words.split()]
        return installed(command, env=self.environment, cwd=self.folder / self.place)

    def install_afresh(self) -> None:
        """Install into an empty folder with warm caches."""
        shutil.rmtree(self.folder / self.place, ignore_errors=True)
        self.install()

    def install_with_uv(self) -> None:
        """Install the same packages with uv."""
        self.uv(f"venv --clear --python {PYTHON} .venv")
        torch = self.index.folder / "whl" / "cpu"
        self.uv(f"pip install --find-links {torch} torch=={VERSION} numpy")

    def write_files(self) -> None:
        """Write a project, a script, and a requirements file."""
        index = self.folder / "empty"
        index.mkdir()
        for place in (self.place, "other"):
            folder = self.folder / place
            # Use a separate folder, because a setup.py in this one would be its request.
            (folder / "mine").mkdir()
            (folder / "mine" / "setup.py").write_text(_SETUP, encoding="utf-8")
            (folder / "mine" / "mine.py").write_text("import torch\n", encoding="utf-8")
            (folder / "extra.txt").write_text(
                f"--extra-index-url {index.as_uri()}\ncowsay\n", encoding="utf-8"
            )

    def ours(self, words: str) -> float:
        """Run gpuinstall and return the seconds."""
        return seconds(
            [GPUINSTALL, *words.split()],
            env=self.environment,
            cwd=self.folder / self.place,
        )

    def uv(self, words: str) -> float:
        """Run uv and return the seconds."""
        return seconds(
            [UV, *words.split()], env=self.environment, cwd=self.folder / "other"
        )


def rows(chosen: str = "") -> Iterator[Row]:
    """Measure a new installation and small changes with the CPU build.

    A local index delays each response by one round trip and sends the headers of the
    real indexes.

    ``chosen`` selects the changes with this word.
    """
    wheel = real_torch()
    if wheel is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with SimulatedIndex(_served(folder / "index", wheel)) as index:
            for host in index.hosts:
                delay(host)
            yield from _rows(Project(folder, index), chosen)


def _served(folder: Path, torch: Path) -> Path:
    """Create an index with torch's wheel and packages of the default index."""
    family = folder / "whl" / "cpu"
    family.mkdir(parents=True)
    (family / torch.name).symlink_to(torch)
    download = "-m pip download --quiet --only-binary :all: --dest"
    run([sys.executable, *download.split(), folder / "simple", torch, *OTHERS])
    (folder / "simple" / torch.name).unlink()
    return folder


def _rows(project: Project, chosen: str) -> Iterator[Row]:
    rest, proof = project.install()
    (project.folder / "other").mkdir()
    project.install_with_uv()
    if not chosen:
        yield single(f"the first proof, on the CPU, of {rest + proof:.0f} s", proof)
        _, again = replace(project, place="again").install()
        yield Pair(again, proof).times(
            "a fresh environment's, against the very first", MAX_OF_THE_FIRST
        )
        fresh = replace(project, place="fresh")
        pair = paired(
            partial(timed, fresh.install_afresh),
            partial(timed, project.install_with_uv),
            RUNS,
        )
        yield pair.more("a fresh environment, warm cache, against uv")
    yield from _journeys(
        project, [journey for journey in JOURNEYS if chosen in journey.what]
    )


def _journeys(project: Project, journeys: Sequence[Journey]) -> Iterator[Row]:
    turns: dict[Journey, list[tuple[float, float]]] = defaultdict(list)
    project.write_files()
    for _ in range(RUNS + 1):
        for journey in journeys:
            turn = project.ours(journey.ours), project.uv(journey.other)
            turns[journey].append(turn)
    for journey, own_turns in turns.items():
        pair = Pair.of_turns(own_turns[1:])
        yield pair.more(f"{journey.what}, against uv", journey.most_more_s)
