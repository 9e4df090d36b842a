"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.install_into import check_not_a_path, find_interpreter, kernel_elsewhere, put_into
from gpuinstall.cli.install_view import show_installed, show_rehearsal, show_rolled_back, warn_of_unproven
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.environments.jupyter import PACKAGE
from gpuinstall.errors import MachineError, NoBuildError, UsageError
from gpuinstall.project import open_project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.outcome import Status
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.options import InstallOptions, InstallResult
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project
    from gpuinstall.reporter import Reporter


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
    moved = {"--only": only, "--replace": replacing, "--upgrade": upgrade, "--upgrade-package": bool(packages)}
    if rollback:
        more = {"a requirement": request.has_requirements, "--into": into, "--dry-run": dry_run, "--jupyter": jupyter}
        _check_alone("--rollback", more | moved)
        return _roll_back(terminal, Path(venv), wait)
    if into:
        _check_alone("--into", moved)
        if jupyter:
            raise kernel_elsewhere(request.python, Path(venv))
        python = find_interpreter(request.python, Path(venv))
        request = request._replace(python=None)
    else:
        check_not_a_path(request.python)
        request = request._replace(requirements=(*request.requirements, *([PACKAGE] if jupyter else ())))
    settings = replace(
        options.read_settings(request, machine, terminal),
        only=only,
        anew=only,
        venv=Path(venv),
        offline=offline,
        code_check=code_check,
        only_binary=only_binary,
    )
    with open_project(Path.cwd(), settings, terminal) as project:
        if into:
            return put_into(project, python, dry_run=dry_run, wait=wait)
        flags = {"replace": replacing, "upgrade": upgrade, "verify": verify, "keep": keep, "fallback": fallback}
        return carry_out(project, dry_run=dry_run, moving=_names(packages), jupyter=jupyter, wait=wait, **flags)


def _check_alone(mode: str, others: Mapping[str, bool]) -> None:
    """Raise UsageError where an option is given that means nothing in another mode, and would be passed over."""
    if given := [name for name, is_given in others.items() if is_given]:
        message = f"{mode} does not go with {', '.join(given)}"
        raise UsageError("options-apart", message, hint=f"gpuinstall install {mode}")


def carry_out(project: Project, *, dry_run: bool, **flags: Any) -> Outcome:
    """Install, or show what an installation would do."""
    from gpuinstall.install.options import InstallOptions

    asked = project.read_folder_request()
    if project.settings.machine:
        _check_platform(project.machine)
    request = project.environment_request(asked)
    project.reporter.step("Machine", machine_line(project.machine))
    wanted = InstallOptions(project.paths, project.machine, project.here(request), request, asked, **flags)
    return (_dry_run if dry_run else _install)(project, wanted)


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


def _install(project: Project, wanted: InstallOptions) -> Outcome:
    from gpuinstall.install.install import install
    from gpuinstall.lock.source_builds import SourceBuildError

    try:
        done = install(wanted, project.catalog, project.session)
    except (MachineError, NoBuildError) as error:
        if wanted.machine.gpus and not wanted.request.is_for_cpu and not isinstance(error, SourceBuildError):
            error.hint = _or_for_the_cpu(error.hint)
        raise
    warn_of_unproven(project.reporter, done)
    _warn_of_other_locks(project.reporter, done)
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


def _dry_run(project: Project, wanted: InstallOptions) -> Outcome:
    from gpuinstall.install.install import dry_run

    rehearsal = dry_run(wanted, project.catalog, project.session)
    return Outcome(rehearsal.to_dict(), lambda screen: show_rehearsal(screen, rehearsal))
