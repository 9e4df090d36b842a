"""The environment that the shell has activated, if a command is for another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.files import display_path
from gpuinstall.environments.environment import read_marker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.base.reporter import Reporter


def name_active(command: str, venv: Path, reporter: Reporter) -> None:
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
