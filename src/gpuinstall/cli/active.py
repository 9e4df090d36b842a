"""Which environment a command is for: the named one, the active one, the one that a program here starts, or ``.venv``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os.path import exists, isfile
from pathlib import Path

from gpuinstall.base.advice import Advice, for_environment
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import display_path
from gpuinstall.base.owners import is_foreign, owner_of
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.cli.options import CommandOptions, names_environment
from gpuinstall.cli.terminal import Terminal


@contextmanager
def served(terminal: Terminal, *, installs: bool = False) -> Iterator[Path]:
    """Work in the folder that a command serves, and report it.

    Args:
        terminal: Where it is reported.
        installs: Whether the command creates an environment where none is.

    Yields:
        The folder in which the command was typed, from the one that it serves.

    Raises:
        UsageError: A parent has an environment, and nothing shows which one is meant.
    """
    from gpuinstall.lock.request.declaration import parent_environment, served_folder

    here = Path.cwd()
    folder = here if names_environment() else served_folder(here)
    above = None
    if installs and not names_environment():
        above = parent_environment(here)
    if above:
        place = quoted(os.path.relpath(above))
        into = "" if exists(above / "gpuinstall.json") else "--into "
        raise UsageError(
            "parent-environment",
            f"a parent folder has an environment, {above}, but no project",
            hint=f"Run it again with {into}--venv {place}: installs into that environment\n"
            "Run it again with --venv .venv: creates one in this folder",
        )
    if folder != here:
        terminal.step(
            "Folder", f"{display_path(folder)}, as nothing is requested in {here.name}"
        )
        os.chdir(folder)
    try:
        yield here.relative_to(folder)
    finally:
        os.chdir(here)


def environment_to_read(options: CommandOptions) -> Path:
    """Return the environment to look into.

    It is the one that the user named; else ``.venv``, if it is there and no program here starts another; else the active
    one, or the one that the program starts.
    """
    from gpuinstall.environments.application import started_environment

    venv = options.venv.absolute()
    if names_environment():
        return venv
    own = started_environment(venv.parent)
    if own is None and exists(venv):
        return venv
    return active_environment(venv, os.environ) or own or venv


def check_started(venv: Path, reporter: Reporter) -> None:
    """Write that the user has made another environment in the folder.

    Args:
        venv: The environment that an installation is for, though nobody has named it.
        reporter: Is told of the other.

    Raises:
        UsageError: An application lies there, which would not use the new one.
    """
    from gpuinstall.environments.application import (
        find_application,
        started_environment,
    )

    own = started_environment(venv.parent)
    if own is None or own == venv:
        return
    # No shell expands a quoted ~.
    place = os.path.relpath(own)
    if find_application(venv.parent):
        raise UsageError(
            "application-environment",
            f"the program in this folder starts {place}, and would not use {display_path(venv)}",
            hint=f"Run it again with --into --venv {quoted(place)}\n"
            f"Run it again with --venv {quoted(display_path(venv))}: makes it all the same",
        )
    into = for_environment(place, "install", "--into")
    reporter.step(
        "Environment", f"{display_path(venv)}, beside {place}; for that one: {into}"
    )


def check_startable(venv: Path, reporter: Reporter) -> None:
    """Check that the Python of an environment may be started.

    Raises:
        UsageError: Another user owns it, or the folder that it came with is not trusted, and the user has not named it.
    """
    from gpuinstall.environments.records import check_start
    from gpuinstall.sources.configuration import read_policy

    is_named = names_environment()
    if not is_named and _is_of_another_user(venv):
        raise UsageError(
            "environment-of-another-user",
            f"{venv} belongs to {owner_of(venv)}",
            hint=f"Run it again with --venv {quoted(venv)}: runs that user's programs",
        )
    report_owner(venv, reporter)
    allow_unmanaged = is_named or read_policy(os.environ, venv.parent).runs(venv)
    check_start(venv, reporter, allow_unmanaged=allow_unmanaged)


def report_owner(venv: Path, reporter: Reporter) -> None:
    """Print the owner of a selected environment of another user."""
    if _is_of_another_user(venv):
        reporter.notice("Owner", f"{venv} belongs to {owner_of(venv)}")


def _is_of_another_user(venv: Path) -> bool:
    return os.path.lexists(venv) and is_foreign(venv, venv.parent)


def name_active(
    words: Sequence[str],
    venv: Path,
    reporter: Reporter,
) -> None:
    """Write that a command is not for the environment that is activated, and the command that is.

    Args:
        words: The command, with what it is told to remove.
        venv: The environment that it is for.
        reporter: Where it is written.
    """
    active = active_environment(venv, os.environ)
    if active is None:
        return
    from gpuinstall.environments.environment import read_marker

    advice = for_environment(active, *words)
    # An environment that gpuinstall did not make is changed package by package, never replaced.
    if read_marker(active) is None and words[0] == "install":
        advice = for_environment(active, *words, "--into")
    elif read_marker(active) is None and words[0] == "remove":
        removal = ("pip", "uninstall", "--python", str(active), *words[1:])
        advice = Advice("uv", removal)
    place = display_path(venv.absolute())
    reporter.step(
        "Active", f"{active}, and this is for {place}; for the active one: {advice}"
    )


def active_environment(venv: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the environment that the shell has activated.

    Args:
        venv: The environment that a command is for.
        environ: The variables of the shell.

    Returns:
        Its folder; None if there is none, or it is ``venv``, or the one that runs gpuinstall.
    """
    # What was activated in a conda environment comes before it.
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(environ.get(name, ""))
        if active.is_absolute() and isfile(interpreter(active)):
            known = {venv.resolve(), Path(sys.prefix).resolve()}
            return None if active.resolve() in known else active
    return None
