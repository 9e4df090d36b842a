"""What an installation costs against the bare tools: seconds on warm caches and cold ones, bytes on cold ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.clone import Person
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index

from bench.pairs import paired, run
from bench.row import Row, in_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


TOOLS = Path(sys.executable).parent
PYTHON = ".".join(map(str, sys.version_info[:2]))
RUNS = 5
VERIFIED = re.compile(r"^Verified .* ([\d.]+) s$", re.MULTILINE)
"""What ``install`` says on the proof, which the bare tools do not give."""


@dataclass(frozen=True)
class Contest:
    """One set of packages, installed into an empty folder by each tool; each returns its seconds."""

    folder: Path
    environment: dict[str, str]
    requirement: str
    uv_sources: tuple[str, ...] = ()
    pip_sources: tuple[str, ...] = ()

    def ours(self) -> float:
        """Install with gpuinstall; the proof does not count."""
        command: list[str | Path] = [
            TOOLS / "gpuinstall",
            "install",
            self.requirement,
            "--python",
            PYTHON,
            "--backend",
            "cpu",
        ]
        folder = self.empty()
        began = time.perf_counter()
        done = subprocess.run(command, env=self.environment, cwd=folder, capture_output=True, text=True, check=False)
        taken = time.perf_counter() - began
        proof = VERIFIED.search(done.stderr)
        if done.returncode or not proof:
            raise RuntimeError(done.stderr)
        return taken - float(proof.group(1))

    def uv(self) -> float:
        """Install with ``uv venv`` and ``uv pip install``."""
        install: list[str | Path] = [
            TOOLS / "uv",
            "pip",
            "install",
            "--python",
            ".venv/bin/python",
            *self.uv_sources,
            self.requirement,
        ]
        return self.both([TOOLS / "uv", "venv", "--python", sys.executable, ".venv"], install)

    def pip(self) -> float:
        """Install with ``python -m venv`` and ``pip install``."""
        install = [".venv/bin/python", "-m", "pip", "install", *self.pip_sources, self.requirement]
        return self.both([sys.executable, "-m", "venv", ".venv"], install)

    def both(self, *commands: Sequence[str | Path]) -> float:
        """Run commands one after the other in an empty folder."""
        folder = self.empty()
        began = time.perf_counter()
        for command in commands:
            run(command, env=self.environment, cwd=folder)
        return time.perf_counter() - began

    def empty(self) -> Path:
        """Make the folder to install into, always of the same name, and wait for the disk to have written the last."""
        shutil.rmtree(self.folder / "project", ignore_errors=True)
        (self.folder / "project").mkdir(parents=True)
        os.sync()
        return self.folder / "project"


def rows() -> Iterator[Row]:
    """Contest small packages from the stand-in index, then large ones, then the real torch, where pip has one."""
    with tempfile.TemporaryDirectory() as folder:
        made = catalog_index(Path(folder) / "index", ["2.14.1"], platforms=[LINUX], pythons=[PYTHON])
        with StandInIndex(made) as index:
            yield _bytes(Path(folder), index)
            yield _against_uv("install, warm, small packages, against uv", small(Path(folder) / "warm", index))
    yield from _real()


def small(folder: Path, index: StandInIndex) -> Contest:
    """Torch's stand-in; caches and home are the folder's own."""
    person = Person(folder)
    folder.mkdir(parents=True, exist_ok=True)
    caches = {"UV_CACHE_DIR": str(folder / "uv"), "XDG_CACHE_HOME": str(folder / "cache")}
    family = f"{index.torch_index}/cpu"
    return Contest(
        folder, {**person.environment(), **index.environment(), **caches}, "torch==2.14.1", ("--index", family)
    )


def _bytes(folder: Path, index: StandInIndex) -> Row:
    """Count the bytes of wheels that each fetches into empty caches."""
    small(folder / "cold-uv", index).uv()
    beside = sum(index.sent().values())
    index.forget()
    small(folder / "cold", index).ours()
    ours = sum(index.sent().values())
    index.forget()
    return Row("bytes of wheels, cold", f"{ours} B", f"{beside} B", f"{ours - beside:+} B", "no more", ours <= beside)


def _against_uv(what: str, contest: Contest) -> Row:
    pair = paired(contest.ours, contest.uv, RUNS)
    more = pair.ours - pair.beside
    return Row(what, in_seconds(pair.ours), in_seconds(pair.beside), f"{more:+.2f} s", "≤ 1 s more", more <= 1)


def _real() -> Iterator[Row]:
    """Contest the wheel of torch in the folder that PIP_FIND_LINKS names."""
    links = os.environ.get("PIP_FIND_LINKS", "")
    wheel = next(Path(links or "/nonexistent").glob(f"torch-*+cpu-cp{PYTHON.replace('.', '')}-*.whl"), None)
    if wheel is None:
        sys.stdout.write(f"no torch for Python {PYTHON} in PIP_FIND_LINKS: not measured with the real one\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        sources = ("--find-links", links)
        requirement = f"torch=={wheel.name.split('-')[1]}"
        contest = Contest(Path(folder), Person(Path(folder)).environment(), requirement, sources, sources)
        yield _against_uv("install, warm, the real torch, against uv", contest)
        yield _against_pip("install, warm, the real torch, against pip", contest)


def _against_pip(what: str, contest: Contest) -> Row:
    pair = paired(contest.ours, contest.pip, 1)
    times = pair.beside / pair.ours
    shown = f"{times:.1f}×"
    return Row(what, in_seconds(pair.ours), in_seconds(pair.beside), shown, "≥ 5× faster", times >= 5)
