"""The repairs of an environment: commands that install its packages again, and what is carried out of a fix."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall import process
from gpuinstall.advice import quoted
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import interpreter, packages_folders
from gpuinstall.files import remove_path
from gpuinstall.uv import uv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement

    from gpuinstall.doctor.contents import EnvironmentContents, PackageContents
    from gpuinstall.finding import Finding
    from gpuinstall.reporter import Reporter
    from gpuinstall.sources import Sources

OPERATORS = frozenset(("&&", "||", "|", ";"))


@dataclass(frozen=True)
class RepairSource:
    """Where an environment's packages come from: its own ``lock``, else the indexes of what was chosen by hand.

    ``torch`` are the words that lead uv to torch and its family, whose names are ``family``.
    """

    python: Path = Path("python")
    lock: Path | None = None
    torch: tuple[str, ...] = ()
    family: frozenset[str] = frozenset()

    def reinstall(self, packages: Iterable[PackageContents]) -> tuple[str, ...]:
        """Install packages again that are there, and nothing else."""
        found = list(packages)
        if self.lock:
            return (self._from_lock(package.name for package in found),)
        return tuple(
            self._line("--no-deps", *self._where(package.name), "--reinstall-package", package.name, _pin(package))
            for package in found
        )

    def install(self, missing: Mapping[str, Requirement]) -> tuple[str, ...]:
        """Install what is required and not there, or there in another version."""
        if self.lock:
            return (self._from_lock(missing),)
        return tuple(self._line(*self._where(name), f"{name}{asked.specifier}") for name, asked in missing.items())

    def _from_lock(self, names: Iterable[str]) -> str:
        again = (word for name in names for word in ("--reinstall-package", name))
        return self._line("-r", str(self.lock), *again)

    def _where(self, name: str) -> tuple[str, ...]:
        return self.torch if name in self.family else ()

    def _line(self, *words: str) -> str:
        return " ".join(("uv pip install --python", *map(quoted, (str(self.python), *words))))


def read_repair(venv: Path, contents: EnvironmentContents, sources: Sources, family: frozenset[str]) -> RepairSource:
    """Find out where the packages of an environment come from."""
    python, marker = interpreter(venv), read_marker(venv)
    if marker and (venv / marker.lock).is_file():
        return RepairSource(python, lock=venv / marker.lock)
    torch = contents.packages.get("torch")
    return RepairSource(python, None, _torch_source(torch.version, sources) if torch else (), family)


@dataclass(frozen=True)
class RepairStep:
    """One line of a fix that can be carried out: by a program, or by removing folders that nobody uses."""

    line: str
    argv: tuple[str, ...] = ()
    leftovers: tuple[Path, ...] = ()


@dataclass(frozen=True)
class RepairResult:
    """How a step ended; ``message`` says why it failed, and is None where it did not."""

    line: str
    message: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Write it for the doctor's document."""
        return {"command": self.line, "status": "failed" if self.message else "done", "message": self.message}


def repair_steps(findings: Iterable[Finding], venv: Path) -> tuple[RepairStep, ...]:
    """Choose of each finding of the environment the first line that is a step.

    An environment is made anew only where nothing smaller is advised.
    """
    lines = [(finding.fix or "").splitlines() for finding in findings if finding.where == "environment"]
    steps = {step.line: step for each in lines if (step := next(_steps(each, venv), None))}
    anew = [step for step in steps.values() if "gpuinstall" in step.argv]
    smaller = [step for step in steps.values() if step not in anew]
    return tuple(smaller if any(step.argv for step in smaller) else anew[:1] or smaller)


def carry_out(
    steps: Iterable[RepairStep], environment: Mapping[str, str], reporter: Reporter
) -> tuple[RepairResult, ...]:
    """Make the steps in order, up to the first that fails."""
    results: list[RepairResult] = []
    for step in steps:
        reporter.wait(step.line)
        results.append(_made(step, environment))
        if results[-1].message:
            break
    return tuple(results)


def _torch_source(version: str, sources: Sources) -> tuple[str, ...]:
    """Lead uv to the folder that holds this torch, else to the index of its build; one without a label is on any."""
    label = version.partition("+")[2]
    folders = [link for link in sources.find_links if any(Path(link).glob(f"torch-{version}-*.whl"))]
    if folders and not sources.named:
        return "--find-links", folders[0]
    return ("--index", f"{sources.torch_index}/{label}") if label else ()


def _pin(package: PackageContents) -> str:
    return f"{package.name}=={package.version}"


def _steps(lines: Iterable[str], venv: Path) -> Iterator[RepairStep]:
    for line in lines:
        try:
            words = shlex.split(line, comments=True, posix=os.name != "nt")
        except ValueError:
            continue
        if OPERATORS.isdisjoint(words) and (step := _step(line.partition("   #")[0], words, venv)):
            yield step


def _step(line: str, words: list[str], venv: Path) -> RepairStep | None:
    """Read a line as a step: of uv in this environment, of ours for it, or of what lies useless in it."""
    match words:
        case ["uv", "pip", "install" | "uninstall", "--python", python, *_] if python == str(interpreter(venv)):
            return RepairStep(line, (str(uv()), *words[1:]))
        case ["gpuinstall", "install", *rest] if str(venv) in rest:
            return RepairStep(line, (sys.executable, "-m", *words))
        case ["rm", "-r", *paths] if all(_is_leftover(Path(path), venv) for path in paths):
            return RepairStep(line, leftovers=tuple(map(Path, paths)))
    return None


def _is_leftover(path: Path, venv: Path) -> bool:
    return path.name.startswith("~") and path.parent in packages_folders(venv)


def _made(step: RepairStep, environment: Mapping[str, str]) -> RepairResult:
    if step.leftovers:
        for path in step.leftovers:
            remove_path(path)
        resists = next((path for path in step.leftovers if path.exists()), None)
        return RepairResult(step.line, f"{resists} is still there" if resists else None)
    done = process.run(step.argv, env={**os.environ} if "gpuinstall" in step.argv else environment)
    said = done.err.strip().splitlines() or done.out.strip().splitlines() or [f"it ended with {done.status}"]
    return RepairResult(step.line, None if done.ok else "\n".join(said[-4:]))
