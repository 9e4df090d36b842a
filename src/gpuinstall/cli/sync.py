"""``gpuinstall sync``: pick the lock that fits this machine and install exactly that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.base.errors import LockError
from gpuinstall.base.request import Request
from gpuinstall.cli.install import carry_out
from gpuinstall.cli.options import SOURCING, CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal

if TYPE_CHECKING:
    from gpuinstall.lock.target import Target


@click.command("sync", help="Install exactly the lock that fits this machine.")
@framed(
    "sync",
    "cuda_compat",
    "cuda_compat_from",
    "venv",
    "target",
    "wheels",
    "dry_run",
    "replace",
    *SOURCING,
)
def command(terminal: Terminal, options: CommandOptions) -> Outcome:
    """Sync."""
    from gpuinstall.install.state import InstallOptions
    from gpuinstall.lock.folder_request import other_request
    from gpuinstall.lock.project_sources import team_lock_in
    from gpuinstall.lock.target import Target

    selected_target = Target.parse(options.target) if options.target else None
    of_team = selected_target is None and team_lock_in(Path.cwd()) is not None
    request = Request(
        () if of_team else ("torch",),
        backend=selected_target.backend if selected_target else None,
        sourcing=options.sourcing,
    )
    with options.open(
        terminal, request=request, only=not of_team, anew=not of_team, starts=True
    ) as project:
        terminal.machines.append(project.machine)
        if not of_team:
            _check_inputs(project.paths.folder, selected_target)
        selected = InstallOptions(
            locked=not of_team,
            target=str(selected_target) if selected_target else None,
            restoring=True,
            attempts=1,
            replace=options.replace,
        )
        outcome = carry_out(project, selected, is_dry_run=options.dry_run)
        declared = project.folder_request
        installed = None if options.dry_run else project.own_lock
    difference = other_request(installed, declared) if installed else None
    if difference:
        terminal.warn(f"{difference}; gpuinstall lock updates it")
    return outcome


def _check_inputs(folder: Path, target: Target | None) -> None:
    """Raise LockError if a requirements file that a lock was made from requests something else today."""
    from gpuinstall.lock.declaration import changed_inputs
    from gpuinstall.lock.fit import read_locks
    from gpuinstall.lock.folder_project import changed_build_files

    for lock in read_locks(folder):
        if target and lock.name != target.filename:
            continue
        reasons = [
            *changed_inputs(lock.record.requirements_files, folder),
            *changed_build_files(lock.record, folder),
        ]
        for reason in reasons:
            raise LockError(
                "lock-stale",
                f"{lock.name} is stale: {reason.message}",
                hint="gpuinstall lock   # then run it again",
            )
