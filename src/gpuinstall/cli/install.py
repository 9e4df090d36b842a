"""``gpuinstall install``: plan, preflight, lock, install, verify, swap."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeGuard

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.active import name_active
from gpuinstall.cli.hook import refresh
from gpuinstall.cli.outcome import Outcome, Status, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.environments.jupyter import PACKAGE, kernel_folder, kernel_name
from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.errors import UsageError
from gpuinstall.project import Project, Settings, open_project
from gpuinstall.shell import activation, joined, parent_program, quoted, this_shell
from gpuinstall.units import display_path, duration, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.foreign import ForeignEnvironment
    from gpuinstall.install.into import IntoResult
    from gpuinstall.install.options import InstallOptions, InstallResult
    from gpuinstall.install.priced_lock import PricedLock
    from gpuinstall.install.transaction import InstallPlace
    from gpuinstall.reporter import Reporter

_PROOF_KEPT = "kept: nothing that it covers changed"
_VERSION = re.compile(r"\d+(\.\d+){0,2}t?")


@click.command(
    "install", help="Install the PyTorch build that runs on this machine's GPUs, lock it, prove it."
)
@options.request_options
@options.only
@options.machine_options
@options.venv
@install_options.into
@install_options.dry_run_option
@options.upgrade
@options.upgrade_package
@click.option("--rollback", is_flag=True, help="Go back to the previous environment and its lock.")
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
    *,
    only: bool,
    venv: str,
    into: bool,
    dry_run: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    rollback: bool,
    jupyter: bool,
    fallback: bool,
    changing: dict[str, Any],
) -> Outcome:
    """Install."""
    from gpuinstall.install.foreign import inspect_foreign
    from gpuinstall.install.options import ATTEMPTS, InstallOptions
    from gpuinstall.install.transaction import ForeignPlace, OwnPlace
    from gpuinstall.plan.requirement import normalised

    moved = {"--only": only, "--replace": changing["replace"]}
    moved |= {"--upgrade": upgrade, "--upgrade-package": bool(packages)}
    if rollback:
        more = {
            "a requirement": request.has_requirements,
            "--dry-run": dry_run,
            "--jupyter": jupyter,
        }
        _check_alone("--rollback", more | moved)
        with open_project(Path.cwd(), Settings(venv=Path(venv)), terminal) as project:
            going_back = InstallOptions(wait=changing["wait"])
            if into:
                environment = inspect_foreign(_find_interpreter(request.python, Path(venv)))
                return _roll_back(ForeignPlace(environment, project, going_back))
            return _roll_back(OwnPlace(project, going_back))
    if into:
        _check_alone("--into", moved)
        if jupyter:
            raise _kernel_elsewhere(request.python, Path(venv))
        python = _find_interpreter(request.python, Path(venv))
        request = request._replace(python=None)
    else:
        if _is_path(request.python):
            raise _not_ours(request.python)
        request = request._replace(
            requirements=(*request.requirements, *([PACKAGE] if jupyter else ()))
        )
    settings = options.read_settings(request, machine, terminal)
    settings = replace(settings, only=only, anew=only, venv=Path(venv))
    with open_project(Path.cwd(), settings, terminal) as project:
        if into:
            return _change_into(project, python, changing, dry_run=dry_run)
        moving, attempts = tuple(map(normalised, packages)), ATTEMPTS if fallback else 1
        wanted = InstallOptions(
            upgrade=upgrade, moving=moving, jupyter=jupyter, attempts=attempts, **changing
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

    project.session.reporter.step("Machine", machine_line(project.machine))
    name_active("install", project.paths.venv, project.reporter)
    if dry_run:
        priced, commands = installation.dry_run(project, wanted)
        return Outcome(
            priced.to_dict(commands), lambda screen: show_dry_run(screen, priced, commands)
        )
    result = _confirmed(project, wanted)
    warn_of_unproven(project.reporter, result)
    refresh(project)
    folder = result.paths.folder
    if names := left_behind(result.fit.lock, read_locks(folder)) if result.is_lock_new else []:
        text = f"{', '.join(names)}: made for another request or other versions; update them with: gpuinstall lock"
        project.reporter.warn(text)
    status: Status = "partial" if result.fit.plan.status == "partial" else "success"
    return Outcome(result.to_dict(), lambda screen: show_installed(screen, result), status)


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


def _roll_back(place: InstallPlace) -> Outcome:
    """Go back to what was before the last change."""
    from gpuinstall.install.transaction import ForeignPlace, roll_back

    start = monotonic()
    roll_back(place)
    if isinstance(place, ForeignPlace):
        return _restored_files(place.environment)
    return _restored_environment(place.project, seconds=monotonic() - start)


def _restored_environment(project: Project, *, seconds: float) -> Outcome:
    """Write of an environment that has taken the place of the one that had replaced it."""
    from gpuinstall.environments.environment import installed_packages, read_marker
    from gpuinstall.environments.ownership import is_environment
    from gpuinstall.install.swap import size_of
    from gpuinstall.lock.lock import compare_versions

    paths = project.paths
    marker = read_marker(paths.venv)
    changes = compare_versions(installed_packages(paths.previous), installed_packages(paths.venv))
    for label, text in zip_longest(["Changes"], map(str, changes), fillvalue=""):
        project.reporter.step(label, text or "no version changes")
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
        "seconds": round(seconds, 3),
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


def _undo(paths: EnvironmentPaths) -> str:
    """Return the command that exchanges an environment for its previous one."""
    place = "" if paths.venv == Path.cwd() / ".venv" else f" --venv {quoted(paths.venv)}"
    return f"gpuinstall install --rollback{place}"


def _restored_files(changed: ForeignEnvironment) -> Outcome:
    """Write of an environment of others whose files are as they were before the last change."""
    from gpuinstall.install.foreign import inspect_foreign
    from gpuinstall.lock.lock import compare_versions

    environment = inspect_foreign(changed.python)
    changes = compare_versions(changed.versions, environment.versions)
    torch = environment.versions.get("torch", "")
    backend = torch.partition("+")[2]
    held = {
        "path": str(environment.prefix),
        "python": environment.version,
        "torch": torch,
        "backend": backend,
    }
    data = {
        "plan": None,
        "environment": {**held, "status": "changed"},
        "changes": [change._asdict() for change in changes],
        "verdict": None,
        "bytes": 0,
    }

    def show(screen: Terminal) -> None:
        for change in changes:
            screen.field("Change", str(change))
        words = f"{display_path(environment.prefix)} · torch {torch or 'none'} · Python {environment.version}"
        screen.field("Environment", f"{words}, as it was before")

    return Outcome(data, show)


def show_installed(terminal: Terminal, result: InstallResult) -> None:
    """Write the summary: proof, environment, lock, caches, what was replaced, how to activate it, what it cost."""
    from gpuinstall.install.options import Action

    lock, choice = result.fit.lock, result.fit.choice
    venv = display_path(result.paths.venv)
    terminal.field("Proof", _PROOF_KEPT if result.is_proof_kept else _proof(result))
    terminal.field(
        "Environment", f"{venv} · torch {lock.versions['torch']} · Python {choice.python}"
    )
    kept = "" if result.is_lock_new else ", unchanged"
    terminal.field(
        "Lock", f"{lock.name}: {len(lock.pylock.packages)} packages, {lock.pinned_by}{kept}"
    )
    if result.bytes:
        terminal.field("Cache", " and ".join(map(display_path, result.caches)))
    if result.previous:
        previous, size = display_path(result.previous), readable(result.previous_bytes)
        terminal.field("Previous", f"{previous}, {size}; undo: {_undo(result.paths)}")
    if (kernel_folder(result.paths.venv) / "kernel.json").exists():
        terminal.field("Jupyter", f"the kernel {kernel_name(result.paths.venv)}")
    match result.action:
        case Action.NOTHING:
            spent = "already up to date"
        case Action.VERIFY:
            spent = duration(result.seconds)
        case Action.BUILD:
            spent = f"{duration(result.seconds)}, {readable(result.bytes) if result.bytes else 'nothing'} fetched"
    terminal.field("Ready", f"{_ready(result.paths.venv)}   {spent}")


def show_dry_run(terminal: Terminal, priced: PricedLock, commands: Iterable[Iterable[str]]) -> None:
    """Write what an installation would do and cost, and if it is requested the commands."""
    for label, text in priced.lines():
        terminal.field(label, text)
    for host, size in priced.bill.sources.items():
        terminal.field("From", f"{readable(size)} from {host}")
    if terminal.verbose:
        for words in commands:
            terminal.line(joined(words))
    terminal.field("Dry run", "nothing was changed" if priced.existing else "already up to date")


def warn_of_unproven(reporter: Reporter, result: InstallResult) -> None:
    """Name the devices that no kernel ran on, whatever form the result has."""
    if unproven := [
        device for device in result.verdict.get("devices", ()) if device["status"] == "unproven"
    ]:
        names = ", ".join(device["name"] for device in unproven)
        reporter.warn(f"unproven: {names}; run gpuinstall verify where the GPUs are")


def _ready(venv: Path) -> str:
    """The line that activates an environment in the shell that we were called from."""
    here = os.path.relpath(venv) if venv.is_relative_to(Path.cwd()) else str(venv)
    return activation(
        here, this_shell(os.environ, parent_program()), windows=(venv / "Scripts").is_dir()
    )


def _proof(result: InstallResult) -> str:
    """Write ``passed: 2 × NVIDIA GeForce RTX 4090 · driver 535.183.01``, and what is not proven beside it."""
    names: dict[str, Counter[str]] = {}
    for device in result.verdict.get("devices", ()):
        names.setdefault(device["status"], Counter())[device["name"]] += 1
    proofs = [
        f"{status}: "
        + ", ".join(f"{count} × {name}" if count > 1 else name for name, count in devices.items())
        for status, devices in names.items()
    ]
    driver = result.machine.driver
    return "; ".join(proofs) + (f" · driver {driver.version}" if driver and driver.version else "")


def _is_path(python: str | None) -> TypeGuard[str]:
    """Say whether ``--python`` names an interpreter and not a version."""
    return python is not None and not _VERSION.fullmatch(python)


def _not_ours(python: str) -> UsageError:
    """That the environment of an interpreter is not ours to replace."""
    into = f"gpuinstall install --into --python {quoted(python)}   # installs torch into it"
    anew = "gpuinstall install --python 3.12   # makes an environment of that Python"
    message = f"--python {python} is the interpreter of an existing environment"
    return UsageError("python-is-a-path", message, hint=f"{into}\n{anew}")


def _kernel_elsewhere(python: str | None, venv: Path) -> UsageError:
    """That an environment of others gets no Jupyter kernel of ours, and the commands that make it one of its own."""
    named = quoted(python if _is_path(python) else str(interpreter(venv)))
    hint = f"{named} -m pip install ipykernel\n{named} -m ipykernel install --user --name NAME"
    return UsageError(
        "jupyter-elsewhere", "--jupyter works only in environments made by gpuinstall", hint=hint
    )


def _change_into(
    project: Project, python: Path, changing: Mapping[str, Any], *, dry_run: bool
) -> Outcome:
    from gpuinstall.install.into import dry_run_into, install_into
    from gpuinstall.install.options import InstallOptions

    project.reporter.step("Machine", machine_line(project.machine))
    if dry_run:
        result = dry_run_into(project, python)
    else:
        wanted = InstallOptions(keep=changing["keep"], wait=changing["wait"])
        result = install_into(project, python, wanted, guard=changing["yes"])
    return Outcome(result.to_dict(), lambda screen: _show_into(screen, result))


def _find_interpreter(python: str | None, venv: Path) -> Path:
    """The interpreter that ``--python`` or ``--venv`` means; raise UsageError where there is none."""
    if _is_path(python):
        program = shutil.which(python)
        if program is None:
            raise UsageError(
                "python-missing", f"no such interpreter: {python}", hint="Check the path"
            )
        return Path(program).absolute()
    folder = venv.absolute()
    for path in (interpreter(folder), folder / "bin" / "python", folder / "python.exe"):
        if path.is_file():
            return path
    hint = "Use another with --python PATH or --venv DIR"
    raise UsageError("environment-missing", f"there is no environment at {venv}", hint=hint)


def _show_into(terminal: Terminal, result: IntoResult) -> None:
    from gpuinstall.install.swap import size_of

    environment, torch = result.environment, result.fit.lock.versions["torch"]
    where = display_path(environment.prefix)
    terminal.field("Environment", f"{where} · torch {torch} · Python {environment.version}")
    if result.verdict is None:
        terminal.field(
            "Dry run", f"{len(result.changes)} packages would change; nothing was changed"
        )
        return
    terminal.field("Proof", str(result.verdict["status"]))
    if result.previous:
        kept = f"the files before, {readable(size_of(result.previous))}, stay until the next change"
        undo = f"gpuinstall install --rollback --into --python {quoted(environment.python)}"
        terminal.field("Undo", f"{undo}   # {kept}")
    if result.guard:
        terminal.field(
            "Guard",
            f"plain pip there keeps these builds; uv pip does with -c {quoted(result.guard)}",
        )
    else:
        words = f"gpuinstall install --into --python {quoted(environment.python)} --yes"
        terminal.field("Guard", f"{words}   # lets plain pip there keep these builds")
    spent = f"{duration(result.seconds)}, {readable(result.bytes) if result.bytes else 'nothing'} fetched"
    terminal.field("Ready", f"{quoted(result.environment.python)}   {spent}")
