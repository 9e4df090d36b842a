"""Measure new environments and small changes with the real CPU build."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.lab.environments import VERSION
from tests.lab.index import SimulatedIndex

from bench.harness import PROGRAMS, PYTHON, UV, Cost, compare, delay, measure

NEW = f"install torch=={VERSION} numpy --python {PYTHON} --replace"
CHANGES = {
    "install a package": ("install einops", "pip install einops"),
    "remove a package": ("remove einops", "pip uninstall einops"),
    "upgrade an up-to-date package": (
        "install --upgrade numpy",
        "pip install --upgrade numpy",
    ),
    "unchanged sync": ("sync", "pip install numpy"),
    "run a program": ("run python -c pass", "run --no-project python -c pass"),
}
"""Commands of gpuinstall and of uv, by label."""


@dataclass(frozen=True)
class Project:
    """A folder with an environment and caches for each program."""

    folder: Path
    index: SimulatedIndex

    def run(self, name: str, *lines: str) -> Cost:
        """Run command lines of a program."""
        place = self.folder / name
        # An installed program has compiled modules.
        variables = {**os.environ, **self.index.environment()}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            variables[variable] = str(place / "user")
        variables["UV_CACHE_DIR"] = str(place / "uv")
        program = str(PROGRAMS.get(name, UV))
        commands = [[program, *line.split()] for line in lines]
        (place / "project").mkdir(parents=True, exist_ok=True)
        return measure(*commands, env=variables, cwd=place / "project")

    def create(self, name: str) -> Cost:
        """Create an environment in an empty folder."""
        shutil.rmtree(self.folder / name / "project", ignore_errors=True)
        if name in PROGRAMS:
            return self.run(name, NEW)
        links = self.index.folder / "whl" / "cpu"
        return self.run(
            name,
            f"venv --python {PYTHON} .venv",
            f"pip install --find-links {links} torch=={VERSION} numpy",
        )


def main() -> None:
    """Measure with an index that delays each response by one round trip."""
    folder = os.environ.get("PIP_FIND_LINKS") or "/nonexistent"
    tag = f"cp{PYTHON.replace('.', '')}"
    wheel = next(Path(folder).glob(f"torch-{VERSION}-{tag}-*.whl"), None)
    if wheel is None:
        sys.stdout.write("the CPU wheel of torch is not in PIP_FIND_LINKS\n")
        return
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with SimulatedIndex(_make_index(place / "index", wheel)) as index:
            for host in index.hosts:
                delay(host)
            project = Project(place, index)
            create = project.create
            compare("new environment, warm caches", partial(create, "uv"), create)
            for what, (own, uv) in CHANGES.items():
                _compare_change(what, own, uv, project)


def _compare_change(what: str, own: str, uv: str, project: Project) -> None:
    def run(name: str) -> Cost:
        is_own = name in PROGRAMS
        cost = project.run(name, own if is_own else uv)
        # Undo the change for the next run.
        if "einops" in own:
            undo = "remove" if own.startswith("install") else "install"
            undo = undo if is_own else f"pip {undo.replace('remove', 'uninstall')}"
            project.run(name, f"{undo} einops")
        return cost

    if own.startswith("remove"):
        for name in PROGRAMS:
            project.run(name, "install einops")
        project.run("uv", "pip install einops")
    compare(what, partial(run, "uv"), run)


def _make_index(folder: Path, torch: Path) -> Path:
    """Create an index with torch's wheel and packages of the default index."""
    family = folder / "whl" / "cpu"
    family.mkdir(parents=True)
    (family / torch.name).symlink_to(torch)
    words = f"-m pip download --quiet --only-binary :all: --dest {folder / 'simple'}"
    packages = (str(torch), "numpy", "einops", "pip")
    command = [sys.executable, *words.split(), *packages]
    measure(command, env=os.environ, cwd=folder)
    (folder / "simple" / torch.name).unlink()
    return folder
