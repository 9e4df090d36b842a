"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import dataclasses
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import click

from gpuinstall.base.environment_paths import EnvironmentPaths, interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.shell import activation, joined, parent_program, quoted, this_shell
from gpuinstall.base.units import display_path, duration, number_of, readable
from gpuinstall.cli import install_options, options
from gpuinstall.cli.active import name_active
from gpuinstall.cli.outcome import Outcome, framed, is_confirmed
from gpuinstall.cli.probe import counted, machine_line
from gpuinstall.environments.application import find_application
from gpuinstall.project import Project, open_project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.base.machine import Machine
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.environments.cuda_compat.libraries import CompatLibraries
    from gpuinstall.install.into import IntoResult
    from gpuinstall.install.options import InstallOptions, InstallResult

_VERSION = re.compile(r"\d+(\.\d+){0,2}t?")
_NEEDED_NEXT = (
    "gpuinstall.install.install",
    "packaging.requirements",
    "filelock",
    "gpuinstall.lock.live",
    "requests",
    "gpuinstall.lock.search",
    "gpuinstall.install.stage",
)
"""Modules in the order in which a first installation comes to them."""


@click.command(
    "install", help="Install the PyTorch build that runs on this machine's GPUs, lock it, prove it."
)
@options.request_options
@options.only
@options.compat_options
@options.venv
@install_options.into
@click.option(
    "--repair", is_flag=True, help="With --into: bring back the builds that were proven there."
)
@install_options.dry_run_option
@options.upgrade
@options.upgrade_package
@install_options.replace
@click.option("-y", "--yes", is_flag=True, help="Do not ask before a larger download.")
@framed("install")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    compat: options.CompatOptions,
    *,
    only: bool,
    venv: Path,
    into: bool,
    repair: bool,
    dry_run: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    replace: bool,
    yes: bool,
) -> Outcome:
    """Install."""
    from gpuinstall.base.requirement import normalised
    from gpuinstall.install.options import InstallOptions

    if repair and not into:
        raise UsageError(
            "options-apart",
            "--repair is for an environment that others made",
            hint="gpuinstall install --repair --into\n"
            "gpuinstall doctor --fix   # for an environment of gpuinstall",
        )
    if compat.source is not None:
        _check_compat(into=into, dry_run=dry_run)
    python = None
    if into:
        changes = {
            "--only": only,
            "--replace": replace,
            "--upgrade": upgrade,
            "--upgrade-package": bool(packages),
        }
        _check_alone("--into", changes)
        python = interpreter_of_others(request.python, venv)
        request = request._replace(python=None)
    elif _is_path(request.python):
        raise _not_ours(request.python)
    settings = dataclasses.replace(
        options.read_settings(request),
        only=only,
        anew=only,
        venv=venv,
        cuda_compat=compat.source,
        starts=True,
    )
    with open_project(Path.cwd(), settings, terminal) as project:
        if python is not None:
            return _change_into(project, python, dry_run=dry_run, repair=repair)
        selected = InstallOptions(
            replace=replace,
            upgrade=upgrade,
            moving=tuple(map(normalised, packages)),
            yes=yes,
        )
        return carry_out(project, selected, dry_run=dry_run)


def _check_alone(mode: str, others: Mapping[str, bool]) -> None:
    """Raise UsageError if an option is given that a mode would pass over."""
    names = [name for name, is_given in others.items() if is_given]
    if names:
        raise UsageError(
            "options-apart",
            f"{mode} cannot be combined with {', '.join(names)}",
            hint=f"gpuinstall install {mode}",
        )


def _check_compat(*, into: bool, dry_run: bool) -> None:
    """Raise UsageError if ``--cuda-compat`` is given with an option that cannot have it."""
    _check_alone("--cuda-compat", {"--into": into})
    if dry_run:
        raise UsageError(
            "options-apart",
            "--dry-run fetches nothing, and cuda-compat has to be fetched to be tried",
            hint="gpuinstall plan --cuda-compat   # shows what it would give",
        )


def _is_path(python: str | None) -> TypeGuard[str]:
    """Whether ``--python`` names an interpreter and not a version."""
    return python is not None and not _VERSION.fullmatch(python)


