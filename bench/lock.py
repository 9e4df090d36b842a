"""Measure ``lock`` from empty caches against ``uv pip compile``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.lab.clone import Person
from tests.lab.index import SimulatedIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel

from bench.harness import PROGRAMS, PYTHON, UV, Cost, compare, delay, measure


def main() -> None:
    """Measure with a local index that delays each response."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with SimulatedIndex(_make_index(folder / "index")) as index:
            for host in index.hosts:
                delay(host)
            _compare("lock torch and numpy", ["torch==2.14.1", "numpy"], folder, index)
            _compare("lock a program", ["painter"], folder, index)


def _compare(
    what: str, requirements: list[str], place: Path, index: SimulatedIndex
) -> None:
    words = f"--index {index.torch_index}/cu126 --index-strategy unsafe-best-match"
    compile_ = [str(UV), "pip", "compile", "--python", sys.executable, *words.split()]

    def run_uv() -> Cost:
        project = _make_project(place, index)
        file = project["cwd"] / "requirements.in"
        file.write_text("\n".join(requirements), encoding="utf-8")
        return measure([*compile_, str(file), "-o", "pylock.uv.toml"], **project)

    def run_own(name: str) -> Cost:
        options = ["--python", PYTHON, "--target", "cu126"]
        command = [str(PROGRAMS[name]), "lock", *requirements, *options]
        return measure(command, **_make_project(place, index))

    compare(what, run_uv, run_own)


def _make_project(place: Path, index: SimulatedIndex) -> dict[str, Any]:
    """Return an empty folder and variables for new caches."""
    folder = Path(tempfile.mkdtemp(dir=place))
    caches = {
        "UV_CACHE_DIR": str(folder / "uv"),
        "XDG_CACHE_HOME": str(folder / "ours"),
    }
    person = Person(folder).environment()
    return {"env": {**person, **index.environment(), **caches}, "cwd": folder}


def _make_index(folder: Path) -> Path:
    """Create an index with two torch releases and a program."""
    catalog_index(folder, ["2.13.0", "2.14.1"])
    parts = [f"part-{number}" for number in range(20)]
    for part in parts:
        make_wheel(folder / "simple", part, "1.0", requires=["numpy"])
    make_wheel(folder / "simple", "painter", "1.0", requires=["torch"])
    make_wheel(folder / "simple", "painter", "2.0", requires=["torch==2.13.0", *parts])
    return folder
