"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.install_into import check_not_a_path, kernel_elsewhere, put_into
from gpuinstall.cli.install_view import show_installed, show_rehearsal, show_rolled_back, warn_of_unproven
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.environments.jupyter import PACKAGE
from gpuinstall.errors import MachineError, NoBuildError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.outcome import Status
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.options import InstallOptions, InstallResult
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources


@click.command("install", help="Install the PyTorch build that runs on this machine's GPUs, lock it, prove it.")
@options.request_options
@options.only
@options.machine_options
@options.venv
@install_options.into
@install_options.dry_run
@install_options.replacing
@options.upgrade
@options.upgrade_package
@click.option("--rollback", is_flag=True, help="Go back to the previous environment and its lock.")
@install_options.verify
@install_options.keep
@install_options.jupyter
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
    only: bool,
    venv: str,
    into: bool,
    dry_run: bool,
    replacing: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    rollback: bool,
    verify: bool,
    keep: bool,
    jupyter: bool,
    fallback: bool,
    wait: float,
    code_check: bool,
    only_binary: bool,
    offline: bool,
) -> Outcome:
    """Install."""
    from gpuinstall.session import open_session

    moved = {"--only": only, "--replace": replacing, "--upgrade": upgrade, "--upgrade-package": bool(packages)}
    if rollback:
        more = {"a requirement": request.has_requirements, "--into": into, "--dry-run": dry_run, "--jupyter": jupyter}
        _check_alone("--rollback", more | moved)
        return _roll_back(terminal, Path(venv), wait)
    only_binary = only_binary or options.read_project_config().only_binary
    if into:
        _check_alone("--into", moved)
        if jupyter:
            raise kernel_elsewhere(request.python, Path(venv))
        return put_into(
            terminal,
            request,
            machine,
            Path(venv),
            dry_run=dry_run,
            wait=wait,
            code_check=code_check,
            only_binary=only_binary,
            offline=offline,
        )
    check_not_a_path(request.python)
    if jupyter:
        request = request._replace(requirements=(*request.requirements, PACKAGE))
    prepared = prepare(terminal, request, machine, Path(venv), only=only, offline=offline)
    wanted = replace(prepared.options, replace=replacing, upgrade=upgrade, moving=_names(packages), verify=verify)
    wanted = replace(wanted, keep=keep, fallback=fallback, jupyter=jupyter, wait=wait)
    session = open_session(prepared.sources, terminal, offline=offline, code_check=code_check, only_binary=only_binary)
    return carry_out(session, wanted, prepared.catalog, dry_run=dry_run)


def _check_alone(mode: str, others: Mapping[str, bool]) -> None:
    """Raise UsageError where an option is given that means nothing in another mode, and would be passed over."""
    if given := [name for name, is_given in others.items() if is_given]:
        message = f"{mode} does not go with {', '.join(given)}"
        raise UsageError("options-apart", message, hint=f"gpuinstall install {mode}")


class Prepared(NamedTuple):
    """What an installation is told, the catalogue that it chooses from, and where packages come from."""

    options: InstallOptions
    catalog: Catalog
    sources: Sources


def prepare(
    terminal: Terminal,
    request: options.RequestOptions,
    machine: options.MachineOptions,
    venv: Path,
    *,
    without: tuple[str, ...] = (),
    only: bool = False,
    offline: bool,
) -> Prepared:
    """Put the command line, the folder's request, the project's settings and the machine together."""
    from gpuinstall.cli.folder import read_folder_request
    from gpuinstall.environments.environment import read_marker
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.lock.folder_request import read_own_lock, recorded_request
    from gpuinstall.plan.demand import parse_request
    from gpuinstall.sources import read_sources

    config, paths = options.read_project_config(), EnvironmentPaths.at(venv)
    sources = read_sources(request.torch_index, os.environ, Path.cwd(), configured=config.torch_index)
    catalog = known_catalog(sources.torch_index)
    own = read_own_lock(paths.venv)
    recorded = recorded_request(paths.folder, own)
    asked = read_folder_request(
        request, config, paths.folder, recorded, family=catalog.family, reporter=terminal, only=only
    )
    if without:
        asked = asked.without(without).following(recorded)
    meant = options.read_selected_machine(machine, terminal)
    if machine.is_other:
        _check_platform(meant)
    asked_for = options.build_request(request, config, machine=machine, listed=asked.listed)
    parse_request(asked_for, catalog.family, meant)
    existing = read_marker(paths.venv)
    first = (existing.python,) if existing else ()
    asked_for = replace(
        asked_for,
        backend=asked_for.backend or (own.asked_backend if own and not only else None),
        preferred_pythons=(*first, *asked_for.preferred_pythons),
        managed_pythons=not offline,
    )
    terminal.step("Machine", machine_line(meant))
    here = None if machine.is_other or (asked_for.is_for_gpus and not meant.gpus) else meant
    wanted = InstallOptions(paths, meant, here, asked_for, asked)
    return Prepared(wanted, replace(catalog, torch_index=sources.torch_index), sources)


def carry_out(
    opened: AbstractContextManager[Session], wanted: InstallOptions, catalog: Catalog, *, dry_run: bool
) -> Outcome:
    """Install, or show what an installation would do."""
    return (_dry_run if dry_run else _install)(opened, wanted, catalog)


def _names(packages: tuple[str, ...]) -> tuple[str, ...]:
    from gpuinstall.plan.requirement import normalised

    return tuple(map(normalised, packages))


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
    _warn_of_other_locks(session.reporter, done)
    status: Status = "partial" if done.found.plan.status == "partial" else "success"
    return Outcome(done.to_dict(), lambda screen: show_installed(screen, done, os.environ), status)


def _warn_of_other_locks(reporter: Reporter, done: InstallResult) -> None:
    """The locks of a folder are one set: say which of them a change has left behind."""
    from gpuinstall.lock.compare import left_behind
    from gpuinstall.lock.fit import read_locks

    if done.lock_change == "written":
        names = left_behind(done.found.lock, read_locks(done.paths.folder))
        if names:
            reporter.warn(
                f"{', '.join(names)}: not of this request and these versions; gpuinstall lock makes all again"
            )


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
        rehearsal = dry_run(wanted, catalog, session)
    return Outcome(rehearsal.to_dict(), lambda screen: show_rehearsal(screen, rehearsal))
