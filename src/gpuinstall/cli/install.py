"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.hook import refresh
from gpuinstall.cli.install_into import change_into, check_not_a_path, find_interpreter, kernel_elsewhere
from gpuinstall.cli.install_view import show_dry_run, show_installed, show_rolled_back, warn_of_unproven
from gpuinstall.cli.outcome import Outcome, Status, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.environments.jupyter import PACKAGE
from gpuinstall.errors import MachineError, NoBuildError, UsageError
from gpuinstall.project import Project, open_project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.options import InstallOptions, InstallResult


@click.command("install", help="Install the PyTorch build that runs on this machine's GPUs, lock it, prove it.")
@options.request_options
@options.only
@options.machine_options
@options.venv
@install_options.into
@install_options.dry_run_option
@install_options.replacing
@options.upgrade
@options.upgrade_package
@click.option("--rollback", is_flag=True, help="Go back to the previous environment and its lock.")
@install_options.verify_option
@install_options.keep
@install_options.jupyter
@click.option("--fallback/--no-fallback", default=True, help="If a kernel fails, try the next build.")
@install_options.wait
@install_options.yes
@options.sourcing("code_check", "only_binary", "parallel", "offline", "extension_sources", "build_extensions")
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
    yes: bool,
    sourcing: dict[str, Any],
) -> Outcome:
    """Install."""
    from gpuinstall.install.options import ATTEMPTS, InstallOptions
    from gpuinstall.plan.requirement import normalised

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
    settings = options.read_settings(request, machine, terminal)
    settings = replace(settings, only=only, anew=only, venv=Path(venv), **sourcing)
    with open_project(Path.cwd(), settings, terminal) as project:
        if into:
            return change_into(project, python, dry_run=dry_run, wait=wait)
        wanted = InstallOptions(
            replace=replacing,
            upgrade=upgrade,
            moving=tuple(map(normalised, packages)),
            verify=verify,
            keep=keep,
            jupyter=jupyter,
            attempts=ATTEMPTS if fallback else 1,
            wait=wait,
            yes=yes,
        )
        return carry_out(project, wanted, dry_run=dry_run)


def _check_alone(mode: str, others: Mapping[str, bool]) -> None:
    """Raise UsageError where an option is given that means nothing in another mode, and would be passed over."""
    if given := [name for name, is_given in others.items() if is_given]:
        message = f"{mode} cannot be combined with {', '.join(given)}"
        raise UsageError("options-apart", message, hint=f"gpuinstall install {mode}")


def carry_out(project: Project, wanted: InstallOptions, *, dry_run: bool) -> Outcome:
    """Install, or show what an installation would do."""
    from gpuinstall.install import install as installation
    from gpuinstall.lock.fit import read_locks
    from gpuinstall.lock.lock import left_behind
    from gpuinstall.lock.source_builds import SourceBuildError
    from gpuinstall.plan.gpus import CPU_INSTEAD

    project.session.reporter.step("Machine", machine_line(project.machine))
    if dry_run:
        priced = installation.dry_run(project, wanted)
        return Outcome(priced.to_dict(), lambda screen: show_dry_run(screen, priced))
    try:
        result = _confirmed(project, wanted)
    except (MachineError, NoBuildError) as error:
        for_cpu = project.settings.request.is_for_cpu
        if project.machine.gpus and not for_cpu and not isinstance(error, SourceBuildError):
            error.hint = "\n".join(dict.fromkeys([*(error.hint or "").splitlines(), CPU_INSTEAD]))
        raise
    warn_of_unproven(project.reporter, result)
    refresh(project)
    written, folder = result.lock_change == "written", result.paths.folder
    if names := left_behind(result.fit.lock, read_locks(folder)) if written else []:
        text = f"{', '.join(names)}: made for another request or other versions; update them with: gpuinstall lock"
        project.reporter.warn(text)
    status: Status = "partial" if result.fit.plan.status == "partial" else "success"
    return Outcome(result.to_dict(), lambda screen: show_installed(screen, result, os.environ), status)


def _confirmed(project: Project, wanted: InstallOptions) -> InstallResult:
    """Install; ask first where more would be downloaded than was requested, and raise UsageError without an answer."""
    from gpuinstall.install.install import install
    from gpuinstall.install.priced_lock import UNCONFIRMED

    try:
        return install(project, wanted)
    except UsageError as error:
        asked = f"{error.message}. Download it?"
        if error.code != UNCONFIRMED or not (sys.stdin.isatty() and click.confirm(asked, err=True)):
            raise
        return install(project, replace(wanted, yes=True))


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