def interpreter_of_others(python: str | None, venv: Path) -> Path:
    """Return the interpreter that ``--python`` or ``--venv`` selects.

    Raises:
        UsageError: if there is none.
    """
    if _is_path(python):
        return options.find_interpreter(python, hint="Check the path")
    folder = venv.absolute()
    application = find_application(folder.parent)
    if application and not folder.is_dir():
        folder = application.environment
    # The last is where conda puts it on Windows.
    for path in (interpreter(folder), folder / "bin" / "python", folder / "python.exe"):
        if path.is_file():
            return path
    raise UsageError(
        "environment-missing",
        f"there is no environment at {venv}",
        hint="Use another with --python PATH or --venv DIR",
    )


def _not_ours(python: str) -> UsageError:
    """Return the error for an interpreter without ``--into``: its environment is not ours to replace."""
    into = f"gpuinstall install --into --python {quoted(python)}   # installs torch into it"
    anew = "gpuinstall install --python 3.12   # makes an environment of that Python"
    return UsageError(
        "python-is-a-path",
        f"--python {python} is the interpreter of an existing environment",
        hint=f"{into}\n{anew}",
    )


def carry_out(project: Project, selected: InstallOptions, *, dry_run: bool) -> Outcome:
    """Install, or show what an installation would do."""
    reporter = project.reporter
    reporter.step("Machine", machine_line(_read_machine(project)))
    name_active("install", project.paths.venv, reporter)
    if dry_run:
        return show_dry_run(project, selected)
    result = _install_confirmed(project, selected)
    after_install(project, result)
    project.keep_compat()
    if result.is_lock_new:
        from gpuinstall.lock.fit import read_locks
        from gpuinstall.lock.lock import outdated_locks

        names = outdated_locks(result.fit.lock, read_locks(result.paths.folder))
        if names:
            reporter.warn(
                f"{', '.join(names)}: made for another request or other versions; "
                "update them with: gpuinstall lock"
            )
    libraries = project.compat_libraries
    return Outcome(
        result.to_dict(),
        lambda screen: show_installed(screen, result, libraries),
        status="partial" if result.fit.plan.status == "partial" else "success",
    )


def _read_machine(project: Project) -> Machine:
    """Return the machine; what a first installation needs is loaded as long as the drivers have not answered."""
    if project.paths.venv.exists():
        # Perhaps nothing has to be done.
        return project.machine
    with ThreadPoolExecutor(1) as pool:
        machine = pool.submit(getattr, project, "machine")
        for module in _NEEDED_NEXT:
            if not machine.done():
                import_module(module)
    return project.machine


def _install_confirmed(project: Project, selected: InstallOptions) -> InstallResult:
    """Install; ask first if more would be downloaded than was requested.

    Raises:
        UsageError: if the answer is no, or nobody can answer.
    """
    from gpuinstall.install.install import install
    from gpuinstall.install.priced_lock import UNCONFIRMED

    try:
        return install(project, selected)
    except UsageError as error:
        if error.code != UNCONFIRMED or not is_confirmed(f"{error.message}. Download it?"):
            raise
        return install(project, dataclasses.replace(selected, yes=True))


def show_dry_run(project: Project, selected: InstallOptions) -> Outcome:
    """Return what an installation would do and cost; with ``--verbose`` the commands too."""
    from gpuinstall.install.install import dry_run

    priced, commands = dry_run(project, selected)

    def show(screen: Terminal) -> None:
        for label, text in priced.lines():
            screen.field(label, text)
        for host, size in priced.bill.sources.items():
            screen.field("From", f"{readable(size)} from {host}")
        if screen.verbose:
            for words in commands:
                screen.line(joined(words))
        screen.field("Dry run", "nothing was changed" if priced.existing else "already up to date")

    return Outcome(priced.to_dict(commands), show)


def after_install(project: Project, result: InstallResult) -> None:
    """Name the devices that no kernel ran on."""
    devices = result.verdict.get("devices", ())
    unproven = [device["name"] for device in devices if device["status"] == "unproven"]
    if unproven:
        project.reporter.warn(
            f"unproven: {', '.join(unproven)}; run gpuinstall verify where the GPUs are"
        )


