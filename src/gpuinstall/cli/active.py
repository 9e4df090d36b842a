"""Select the project folder and the environment of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import exists, isfile
from pathlib import Path

from gpuinstall.base.advice import environment_advice, make_change
from gpuinstall.base.environment_paths import EnvironmentPaths, interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import SHELL_FOLDER, display_path
from gpuinstall.base.owners import is_foreign, owner_of
from gpuinstall.base.reporter import Reporter
from gpuinstall.cli.commands import format_hint
from gpuinstall.cli.options import (
    CommandOptions,
    is_environment_given,
    is_on_command_line,
)
from gpuinstall.cli.terminal import Terminal


@contextmanager
def enter_project_folder(terminal: Terminal, installs: bool = False) -> Iterator[Path]:
    """Change to the nearest project folder, and report it.

    Args:
        terminal: The terminal of the command.
        installs: Whether the command creates the environment if it is missing.

    Yields:
        The previous working folder, relative to the new one.

    Raises:
        UsageError: A parent folder has an environment but no project, so the
            command could mean that environment or a new one.
    """
    from gpuinstall.lock.request.declaration import (
        find_parent_environment,
        find_project_folder,
    )

    here = Path.cwd()
    # The variables are relative to the project.
    folder = here if is_on_command_line("venv") else find_project_folder(here)
    parent = None
    if installs and not is_environment_given():
        parent = find_parent_environment(here)
    if parent:
        place = os.path.relpath(parent)
        into = () if exists(parent / "gpuinstall.json") else ("--into",)
        note = "installs into that environment"
        raise UsageError(
            "parent-environment",
            f"a parent folder has the environment {parent} but no project",
            hint=(
                make_change(*into, "--venv", place, note=note),
                make_change("--venv", ".venv", note="creates one in this folder"),
            ),
        )
    if folder != here:
        terminal.step("Folder", f"{display_path(folder)} ({here.name} has no request)")
        os.chdir(folder)
    shell_folder = SHELL_FOLDER.set(here)
    try:
        yield here.relative_to(folder)
    finally:
        SHELL_FOLDER.reset(shell_folder)
        os.chdir(here)


def find_environment(options: CommandOptions) -> Path:
    """Return the existing environment that a command inspects or changes.

    In order of precedence, it is the environment that the user specified, ``.venv``
    (except with ``--into``, or if the folder's program uses another environment), the
    active environment, or the program's environment.
    """
    from gpuinstall.environments.application import find_started_environment

    venv = options.read_paths(is_read_only=True).venv
    if is_environment_given():
        return venv
    own = find_started_environment(Path.cwd())
    if own is None and exists(venv) and not options.into:
        return venv
    return find_active_environment(venv) or own or venv


def check_program_environment(venv: Path, reporter: Reporter) -> None:
    """Report a program in the folder that uses another environment.

    Args:
        venv: The default environment of an installation.
        reporter: Receives the report.

    Raises:
        UsageError: The folder has a known application that would not use ``venv``.
    """
    from gpuinstall.environments.application import (
        find_application,
        find_started_environment,
    )

    own = find_started_environment(Path.cwd())
    if own is None or own == venv:
        return
    # display_path would write ~, which shells do not expand within quotes.
    place = os.path.relpath(own)
    if find_application(Path.cwd()):
        raise UsageError(
            "application-environment",
            f"the application in this folder uses {place} and would ignore {display_path(venv)}",
            hint=(
                make_change("--into", "--venv", place),
                make_change("--venv", display_path(venv), note="creates it anyway"),
            ),
        )
    into = environment_advice(place, "install", "--into")
    reporter.step(
        "Environment",
        f"{display_path(venv)}; to use {place} instead: {format_hint(into)}",
    )


def check_environment_trust(venv: Path, reporter: Reporter) -> None:
    """Check that gpuinstall may run the Python of an environment.

    Raises:
        UsageError: The user did not specify the environment, and it belongs to
            another user or to an untrusted folder.
    """
    from gpuinstall.environments.records import check_start
    from gpuinstall.sources.configuration import read_policy

    # A variable such as UV_PROJECT_ENVIRONMENT=.venv selects environments of all folders.
    is_named = is_on_command_line("venv")
    policy = read_policy(Path.cwd())
    is_trusted = is_named or policy.trusts_other_users
    if not is_trusted and _belongs_to_another_user(venv):
        raise UsageError(
            "environment-of-another-user",
            f"{venv} belongs to {owner_of(venv)}",
            hint=make_change("--venv", str(venv), note="runs that user's programs"),
        )
    report_owner(venv, reporter)
    check_start(venv, reporter, allow_unmanaged=is_named or policy.runs(venv))


def report_owner(venv: Path, reporter: Reporter) -> None:
    """Report if another user owns the selected environment."""
    if _belongs_to_another_user(venv):
        reporter.notice("Owner", f"{venv} belongs to {owner_of(venv)}")


def _belongs_to_another_user(venv: Path) -> bool:
    return os.path.lexists(venv) and is_foreign(venv, venv.parent)


def report_active_environment(
    words: Sequence[str], venv: Path, reporter: Reporter
) -> None:
    """Report an active environment that the command ignores.

    Args:
        words: The command, with the packages to remove.
        venv: The environment of the command.
        reporter: Receives the report, with the command for the active environment.
    """
    active = find_active_environment(venv)
    if active is None:
        return
    advice = environment_advice(active, *words)
    place = display_path(venv.absolute())
    reporter.step(
        "Active",
        f"{active}, but this command uses {place}; "
        f"to use the active one: {format_hint(advice)}",
    )


def find_active_environment(venv: Path) -> Path | None:
    """Return the active environment of the shell.

    Args:
        venv: The environment of the command.

    Returns:
        The folder of the environment. None if no environment is active, or if the
        active environment is ``venv`` or contains gpuinstall.
    """
    # A virtual environment can be activated within a conda environment.
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(os.environ.get(name, ""))
        if active.is_absolute() and isfile(interpreter(active)):
            known = {venv.resolve(), Path(sys.prefix).resolve()}
            return None if active.resolve() in known else active
    return None


def recover_environment(paths: EnvironmentPaths, reporter: Reporter) -> None:
    """Recover an interrupted change.

    If a change is still running, wait for it.
    """
    from gpuinstall.install.journal import needs_recovery

    if needs_recovery(paths):
        from gpuinstall.install.environment_lock import (
            environment_lock,  # slow to import
        )

        with environment_lock(paths, reporter):
            pass
