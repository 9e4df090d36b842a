"""Which environment a command is for: the named one, the active one, that of the program in the folder, or ``.venv``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import display_path
from gpuinstall.environments.application import find_application, started_environment
from gpuinstall.environments.environment import read_marker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.cli.options import CommandOptions


def environment_to_read(options: CommandOptions) -> Path:
    """Return the environment that is looked into: of what starts in the folder the active one, else its own."""
    venv = options.environment.absolute()
    if options.names_environment:
        return venv
    own = started_environment(venv.parent)
    if own is None and venv.exists():
        return venv
    return active_environment(venv, os.environ) or own or venv


def check_started(venv: Path, reporter: Reporter) -> None:
    """Write that the user has made another environment in the folder.

    Raises:
        UsageError: An application lies there, which would not use the new one.
    """
    own = started_environment(venv.parent)
    if own is None or own == venv:
        return
    place = display_path(own)
    into = Advice(OURS, ("install", "--into", "--venv", place))
    if find_application(venv.parent):
        raise UsageError(
            "application-environment",
            f"the program in this folder starts {place}, and would not use {display_path(venv)}",
            hint=f"{into}\n{Advice(OURS, ('install', '--venv', display_path(venv)))}   # makes it all the same",
        )
    reporter.step(
        "Environment", f"{display_path(venv)}, beside {place}; for that one: {into}"
    )


def name_active(
    command: str,
    venv: Path,
    reporter: Reporter,
) -> None:
    """Write that a command is not for the environment that is activated, and the command that is."""
    active = active_environment(venv, os.environ)
    if active is None:
        return
    # An environment that gpuinstall did not make is changed package by package, never replaced.
    into = ("--into",) if command == "install" and read_marker(active) is None else ()
    advice = Advice(OURS, (command, *into, "--venv", str(active)))
    place = display_path(venv.absolute())
    reporter.step(
        "Active", f"{active}, and this is for {place}; for the active one: {advice}"
    )


def active_environment(venv: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the environment that the shell has activated; None if it is ``venv``, or the one that runs gpuinstall."""
    # What was activated in a conda environment comes before it.
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(environ.get(name, ""))
        if active.is_absolute() and interpreter(active).is_file():
            known = {venv.resolve(), Path(sys.prefix).resolve()}
            return None if active.resolve() in known else active
    return None
