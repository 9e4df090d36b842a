"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeGuard

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.active import name_active
from gpuinstall.cli.hook import refresh
from gpuinstall.cli.outcome import Outcome, framed, is_confirmed
from gpuinstall.cli.probe import counted, machine_line
from gpuinstall.environments.application import find_application
from gpuinstall.environments.jupyter import PACKAGE, kernel_folder, kernel_name
from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.errors import UsageError
from gpuinstall.project import Project, Settings, open_project
from gpuinstall.shell import activation, joined, parent_program, quoted, this_shell
from gpuinstall.units import display_path, duration, readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.cuda_compat.libraries import CompatLibraries
    from gpuinstall.install.into import IntoResult
    from gpuinstall.install.options import InstallOptions, InstallResult
    from gpuinstall.machine import Machine

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
@options.machine_options
@options.compat_options
@options.venv
@install_options.into
@install_options.dry_run_option
@options.upgrade
@options.upgrade_package
@click.option("--rollback", is_flag=True, help="Go back to the previous environment and its lock.")
@click.option(
    "--repair", is_flag=True, help="With --into: bring back the builds that were proven there."
)
@install_options.jupyter
@click.option(
    "--fallback/--no-fallback", default=True, help="If a kernel fails, try the next build."
)
@install_options.changing("replace", "verify", "keep", "wait", "yes")
@framed("install")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    machine: options.MachineOptions,
    compat: options.CompatOptions,
    *,
    only: bool,
    venv: Path,
    into: bool,
    dry_run: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    rollback: bool,
    repair: bool,
    jupyter: bool,
    fallback: bool,
    changing: dict[str, Any],
) -> Outcome:
    """Install."""
    from gpuinstall.install.options import ATTEMPTS, InstallOptions
    from gpuinstall.plan.requirement import normalised

    changes = {
        "--only": only,
        "--replace": changing["replace"],
        "--upgrade": upgrade,
        "--upgrade-package": bool(packages),
    }
    if repair and not into:
        raise UsageError(
            "options-apart",
            "--repair is for an environment that others made",
            hint="gpuinstall install --repair --into\n"
            "gpuinstall doctor --fix   # for an environment of gpuinstall",
        )
    if rollback:
        installs = {
            "a requirement": request.has_requirements,
            "--dry-run": dry_run,
            "--jupyter": jupyter,
            "--repair": repair,
            "--cuda-compat": compat.source is not None,
        }
        _check_alone("--rollback", installs | changes)
        with open_project(Path.cwd(), Settings(venv=venv), terminal) as project:
            going_back = InstallOptions(wait=changing["wait"])
            if into:
                return _restore_files(_find_interpreter(request.python, venv), project, going_back)
            return _restore_environment(project, going_back)
    if compat.source is not None:
        _check_compat(into=into, dry_run=dry_run)
    python = None
    if into:
        _check_alone("--into", changes)
        if jupyter:
            raise _no_kernel_into(request.python, venv)
        python = _find_interpreter(request.python, venv)
        request = request._replace(python=None)
    elif _is_path(request.python):
        raise _not_ours(request.python)
    if jupyter:
        request = request._replace(requirements=(*request.requirements, PACKAGE))
    settings = options.read_settings(request, machine, terminal)
    settings = replace(settings, only=only, anew=only, venv=venv, cuda_compat=compat.source)
    with open_project(Path.cwd(), settings, terminal) as project:
        if python is not None:
            return _change_into(project, python, changing, dry_run=dry_run, repair=repair)
        selected = InstallOptions(
            upgrade=upgrade,
            moving=tuple(map(normalised, packages)),
            jupyter=jupyter,
            attempts=ATTEMPTS if fallback else 1,
            **changing,
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


def _find_interpreter(python: str | None, venv: Path) -> Path:
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


def _no_kernel_into(python: str | None, venv: Path) -> UsageError:
    """Return the error for ``--jupyter --into``, with the commands that make a kernel there."""
    program = quoted(python if _is_path(python) else str(interpreter(venv)))
    return UsageError(
        "jupyter-elsewhere",
        "--jupyter works only in environments made by gpuinstall",
        hint=f"{program} -m pip install ipykernel\n"
        f"{program} -m ipykernel install --user --name NAME",
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
        return install(project, replace(selected, yes=True))


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
    """Name the devices that no kernel ran on, and update the hooks."""
    devices = result.verdict.get("devices", ())
    unproven = [device["name"] for device in devices if device["status"] == "unproven"]
    if unproven:
        project.reporter.warn(
            f"unproven: {', '.join(unproven)}; run gpuinstall verify where the GPUs are"
        )
    refresh(project)


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
    packages = len(lock.pylock.packages)
    terminal.field("Lock", f"{lock.name}: {packages} packages, {lock.pinned_by}{unchanged}")
    if result.bytes:
        terminal.field("Cache", " and ".join(map(display_path, result.caches)))
    if result.previous:
        previous = f"{display_path(result.previous)}, {readable(result.previous_bytes)}"
        terminal.field("Previous", f"{previous}; undo: {_undo(result.paths)}")
    if (kernel_folder(venv) / "kernel.json").exists():
        terminal.field("Jupyter", f"the kernel {kernel_name(venv)}")
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
    terminal.field("Ready", f"{_ready(venv)}   {cost}")


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


def _undo(paths: EnvironmentPaths) -> str:
    """Return the command that exchanges an environment for its previous one."""
    place = "" if paths.venv == Path.cwd() / ".venv" else f" --venv {quoted(paths.venv)}"
    return f"gpuinstall install --rollback{place}"


def _ready(venv: Path) -> str:
    """Return the line that activates an environment in the shell that we were called from."""
    path = str(venv)
    if venv.is_relative_to(Path.cwd()):
        path = os.path.relpath(venv)
    shell = this_shell(os.environ, parent_program())
    return activation(path, shell, windows=(venv / "Scripts").is_dir())


def _restore_environment(project: Project, selected: InstallOptions) -> Outcome:
    """Exchange an environment for the one that it has replaced."""
    from gpuinstall.environments.environment import installed_packages, read_marker
    from gpuinstall.environments.ownership import is_environment
    from gpuinstall.install.swap import size_of
    from gpuinstall.install.transaction import OwnPlace, roll_back
    from gpuinstall.lock.lock import compare_versions

    start = monotonic()
    roll_back(OwnPlace(project, selected))
    paths = project.paths
    marker = read_marker(paths.venv)
    changes = compare_versions(installed_packages(paths.previous), installed_packages(paths.venv))
    label = "Changes"
    for line in map(str, changes or ["no version changes"]):
        project.reporter.step(label, line)
        label = ""
    data = {
        "plan": None,
        "lock": marker and {"path": str(paths.folder / marker.lock), "sha256": marker.lock_sha256},
        "environment": {
            "path": str(paths.venv),
            "python": marker and marker.python,
            "torch": marker and marker.torch,
            "backend": marker and marker.backend,
        },
        "previous": {"path": str(paths.previous), "bytes": size_of(paths.previous)},
        "verdict": marker and marker.verdict,
        "bytes": 0,
        "seconds": round(monotonic() - start, 3),
    }

    def show(screen: Terminal) -> None:
        venv = display_path(paths.venv)
        if marker:
            screen.field("Environment", f"{venv} · torch {marker.torch} · Python {marker.python}")
            screen.field("Lock", f"{marker.lock}, restored")
        else:
            screen.field("Environment", f"{venv}, as it was before; gpuinstall did not make it")
        screen.field("Undo", _undo(paths))
        if is_environment(paths.venv):
            screen.field("Ready", _ready(paths.venv))

    return Outcome(data, show)


def _restore_files(python: Path, project: Project, selected: InstallOptions) -> Outcome:
    """Bring back the files that were replaced in an existing environment."""
    from gpuinstall.install.foreign import inspect_foreign
    from gpuinstall.install.transaction import ForeignPlace, roll_back
    from gpuinstall.lock.lock import compare_versions

    before = inspect_foreign(python)
    roll_back(ForeignPlace(before, project, selected))
    environment = inspect_foreign(before.python)
    changes = compare_versions(before.versions, environment.versions)
    torch = environment.versions.get("torch", "")
    data = {
        "plan": None,
        "environment": {
            "path": str(environment.prefix),
            "python": environment.version,
            "torch": torch,
            "backend": torch.partition("+")[2],
            "status": "changed",
        },
        "changes": [change._asdict() for change in changes],
        "verdict": None,
        "bytes": 0,
    }

    def show(screen: Terminal) -> None:
        for change in changes:
            screen.field("Change", str(change))
        versions = f"torch {torch or 'none'} · Python {environment.version}"
        place = display_path(environment.prefix)
        screen.field("Environment", f"{place} · {versions}, as it was before")

    return Outcome(data, show)


def _change_into(
    project: Project,
    python: Path,
    changing: Mapping[str, Any],
    *,
    dry_run: bool,
    repair: bool,
) -> Outcome:
    from gpuinstall.install.into import dry_run_into, install_into
    from gpuinstall.install.options import InstallOptions

    project.reporter.step("Machine", machine_line(project.machine))
    if dry_run:
        result = dry_run_into(project, python, repair=repair)
    else:
        selected = InstallOptions(keep=changing["keep"], wait=changing["wait"])
        result = install_into(project, python, selected, repair=repair)
    return Outcome(result.to_dict(), lambda screen: _show_into(screen, result))


def _show_into(terminal: Terminal, result: IntoResult) -> None:
    from gpuinstall.install.swap import size_of

    environment = result.environment
    python = quoted(environment.python)
    versions = f"torch {result.fit.lock.versions['torch']} · Python {environment.version}"
    terminal.field("Environment", f"{display_path(environment.prefix)} · {versions}")
    if result.verdict is None:
        changes = len(result.changes)
        terminal.field("Dry run", f"{changes} packages would change; nothing was changed")
        return
    terminal.field("Proof", str(result.verdict["status"]))
    if result.previous:
        size = readable(size_of(result.previous))
        undo = f"gpuinstall install --rollback --into --python {python}"
        remark = f"the files before, {size}, stay until the next change"
        terminal.field("Undo", f"{undo}   # {remark}")
    if result.uv_guard:
        terminal.field("Guard", f"pip and uv there keep these builds, by {result.uv_guard}")
    elif result.guard:
        constraints = quoted(result.guard)
        guard = f"plain pip there keeps these builds; uv pip does with -c {constraints}"
        terminal.field("Guard", guard)
    terminal.field("Ready", f"{python}   {_cost(result)}")
