"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.install_into import IntoRun, check_not_a_path, put_into
from gpuinstall.cli.install_view import show_installed, show_rolled_back, warn_of_unproven
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.errors import MachineError, NoBuildError, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.outcome import Status
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.machine import Machine
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources


@click.command("install", help="Install the PyTorch build that runs on this machine's GPUs, lock it, prove it.")
@options.request_options
@options.machine_options
@options.venv
@install_options.into
@click.option("--dry-run", is_flag=True, help="Print the commands that would be run, and run none.")
@install_options.replacing
@click.option("--upgrade", is_flag=True, help="Make a new lock, whatever there is.")
@click.option("--rollback", is_flag=True, help="Go back to the previous environment and its lock.")
@install_options.verify
@install_options.keep
@click.option("--fallback/--no-fallback", default=True, help="Try the next build where a kernel fails.")
@install_options.wait
@options.code_check
@options.only_binary
@options.offline
@framed("install")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    machine: options.MachineOptions,
    *,
    venv: str,
    into: bool,
    dry_run: bool,
    replacing: bool,
    upgrade: bool,
    rollback: bool,
    verify: bool,
    keep: bool,
    fallback: bool,
    wait: float,
    code_check: bool,
    only_binary: bool,
    offline: bool,
) -> Outcome:
    """Install."""
    from gpuinstall.session import open_session

    if rollback:
        return _roll_back(terminal, Path(venv), wait)
    if into:
        return put_into(terminal, request, machine, IntoRun(Path(venv), dry_run, wait, code_check, offline))
    check_not_a_path(request.python)
    wanted, catalog, sources = _options(terminal, request, machine, Path(venv), offline=offline)
    wanted = replace(wanted, replace=replacing, upgrade=upgrade, verify=verify, keep=keep, fallback=fallback, wait=wait)
    only_binary = only_binary or options.read_project_config().only_binary
    session = open_session(sources, terminal, offline=offline, code_check=code_check, only_binary=only_binary)
    return (_dry_run if dry_run else _install)(session, wanted, catalog)


def _options(
    terminal: Terminal, request: options.RequestOptions, machine: options.MachineOptions, venv: Path, *, offline: bool
) -> tuple[InstallOptions, Catalog, Sources]:
    """Put the command line, the project's settings and the machine together."""
    from gpuinstall.environments.environment import read_marker
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.learned.known import known_catalog
    from gpuinstall.lock.inputs import digest_files
    from gpuinstall.plan.demand import parse_request
    from gpuinstall.sources import read_sources

    config, paths = options.read_project_config(), EnvironmentPaths.at(venv)
    meant = options.read_selected_machine(machine, terminal)
    if machine.is_other:
        _check_platform(meant)
    asked_for = options.build_request(request, config, machine=machine)
    sources = read_sources(request.torch_index, os.environ, Path.cwd(), configured=config.torch_index)
    catalog = known_catalog(sources.torch_index)
    parse_request(asked_for, catalog.family, meant)
    existing = read_marker(paths.venv)
    first = (existing.python,) if existing else ()
    asked_for = replace(
        asked_for, preferred_pythons=(*first, *asked_for.preferred_pythons), managed_pythons=not offline
    )
    terminal.step("Machine", machine_line(meant))
    wanted = InstallOptions(
        paths,
        meant,
        None if machine.is_other or (asked_for.is_for_gpus and not meant.gpus) else meant,
        asked_for,
        exact=request.names_requirements(config),
        files=digest_files(request.read_files, paths.folder),
    )
    return wanted, replace(catalog, torch_index=sources.torch_index), sources


def _check_platform(meant: Machine) -> None:
    """Raise UsageError where another system is meant than the one that we run on."""
    from gpuinstall.facts.host import read_host
    from gpuinstall.facts.source import ThisMachine

    host = read_host(ThisMachine())
    if (meant.os, meant.arch) != (host.os, host.arch):
        raise UsageError(
            "other-platform",
            f"an environment for {meant.os} {meant.arch} cannot be made on {host.os} {host.arch}",
            hint="gpuinstall lock makes the lock for it; gpuinstall sync installs that there",
        )


def _install(opened: AbstractContextManager[Session], wanted: InstallOptions, catalog: Catalog) -> Outcome:
    from gpuinstall.install.install import install
    from gpuinstall.lock.source_builds import SourceBuildError

    try:
        with opened as session:
            done = install(wanted, catalog, session)
    except (MachineError, NoBuildError) as error:
        if wanted.machine.gpus and not wanted.request.is_for_cpu and not isinstance(error, SourceBuildError):
            error.hint = _or_for_the_cpu(error.hint)
        raise
    warn_of_unproven(session.reporter, done)
    status: Status = "partial" if done.found.plan.status == "partial" else "success"
    return Outcome(done.to_dict(), lambda screen: show_installed(screen, done, os.environ), status)


def _or_for_the_cpu(hint: str | None) -> str:
    """Say, with the whole command, that nothing has happened and that the CPU build can be had."""
    from gpuinstall.plan.gpus import CPU_INSTEAD

    lines = [line for line in (hint or "").splitlines() if line != CPU_INSTEAD]
    return "\n".join((*lines, "Nothing was downloaded. For the CPU build instead: gpuinstall install --backend cpu"))


def _roll_back(terminal: Terminal, venv: Path, wait: float) -> Outcome:
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.previous import roll_back
    from gpuinstall.install.swap import size_of

    paths, start = EnvironmentPaths.at(venv), monotonic()
    marker = roll_back(paths, wait, terminal)
    environment = {"path": str(paths.venv), "python": marker.python, "torch": marker.torch, "backend": marker.backend}
    data = {
        "plan": None,
        "lock": {"path": str(paths.folder / marker.lock), "sha256": marker.lock_sha256},
        "environment": environment,
        "previous": {"path": str(paths.previous), "bytes": size_of(paths.previous)},
        "verdict": marker.verdict,
        "bytes": 0,
        "seconds": round(monotonic() - start, 3),
    }
    return Outcome(data, lambda screen: show_rolled_back(screen, paths, marker))


def _dry_run(opened: AbstractContextManager[Session], wanted: InstallOptions, catalog: Catalog) -> Outcome:
    from gpuinstall.install.install import dry_run

    with opened as session:
        plan, commands = dry_run(wanted, catalog, session)

    def show(screen: Terminal) -> None:
        for command_line in commands:
            screen.line(shlex.join(command_line))

    return Outcome({"plan": plan.to_dict(), "commands": commands}, show)
