"""``gpuinstall sync``: pick the lock that fits this machine and install exactly that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.hook import refresh
from gpuinstall.cli.install import show_dry_run, show_installed, warn_of_unproven
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.cli.terminal import Terminal
from gpuinstall.errors import LockError
from gpuinstall.project import Settings, open_project
from gpuinstall.request import Request
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from gpuinstall.lock.target import Target


@click.command("sync", help="Install exactly the lock that fits this machine.")
@options.machine_options
@options.venv
@click.option(
    "--target",
    metavar="T",
    shell_complete=options.target_names,
    help="The lock to install: cu126, cpu, … (default: the one that fits).",
)
@options.wheels
@install_options.dry_run_option
@install_options.changing("replace", "verify", "keep", "wait")
@options.sourcing
@framed("sync")
def command(
    terminal: Terminal,
    machine: options.MachineOptions,
    *,
    venv: str,
    target: str | None,
    dry_run: bool,
    changing: dict[str, Any],
    sourcing: Sourcing,
) -> Outcome:
    """Sync."""
    from gpuinstall.install import install as installation
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.lock.declaration import team_lock_in
    from gpuinstall.lock.fit import misfit_rows
    from gpuinstall.lock.folder_request import recorded_request
    from gpuinstall.lock.target import Target

    named = Target.parse(target) if target else None
    of_team = not named and team_lock_in(Path.cwd()) is not None
    settings = Settings(
        Request(
            () if of_team else ("torch",),
            backend=named.backend if named else None,
            sourcing=sourcing,
        ),
        only=not of_team,
        anew=not of_team,
        machine=options.read_named_machine(machine, terminal),
        venv=Path(venv),
    )
    with open_project(Path.cwd(), settings, terminal) as project:
        meant = project.machine
        terminal.step("Machine", machine_line(meant))
        if named and (named.os, named.arch) != (meant.os, meant.arch):
            message = f"{named.filename} is for {named.os} {named.arch}, and this is {meant.os} {meant.arch}"
            raise LockError(
                "lock-does-not-fit", message, hint="gpuinstall sync   # installs the one that fits"
            )
        if not of_team:
            _check_inputs(project.paths.folder, named)
        target = str(named) if named else None
        wanted = InstallOptions(
            locked=not of_team, target=target, restoring=True, attempts=1, **changing
        )
        if dry_run:
            priced, commands = installation.dry_run(project, wanted)
            return Outcome(
                priced.to_dict(commands), lambda screen: show_dry_run(screen, priced, commands)
            )
        result = installation.install(project, wanted)
        warn_of_unproven(terminal, result)
        refresh(project)
        declared = recorded_request(project.paths.folder).declaring(project.declaration)
    if unlike := declared.unlike(result.fit.lock):
        terminal.warn(f"{unlike}; gpuinstall lock updates it")
    data = {
        **result.to_dict(),
        "chosen": result.fit.lock.name,
        "rejected": misfit_rows(result.misfits),
    }
    return Outcome(data, lambda screen: show_installed(screen, result))


def _check_inputs(folder: Path, target: Target | None) -> None:
    """Raise LockError if a requirements file that a lock was made from asks for something else today."""
    from gpuinstall.lock.build_files import changed_build_files
    from gpuinstall.lock.declaration import changed_inputs, command_again
    from gpuinstall.lock.fit import read_locks

    for lock in read_locks(folder):
        if target and lock.name != target.filename:
            continue
        # A file that is gone is no other request: a lock may be shipped without it.
        reasons = [
            reason
            for reason in changed_inputs(lock.requirements_files, folder)
            if reason.code == "inputs-changed"
        ]
        reasons += changed_build_files(lock, folder)
        if reasons:
            message = f"{lock.name} is stale: {reasons[0].message}"
            command = command_again({reasons[0].code}, lock.requirements_files, lock.inputs)
            raise LockError("lock-stale", message, hint=f"{command}   # then the same again")
