"""The environment that the shell has activated, if a command is for another one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import active_environment
from gpuinstall.base.files import display_path
from gpuinstall.environments.environment import read_marker

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.reporter import Reporter


def command_for_active(command: str, venv: Path) -> Advice | None:
    """Return the command for the environment that is activated, if that is another than ``venv``."""
    active = active_environment(os.environ, venv)
    if active is None:
        return None
    # An environment that gpuinstall did not make is changed package by package, never replaced.
    into = ("--into",) if command == "install" and read_marker(active) is None else ()
    return Advice(OURS, (command, *into, "--venv", str(active)))


def name_active(command: str, venv: Path, reporter: Reporter) -> None:
    """Write that a command is not for the environment that is activated, and the command that is."""
    advice = command_for_active(command, venv)
    if advice is None:
        return
    active, place = advice.arguments[-1], display_path(venv.absolute())
    reporter.step(
        "Active", f"{active}, and this is for {place}; for the active one: {advice}"
    )
