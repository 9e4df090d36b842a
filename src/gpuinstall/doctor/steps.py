"""The repairs that the doctor makes when asked: what its findings advise and can be undone, or installed again."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall import process
from gpuinstall.environments.paths import interpreter, packages_folders
from gpuinstall.files import remove
from gpuinstall.uv import uv

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.doctor.finding import Finding
    from gpuinstall.reporter import Reporter

OPERATORS = frozenset(("&&", "||", "|", ";"))


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
            remove(path)
        resists = next((path for path in step.leftovers if path.exists()), None)
        return RepairResult(step.line, f"{resists} is still there" if resists else None)
    done = process.run(step.argv, env={**os.environ} if "gpuinstall" in step.argv else environment)
    said = done.err.strip().splitlines() or done.out.strip().splitlines() or [f"it ended with {done.status}"]
    return RepairResult(step.line, None if done.ok else "\n".join(said[-4:]))
