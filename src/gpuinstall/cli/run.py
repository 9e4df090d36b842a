"""``gpuinstall run``: a command in the environment, after the check that it still fits this machine."""

from __future__ import annotations

import os
import subprocess
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import framed
from gpuinstall.errors import LockError, UsageError

if TYPE_CHECKING:
    from typing import NoReturn

    from gpuinstall.cli.outcome import Outcome
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.environments.paths import EnvironmentPaths


@click.command(
    "run",
    help="Run a command in the environment, without activating it.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, required=True, metavar="CMD [ARG]...")
@options.venv
@framed("run")
def command(terminal: Terminal, words: tuple[str, ...], *, venv: str) -> Outcome:
    """Run a command."""
    from gpuinstall.environments.paths import EnvironmentPaths

    paths = EnvironmentPaths.at(Path(venv))
    _check_fitness(paths, terminal)
    start(list(words), paths)


def _check_fitness(paths: EnvironmentPaths, terminal: Terminal) -> None:
    """Raise UsageError where there is no environment of ours, LockError where it is for another machine.

    Where there are GPUs that it was never tried on, that is said.
    """
    from gpuinstall.install.inspection import inspect_environment
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.lock.fit import Misfit, fit
    from gpuinstall.request import Request

    found = inspect_environment(paths)
    if found.marker is None or not found.has_python:
        raise UsageError("environment-missing", f"there is no environment at {paths.venv}", hint="gpuinstall install")
    machine = options.read_selected_machine(options.MachineOptions(), terminal)
    request = Request(backend=found.marker.backend, python=found.marker.python)
    judged = fit(found.lock, machine, request, known_catalog()) if found.lock and machine.gpus else None
    if isinstance(judged, Misfit):
        message = f"{paths.venv} does not fit this machine: {judged.reason.message}"
        raise LockError("lock-does-not-fit", message, hint="gpuinstall sync")
    if machine.gpus and found.marker.verdict.get("status") == "unproven":
        terminal.warn("no kernel has run in this environment on a GPU yet; gpuinstall sync runs them")


def start(words: list[str], paths: EnvironmentPaths) -> NoReturn:
    """Become the command; on Windows, start it and end as it does."""
    programs = paths.venv / ("Scripts" if os.name == "nt" else "bin")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    variables["PATH"] = os.pathsep.join([str(programs), variables.get("PATH", os.defpath)])
    variables["VIRTUAL_ENV"] = str(paths.venv)
    try:
        if os.name == "nt":
            raise click.exceptions.Exit(subprocess.call(words, env=variables))
        os.execvpe(words[0], words, variables)  # noqa: S606
    except OSError as error:
        hint = "gpuinstall install NAME   # the package that brings it"
        reason = "no such program in the environment or on PATH" if error.errno == ENOENT else error.strerror
        raise UsageError("command-missing", f"{words[0]} cannot be run: {reason}", hint=hint) from None
