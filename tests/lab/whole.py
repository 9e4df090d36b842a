"""Checks that an environment is consistent and has all user files."""

import subprocess
import sys
from pathlib import Path

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.lab.environments import packages
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop


def publish_big(simple: Path, files: int):
    """Publish alpha and big 1.0 and 2.0; big's files contain its version."""
    for version in ("1.0", "2.0"):
        make_wheel(simple, "alpha", version, modules={"alpha/__init__.py": version})
        modules = {f"big/{n % 50}/m{n}.py": f"{version} {n}" for n in range(files)}
        modules["big/__init__.py"] = version
        make_wheel(simple, "big", version, modules=modules)


def make_application(workshop: Workshop) -> Path:
    """Create an environment with uv, the packages, and an older torch."""
    app = workshop.folder / "app"
    process.run([uv.uv(), "venv", "--quiet", "--python", sys.executable, app])
    into = ("install", "--into", "--venv", "app")
    workshop.document(*into, "torch==2.13.0", "big==1.0", "alpha==1.0")
    return app


def write_notes(environment: Path):
    """Write user files into an environment."""
    for notes in _notes(environment):
        notes.write_text("mine", "utf-8")


def _notes(environment: Path) -> tuple[Path, Path]:
    return environment / "notes.txt", packages(environment) / "big" / "notes.txt"


def started(
    project: Workshop, words: tuple[str, ...], before: tuple[str, ...] = ()
) -> "subprocess.Popen[bytes]":
    """Start a command in its own process group; ``before`` is its prefix."""
    return subprocess.Popen(
        [*before, *GPUINSTALL, *words],
        cwd=project.folder,
        env=project.environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def found(environment: Path) -> list[str]:
    """Return the faults that pip, uv, and Python find in an environment."""
    python = environment / "bin" / "python"
    checks: dict[str, list[str | Path]] = {
        "import torch": [python, "-c", "import torch"],
        "pip check": [python, "-m", "pip", "check"],
        "uv pip check": [uv.uv(), "pip", "check", "--python", python],
    }
    if not (packages(environment) / "pip").exists():
        del checks["pip check"]
    return [name for name, command in checks.items() if not process.run(command).ok]


def faults(environment: Path, files: int) -> list[str]:
    """Return the faults of an environment that has never run."""
    faults = found(environment)
    for name, count in {"big": files + 1, "alpha": 1}.items():
        records = [*packages(environment).glob(f"{name}-*.dist-info")]
        versions = {path.name.split("-")[1].removesuffix(".dist") for path in records}
        modules = list((packages(environment) / name).rglob("*.py"))
        texts = {file.read_text("utf-8").partition(" ")[0] for file in modules}
        is_whole = len(modules) == (count if versions else 0)
        if len(versions) > 1 or texts != versions or not is_whole:
            faults.append(f"{name} {versions} has {len(modules)} files of {texts}")
    for notes in _notes(environment):
        if not notes.exists() or notes.read_text("utf-8") != "mine":
            faults.append(f"{notes} is gone")
    return faults