def show_installed(
    terminal: Terminal,
    result: InstallResult,
    libraries: CompatLibraries | None = None,
) -> None:
    """Write the summary: proof, environment, lock, caches, what was replaced, how to activate it, the cost.

    Args:
        terminal: Where to.
        result: What came of the installation.
        libraries: What its programs load above the driver: they are started by ``run``, never activated.
    """
    from gpuinstall.install.options import Action

    lock, venv = result.fit.lock, result.paths.venv
    if result.is_proof_kept:
        terminal.field("Proof", "kept: nothing that it covers changed")
    else:
        terminal.field("Proof", _proof(result))
    terminal.field(
        "Environment",
        f"{display_path(venv)} · torch {lock.versions['torch']} · Python {result.fit.choice.python}",
    )
    unchanged = "" if result.is_lock_new else ", unchanged"
    packages = number_of(len(lock.pylock.packages), "package")
    terminal.field("Lock", f"{lock.name}: {packages}, {lock.pinned_by}{unchanged}")
    if result.bytes:
        terminal.field("Cache", " and ".join(map(display_path, result.caches)))
    if result.previous:
        previous = f"{display_path(result.previous)}, {readable(result.previous_bytes)}"
        terminal.field("Previous", f"{previous}; undo: {undo_command(result.paths)}")
    match result.action:
        case Action.NOTHING:
            cost = "already up to date"
        case Action.VERIFY:
            cost = duration(result.seconds)
        case Action.BUILD:
            cost = _cost(result)
    if libraries:
        terminal.field("Libraries", f"{libraries} above the driver, for what gpuinstall starts")
        place = "" if venv == Path.cwd() / ".venv" else f" --venv {quoted(venv)}"
        terminal.field("Ready", f"gpuinstall run{place} python   {cost}")
        return
    terminal.field("Ready", f"{activation_command(venv)}   {cost}")


def _proof(result: InstallResult) -> str:
    """Return ``passed: 2 × NVIDIA GeForce RTX 4090 · driver 535.183.01``, and what is not proven beside it."""
    names: dict[str, Counter[str]] = {}
    for device in result.verdict.get("devices", ()):
        names.setdefault(device["status"], Counter())[device["name"]] += 1
    proof = "; ".join(f"{status}: {', '.join(counted(kinds))}" for status, kinds in names.items())
    driver = result.machine.driver
    if driver and driver.version:
        proof += f" · driver {driver.version}"
    return proof


def _cost(result: InstallResult | IntoResult) -> str:
    size = readable(result.bytes) if result.bytes else "nothing"
    return f"{duration(result.seconds)}, {size} fetched"


def undo_command(paths: EnvironmentPaths) -> str:
    """Return the command that exchanges an environment for its previous one."""
    place = "" if paths.venv == Path.cwd() / ".venv" else f" --venv {quoted(paths.venv)}"
    return f"gpuinstall env rollback{place}"


def activation_command(venv: Path) -> str:
    """Return the line that activates an environment in the shell that we were called from."""
    path = str(venv)
    if venv.is_relative_to(Path.cwd()):
        path = os.path.relpath(venv)
    shell = this_shell(os.environ, parent_program())
    return activation(path, shell, windows=(venv / "Scripts").is_dir())


def _change_into(
    project: Project,
    python: Path,
    *,
    dry_run: bool,
    repair: bool,
) -> Outcome:
    from gpuinstall.install.into import dry_run_into, install_into

    project.reporter.step("Machine", machine_line(project.machine))
    if dry_run:
        result = dry_run_into(project, python, repair=repair)
    else:
        result = install_into(project, python, repair=repair)
    return Outcome(result.to_dict(), lambda screen: _show_into(screen, result))


def _show_into(terminal: Terminal, result: IntoResult) -> None:
    from gpuinstall.install.swap import size_of

    environment = result.environment
    python = quoted(environment.python)
    versions = f"torch {result.fit.lock.versions['torch']} · Python {environment.version}"
    terminal.field("Environment", f"{display_path(environment.prefix)} · {versions}")
    if result.verdict is None:
        changes = number_of(len(result.changes), "package")
        terminal.field("Dry run", f"{changes} would change; nothing was changed")
        return
    terminal.field("Proof", str(result.verdict["status"]))
    if result.previous:
        size = readable(size_of(result.previous))
        undo = f"gpuinstall env rollback --into --python {python}"
        remark = f"the files before, {size}, stay until the next change"
        terminal.field("Undo", f"{undo}   # {remark}")
    if result.uv_guard:
        terminal.field("Guard", f"pip and uv there keep these builds, by {result.uv_guard}")
    elif result.guard:
        constraints = quoted(result.guard)
        guard = f"plain pip there keeps these builds; uv pip does with -c {constraints}"
        terminal.field("Guard", guard)
    terminal.field("Ready", f"{python}   {_cost(result)}")
