"""Makes ``docs/evidence/advice.md``: mistakes that people make, the advice that they get, and what a paste of it did.

``python -m tools.advices`` runs each in a folder of its own, on the lab's stand-in index, and pastes the first command
of the answer into the same folder.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.index import StandInIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "evidence" / "advice.md"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
CPU = f"--backend cpu --python {PYTHON}"
HEAD = """# Advice, pasted

Made by `python -m tools.advices`: each command was run on the stand-in index, the first command of its answer was
pasted, and the exit statuses stand before and after.

| situation | command | status | advice | after the paste |
|---|---|---|---|---|
"""


class Situation(NamedTuple):
    """A mistake: what it is, the command that meets it, and what goes before it."""

    name: str
    command: str
    before: Callable[[Workshop], object] = lambda _workshop: None


def installed(workshop: Workshop) -> None:
    """Make an environment."""
    workshop.document("install", "torch", *CPU.split())


def changed_by_pip(workshop: Workshop) -> None:
    """Put a package beside those of the lock."""
    installed(workshop)
    site = next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))
    (site / "pandas-2.3.0.dist-info").mkdir()


def foreign(workshop: Workshop) -> None:
    """Leave a folder of somebody's where the environment goes."""
    (workshop.folder / ".venv").mkdir()
    (workshop.folder / ".venv" / "notes.txt").write_text("mine\n", encoding="utf-8")


def locked(workshop: Workshop) -> None:
    """Make two locks."""
    for target in ("cpu", "cu126"):
        workshop.document("lock", "torch", "--target", target, "--python", PYTHON)


def edited(workshop: Workshop) -> None:
    """Edit a lock so that a sha256 is none."""
    workshop.document("lock", "torch", "--target", "cpu", "--python", PYTHON)
    lock = workshop.folder / "pylock.cpu.toml"
    lock.write_text(re.sub(r'sha256 = "\w+"', 'sha256 = "0"', lock.read_text("utf-8")), encoding="utf-8")


SITUATIONS = (
    Situation("a name is mistyped", f"install trch {CPU}"),
    Situation("a version in conda's spelling", "install torch=2.14.1"),
    Situation("the package pytorch", "install pytorch"),
    Situation("a command is mistyped", f"instal torch {CPU}"),
    Situation("a folder of somebody's is in the way", f"install torch {CPU}", foreign),
    Situation("pip has added a package", f"install torch numpy {CPU}", changed_by_pip),
    Situation("offline with an empty cache", f"install torch --offline {CPU}"),
    Situation("no lock to install", "sync"),
    Situation("no lock to export", "export requirements"),
    Situation("several locks to export", "export requirements", locked),
    Situation("a lock of another system", "sync --target cpu-windows-x86_64", locked),
    Situation("a lock was edited", "sync --target cpu", edited),
    Situation("no environment to run in", "run python --version"),
    Situation("no environment to verify", "verify --quiet"),
    Situation("an environment to remove, without a terminal", "env remove", installed),
    Situation("a package that was not asked for", "remove pandas", installed),
    Situation("torch is to be removed", "remove torch", installed),
    Situation("no previous environment", "install --rollback", installed),
    Situation("options that exclude each other", "install --rollback --upgrade", installed),
    Situation("requirements that conflict", f"install pandas numpy<2.3 numpy>2.4 {CPU}"),
    Situation("a GPU is named without its driver", "plan --gpu A100"),
    Situation("a CUDA version in place of the driver's", "plan --gpu A100 --driver 12.4"),
    Situation("a backend that does not exist", "plan --backend cuda"),
    Situation("a target that does not exist", "lock --target linux"),
    Situation("a run of a fleet that does not exist", "fleet plan --run-dir nodes"),
    Situation("a recording into a full folder", "probe --record .", locked),
    Situation("a log that does not exist", "explain build.log"),
    Situation("the benchmark's options without it", "verify --save run.json"),
    Situation("the interpreter does not exist", "verify --python no-such-python"),
    Situation("the tool is to be removed, without a terminal", "self uninstall"),
)


def main() -> None:
    """Run every situation and write the page."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        served = catalog_index(Path(folder, "served"))
        for name, version, requires in (("numpy", "2.2.6", []), ("numpy", "2.4.6", []), ("pandas", "2.3.0", ["numpy"])):
            make_wheel(served / "simple", name, version, requires=requires)
        with StandInIndex(served) as index:
            for number, situation in enumerate(SITUATIONS):
                place = Path(folder, f"project-{number}")
                place.mkdir()
                rows.append(row(situation, Workshop(place, Path(folder, f"caches-{number}"), index.environment())))
                shutil.rmtree(place)
    PAGE.write_text(HEAD + "".join(rows), encoding="utf-8")


def row(situation: Situation, workshop: Workshop) -> str:
    """Run a command, paste the first command of its answer, and write both down."""
    situation.before(workshop)
    done = workshop.run(*shlex.split(situation.command))
    lines = [line.strip().removeprefix("do ").strip() for line in done.err.splitlines()]
    advice = next((line for line in lines if line.startswith("gpuinstall ")), "")
    prose = next((line.strip()[3:].strip() for line in done.err.splitlines() if line.startswith("  do ")), "")
    after = workshop.run(*shlex.split(advice, comments=True)[1:]) if advice else None
    said = f"`{advice}`" if advice else prose or "none"
    outcome = "prose" if after is None else f"{after.status}"
    print(situation.name, done.status, advice or prose, outcome, file=sys.stderr)  # noqa: T201
    shown = said.replace(str(workshop.folder), "…").replace(sys.prefix, "…").replace("|", "\\|")
    return f"| {situation.name} | `gpuinstall {situation.command}` | {done.status} | {shown} | {outcome} |\n"


if __name__ == "__main__":
    main()
