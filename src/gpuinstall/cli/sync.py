"""``gpuinstall sync``: pick the lock that fits this machine and install exactly that."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli import install_options, options, values
from gpuinstall.cli.install_view import show_installed, warn_of_unproven
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.errors import LockError

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.options import InstallOptions, InstallResult
    from gpuinstall.lock.target import Target
    from gpuinstall.machine import Machine


@click.command("sync", help="Pick the lock that fits this machine and install exactly that.")
@options.machine_options
@options.venv
@click.option(
    "--target",
    metavar="T",
    shell_complete=values.targets,
    help="The lock to install where the machine cannot say: cu126, cpu, …",
)
@click.option("--wheels", metavar="DIR", type=click.Path(path_type=Path), help="Take the files from this folder.")
@install_options.replacing
@install_options.verify
@install_options.keep
@install_options.wait
@options.torch_index
@options.only_binary
@options.offline
@framed("sync")
def command(
    terminal: Terminal,
    machine: options.MachineOptions,
    *,
    venv: str,
    target: str | None,
    wheels: Path | None,
    replacing: bool,
    verify: bool,
    keep: bool,
    wait: float,
    torch_index: str | None,
    only_binary: bool,
    offline: bool,
) -> Outcome:
    """Sync."""
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.install import install
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.lock.folder_request import recorded_request
    from gpuinstall.lock.target import Target
    from gpuinstall.session import open_session
    from gpuinstall.sources import read_sources

    named = Target.parse(target) if target else None
    meant = options.read_selected_machine(machine, terminal)
    terminal.step("Machine", machine_line(meant))
    paths = EnvironmentPaths.at(Path(venv))
    config = options.read_project_config()
    request = replace(
        options.build_request(options.RequestOptions(), config, machine=machine),
        requirements=("torch",),
    )
    here = None if machine.is_other else meant
    wanted = InstallOptions(paths, meant, here, request, locked=True, wheels=wheels and wheels.absolute(), wait=wait)
    wanted = replace(wanted, replace=replacing, verify=verify, keep=keep, fallback=False)
    if named:
        wanted = _of_target(wanted, named, meant)
    sources = read_sources(torch_index, os.environ, Path.cwd(), configured=config.torch_index)
    only_binary = only_binary or config.only_binary
    with open_session(sources, terminal, offline=offline, only_binary=only_binary) as session:
        done = install(wanted, known_catalog(), session)
    warn_of_unproven(terminal, done)
    if unlike := recorded_request(paths.folder).declaring(config.requirements or ()).unlike(done.found.lock):
        terminal.warn(f"{unlike}; gpuinstall lock makes all again")
    return Outcome(_document(done), lambda screen: show_installed(screen, done, os.environ))


def _of_target(wanted: InstallOptions, target: Target, machine: Machine) -> InstallOptions:
    """Mean one lock; its build is obeyed where this machine has no GPU, and proven where it has."""
    if (target.os, target.arch) != (machine.os, machine.arch):
        raise LockError(
            "lock-does-not-fit",
            f"{target.filename} is for {target.os} {target.arch}, and this is {machine.os} {machine.arch}",
            hint="gpuinstall sync   picks the one that fits",
        )
    request = replace(wanted.request, backend=target.backend)
    here = wanted.here if machine.gpus or request.is_for_cpu else None
    return replace(wanted, target=str(target), request=request, here=here)


def _document(done: InstallResult) -> dict[str, Any]:
    rejected = [misfit.to_dict() for misfit in done.misfits]
    return {**done.to_dict(), "chosen": done.found.lock.name, "rejected": rejected}
