"""``gpuinstall install --into``: torch put into an environment that others made."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.cli.outcome import Outcome
from gpuinstall.cli.probe import machine_line
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import UsageError
from gpuinstall.shell import quoted
from gpuinstall.units import display_path, duration, readable

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.into import IntoResult
    from gpuinstall.project import Project

_VERSION = re.compile(r"\d+(\.\d+){0,2}t?")


def is_path(python: str | None) -> bool:
    """Say whether ``--python`` names an interpreter and not a version."""
    return python is not None and not _VERSION.fullmatch(python)


def check_not_a_path(python: str | None) -> None:
    """Raise UsageError where ``--python`` names an interpreter, whose environment would not be ours to replace."""
    if is_path(python):
        raise UsageError(
            "python-is-a-path",
            f"--python {python} is the interpreter of an existing environment",
            hint=f"gpuinstall install --into --python {quoted(python or '')}   # installs torch into it\n"
            "gpuinstall install --python 3.12   # makes an environment of that Python",
        )


def kernel_elsewhere(python: str | None, venv: Path) -> UsageError:
    """That an environment of others gets no Jupyter kernel of ours, and the commands that make it one of its own."""
    named = quoted((python or "") if is_path(python) else str(interpreter(venv)))
    hint = f"{named} -m pip install ipykernel\n{named} -m ipykernel install --user --name NAME"
    return UsageError("jupyter-elsewhere", "--jupyter works only in environments made by gpuinstall", hint=hint)


def change_into(project: Project, python: Path, *, dry_run: bool, wait: float) -> Outcome:
    """Put torch into an environment that others made."""
    from gpuinstall.install.into import dry_run_into, install_into

    project.reporter.step("Machine", machine_line(project.machine))
    result = dry_run_into(project, python) if dry_run else install_into(project, python, wait)
    return Outcome(result.to_dict(), lambda screen: show_into(screen, result))


def find_interpreter(python: str | None, venv: Path) -> Path:
    """The interpreter that ``--python`` or ``--venv`` means; raise UsageError where there is none."""
    if is_path(python):
        program = shutil.which(python or "")
        if program is None:
            raise UsageError("python-missing", f"no such interpreter: {python}", hint="Check the path")
        return Path(program).absolute()
    folder = venv.absolute()
    for path in (interpreter(folder), folder / "bin" / "python", folder / "python.exe"):
        if path.is_file():
            return path
    raise UsageError(
        "environment-missing", f"there is no environment at {venv}", hint="Use another with --python PATH or --venv DIR"
    )


def show_into(terminal: Terminal, result: IntoResult) -> None:
    """Write what came of it."""
    environment, torch = result.environment, result.fit.lock.versions["torch"]
    where = display_path(environment.prefix)
    terminal.field("Environment", f"{where} · torch {torch} · Python {environment.version}")
    if result.verdict is None:
        terminal.field("Dry run", f"{len(result.changes)} packages would change; nothing was changed")
        return
    terminal.field("Proof", str(result.verdict["status"]))
    spent = f"{duration(result.seconds)}, {readable(result.bytes) if result.bytes else 'nothing'} fetched"
    terminal.field("Ready", f"{quoted(result.environment.python)}   {spent}")
