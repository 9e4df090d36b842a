"""What a small change of a proven environment costs, against uv in an environment of the same packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.environments import VERSION

from bench.pairs import paired, run, seconds
from bench.row import Row, in_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = Path(sys.executable).parent
PYTHON = "3.11"
RUNS = 5
MOST_S = 0.8
MOST_OF_THE_FIRST = 0.6
MOST_WITH_NOTHING_TO_DO_S = 0.3
_VERIFIED = re.compile(r"^Verified .* ([\d.]+) s$", re.MULTILINE)


@dataclass(frozen=True)
class Project:
    """A folder with torch and NumPy in an environment of ours, and one with the same in an environment of uv's."""

    folder: Path
    place: str = "ours"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every command: caches and records of this measurement alone."""
        names = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
        own = {name: str(self.folder / place) for name, place in names.items()}
        # As in a program that was installed: whose modules are compiled.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            **own,
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "PYTHONPYCACHEPREFIX": str(self.folder / "pyc"),
        }

    def install(self) -> float:
        """Install with gpuinstall; return the seconds of its proof."""
        (self.folder / self.place).mkdir(exist_ok=True)
        words: list[str | Path] = [TOOLS / "gpuinstall", "install", f"torch=={VERSION}", "numpy", "--python", PYTHON]
        done = subprocess.run(
            [*words, "--replace"],
            env=self.environment,
            cwd=self.folder / self.place,
            capture_output=True,
            text=True,
            check=False,
        )
        proof = _VERIFIED.search(done.stderr)
        if done.returncode or proof is None:
            raise RuntimeError(done.stderr)
        return float(proof[1])

    def install_with_uv(self) -> None:
        """Install the same with uv."""
        (self.folder / "beside").mkdir(exist_ok=True)
        run([TOOLS / "uv", "venv", "--python", PYTHON, ".venv"], env=self.environment, cwd=self.folder / "beside")
        self.uv("install", "--find-links", os.environ["PIP_FIND_LINKS"], f"torch=={VERSION}", "numpy")

    def ours(self, *words: str) -> float:
        """Run a command of gpuinstall, and return its seconds."""
        return seconds([TOOLS / "gpuinstall", *words], env=self.environment, cwd=self.folder / self.place)

    def uv(self, *words: str) -> float:
        """Run a command of ``uv pip``, and return its seconds."""
        return seconds([TOOLS / "uv", "pip", *words], env=self.environment, cwd=self.folder / "beside")


def rows() -> Iterator[Row]:
    """Add and remove a package, and upgrade one that is the newest; the torch is the CPU build of pip's find-links."""
    what = "a package comes, against uv"
    if not any(Path(os.environ.get("PIP_FIND_LINKS", "")).glob(f"torch-{VERSION}-*.whl")):
        yield Row(what, "", "", "", f"(no torch {VERSION} in PIP_FIND_LINKS)")
        return
    with tempfile.TemporaryDirectory() as name:
        project = Project(Path(name))
        began = time.perf_counter()
        proof = project.install()
        whole = time.perf_counter() - began
        yield Row("the first proof, on the CPU", in_seconds(proof), "", f"of {whole:.0f} s")
        again = Project(project.folder, place="again").install()
        share = again / proof
        yield Row(
            "a fresh environment's, against the very first",
            in_seconds(again),
            in_seconds(proof),
            f"{share:.0%}",
            "≤ 60 %",
            share <= MOST_OF_THE_FIRST,
        )
        project.install_with_uv()
        added, removed = [], []
        for _ in range(RUNS + 1):
            added.append((project.ours("install", "einops"), project.uv("install", "einops")))
            removed.append((project.ours("remove", "einops"), project.uv("uninstall", "einops")))
        yield _row(what, added[1:], MOST_S)
        yield _row("a package goes, against uv", removed[1:], MOST_S)
        upgrade = ("install", "--upgrade-package", "numpy")
        pair = paired(lambda: project.ours(*upgrade), lambda: project.uv("install", "--upgrade", "numpy"), RUNS)
        yield _row("an upgrade with nothing to do, against uv", [(pair.ours, pair.beside)], MOST_WITH_NOTHING_TO_DO_S)


def _row(what: str, turns: list[tuple[float, float]], most: float) -> Row:
    middle = len(turns) // 2
    ours = sorted(one for one, _ in turns)[middle]
    beside = sorted(other for _, other in turns)[middle]
    figures = in_seconds(ours), in_seconds(beside), f"{ours - beside:+.2f} s"
    return Row(what, *figures, f"≤ {most} s more", ours - beside <= most)
