"""Commands that change an environment: ``install``, ``remove``, ``sync``.

Each one plans, inspects the machine, locks, installs, verifies, and commits.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

import click

from gpuinstall.base.advice import Advice, Hint, make_change, make_command
from gpuinstall.base.environment_paths import environment_folder, interpreter
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import display_path, is_inside
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.shell import format_activation, quote_word
from gpuinstall.base.text import format_count, format_duration, format_size
from gpuinstall.base.values import replace
from gpuinstall.cli.active import (
    check_environment_trust,
    check_program_environment,
    find_environment,
    recover_environment,
    report_active_environment,
    report_owner,
)
from gpuinstall.cli.commands import detect_shell
from gpuinstall.cli.machine_text import format_machine
from gpuinstall.cli.options import (
    REQUEST_OPTIONS,
    SOURCING_OPTIONS,
    CommandOptions,
    is_environment_given,
    is_on_command_line,
)
from gpuinstall.cli.outcome import Outcome, Row, confirm, define_command
from gpuinstall.environments.environment import is_vacant, is_virtual, read_marker
from gpuinstall.environments.records import (
    check_finished,
    check_start,
    find_changed_environment,
    make_missing_error,
    make_undo_command,
)
from gpuinstall.install.install import InstallResult, dry_run, install
from gpuinstall.install.state import (
    PREVIOUS_EXISTS,
    Action,
    InstallOptions,
    check_libcuda,
)
from gpuinstall.lock.file.fit import list_rejected_locks
from gpuinstall.lock.file.lock import (
    BUILD_FILES,
    Lock,
    Record,
    compare_requests,
    format_pinning,
)
from gpuinstall.lock.file.target import Target, find_locks
from gpuinstall.lock.request.declaration import PROJECT_FILES
from gpuinstall.lock.request.tools import find_project_lock
from gpuinstall.machine.pythons import find_interpreter, python_version
from gpuinstall.project import Project
from gpuinstall.project.request import read_current_request

_EXCLUDED_BY_INTO = ("only", "replace", "discard_previous", "upgrade")


@define_command(
    *REQUEST_OPTIONS,
    "only",
    "venv",
    "into",
    "dry_run",
    "upgrade",
    "upgrade_packages",
    "reinstall",
    "reinstall_packages",
    "replace",
    "discard_previous",
)
def install_command(options: CommandOptions) -> Outcome:
    """Install packages into a managed or an unmanaged environment."""
    _check_into_options(options)
    # Users type "install --into venv", and the index has packages named venv and env.
    for configuration in Path().glob("*/pyvenv.cfg"):
        name = configuration.parent.name
        if name in options.requirements:
            raise UsageError(
                "environment-as-package",
                f"{name} is an environment in this folder, not a package",
                hint=make_command("install --into --venv", name),
            )
    if options.into:
        named = options.python
        if named and python_version(named):
            named = None  # GPUINSTALL_PYTHON; _check_into_options rejects the option
        python = find_trusted_interpreter(options, named)
        with options.open_project(is_unmanaged=True) as project:
            return _install(project, options, python=python, attempts=1)
    with options.open_project(ignores_existing_backend=options.only) as project:
        if not is_environment_given():
            check_program_environment(project.paths.venv, project.reporter)
        return _install_changed_request(project, options, "install")


def _check_into_options(options: CommandOptions) -> None:
    """Raise UsageError for an option that ``--into`` would ignore."""
    names = [name for name in _EXCLUDED_BY_INTO if getattr(options, name)]
    excluded = [f"--{name.replace('_', '-')}" for name in names]
    excluded += [f"--upgrade-package {name}" for name in options.upgrade_packages]
    # A version, unlike a path, would request another Python.
    if is_on_command_line("python") and python_version(options.python or ""):
        excluded.append(f"--python {options.python}")
    if excluded and options.into:
        raise UsageError(
            "options-apart",
            f"--into cannot be combined with {', '.join(excluded)}",
            hint=make_change(
                without=[word for one in excluded for word in one.split()]
            ),
        )


def find_existing_interpreter(
    python: str | None, venv: Path, *, creates: bool = True
) -> Path:
    """Return the interpreter that ``--python`` or ``--venv`` specifies.

    Args:
        python: The value of ``--python``. Empty or None: not given.
        venv: The environment without ``--python``.
        creates: Whether ``install`` creates a missing environment.

    Raises:
        UsageError: The interpreter does not exist.
    """
    if python:
        return find_interpreter(python)
    own = interpreter(venv)
    # verify reports an environment whose Python is missing.
    if isfile(own) or is_virtual(venv):
        return own
    # A killed rebuild may have moved all files.
    check_finished(venv)
    raise make_missing_error(venv, creates=creates)


def find_trusted_interpreter(options: CommandOptions, python: str | None) -> Path:
    """Return the interpreter that the user selects, which may be started.

    Args:
        options: The options, which select the environment without ``python``.
        python: The value of ``--python``. Empty or None: not given.

    Raises:
        UsageError: The interpreter does not exist, or is not trusted.
    """
    venv = find_environment(options)
    target = find_existing_interpreter(python, venv, creates=not options.into)
    folder, reporter = environment_folder(target), options.terminal
    if not python:
        check_environment_trust(folder, reporter)
        return target
    report_owner(folder, reporter)
    if is_inside(folder, Path.cwd()):
        check_start(folder, reporter, allow_unmanaged=True)
    return target


def _install_changed_request(
    project: Project, options: CommandOptions, *words: str
) -> Outcome:
    """Install a project's request after the command changed it.

    Args:
        project: The project.
        options: The options of the command.
        words: The command, for the hint about the active environment.
    """
    report_active_environment(words, project.paths.venv, project.reporter)
    # "install -U numpy" upgrades only numpy, as with pip.
    requested = project.settings.request.requirements
    typed = requirement_names(one for one in requested if not one.editable)
    named = set(options.packages_to_upgrade())
    if options.upgrade:
        named |= typed
    upgrade = options.upgrade and not named
    moving = tuple(sorted(named))
    return _install(project, options, upgrade=upgrade, moving=moving)


def _install(project: Project, options: CommandOptions, **selection: Any) -> Outcome:
    """Install requested packages, or report the changes with ``--dry-run``.

    Args:
        project: The project.
        options: The options of the command.
        selection: The fields of InstallOptions that the options do not determine.
    """
    reporter = project.reporter
    reporter.step("Machine", format_machine(project.machine))
    selected = InstallOptions(
        replace=options.replace,
        discard_previous=options.discard_previous,
        reinstall=options.reinstall,
        reinstalled=options.reinstall_packages,
        **selection,
    )
    if options.dry_run:
        planned = dry_run(project, selected)
        if selected.locked:
            _warn_if_request_differs(planned.fit.lock, project)
        is_installed = planned.state.is_installed
        status = "already up to date" if is_installed else "nothing was changed"
        return Outcome(planned.to_dict(), [*planned.lines(), ("Dry run", status)])
    try:
        result = install(project, selected)
    except UsageError as error:
        if error.code != PREVIOUS_EXISTS or not sys.stdin.isatty():
            raise
        confirm(f"{error.message}. Remove it?", error.message)
        result = install(project, replace(selected, discard_previous=True))
    devices = result.verdict.get("devices", ())
    unproven = [device["name"] for device in devices if device["status"] == "unproven"]
    if unproven:
        reporter.warn(
            f"unproven: {', '.join(unproven)}",
            make_command("verify", note="on a machine with the GPUs"),
        )
    if result.is_lock_new:
        from gpuinstall.lock.write import find_warnings_about_others  # slow to import

        contents = project.contents
        for text in find_warnings_about_others(
            [result.fit.lock], contents.locks, contents.config
        ):
            reporter.warn(text)
    data = result.to_dict()
    if selected.locked:
        data |= {
            "chosen": result.fit.lock.name,
            "rejected": list_rejected_locks(result.misfits),
        }
        _warn_if_request_differs(result.fit.lock, project)
    rows = _generate_into_rows if selected.python else _generate_result_rows
    is_partial = result.fit.plan.status == "partial"
    return Outcome(data, list(rows(result)), is_partial=is_partial)


def _generate_result_rows(result: InstallResult) -> Iterator[Row]:
    """Yield output lines about verification, lock file, and next commands."""
    lock, venv = result.fit.lock, result.paths.venv
    yield from _generate_verification_rows(result)
    unchanged = "" if result.is_lock_new else ", unchanged"
    torch = f"torch {lock.versions['torch']}"
    packages = format_count(len(lock.pylock.packages), "package")
    file = display_path(result.paths.folder / lock.name)
    yield "Lock", f"{file}: {torch}, {packages}, {format_pinning(lock)}{unchanged}"
    if result.rollback:
        yield "Undo", make_undo_command(result.paths, "until the next change")
    cost = "already up to date"
    if result.action is Action.VERIFY:
        cost = format_duration(result.seconds)
    elif result.action is Action.BUILD:
        cost = _format_cost(result)
    start = format_activation_command(venv)
    yield "Ready", f"{start}   {cost}"


def _generate_verification_rows(result: InstallResult) -> Iterator[Row]:
    # A verification in this run was already reported.
    if result.is_verification_kept:
        yield (
            "Verified",
            "still valid: torch, the GPUs, and the driver have not changed",
        )
    elif result.action is Action.NOTHING:
        yield "Verified", str(result.verdict.get("status"))


def _format_cost(result: InstallResult) -> str:
    size = format_size(result.bytes) if result.bytes else "nothing"
    return f"{format_duration(result.seconds)}, {size} downloaded"


def format_activation_command(venv: Path) -> str:
    """Return the command that activates an environment in the user's shell."""
    shell = detect_shell()
    path = display_path(venv)
    # ~ is not expanded within quotes.
    path = str(venv) if path.startswith("~") else path
    return format_activation(path, shell, windows=isdir(venv / "Scripts"))


def _generate_into_rows(result: InstallResult) -> Iterator[Row]:
    place, shell = result.paths, detect_shell()
    versions = (
        f"torch {result.fit.lock.versions['torch']} · Python {result.fit.choice.python}"
    )
    yield "Environment", f"{display_path(place.venv)} · {versions}"
    yield from _generate_verification_rows(result)
    if result.rollback:
        yield "Undo", make_undo_command(place, "until the next change")
    guard = ""
    if result.uv_guard:
        guard = f"pip and uv keep these builds in that environment ({result.uv_guard})"
    elif result.guard:
        constraints = quote_word(result.guard, shell)
        guard = f"pip keeps these builds in that environment; for uv pip, add -c {constraints}"
    if guard:
        yield "Guard", guard
    python = quote_word(place.find_interpreter(), shell)
    yield "Ready", f"{python}   {_format_cost(result)}"


@define_command(
    "venv",
    "dry_run",
    *SOURCING_OPTIONS,
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def remove_command(options: CommandOptions, *, names: tuple[str, ...]) -> Outcome:
    """Remove packages from the request and the environment.

    If the folder has lock files but no environment, only the lock files change.
    """
    paths = options.read_paths(is_read_only=True)
    # The interrupted change may have changed the request.
    if options.dry_run:
        check_finished(paths.venv)
    else:
        recover_environment(paths, options.terminal)
    if find_locks(paths.folder) and is_vacant(paths.venv):
        from gpuinstall.cli.lock import change_locks  # slow to import

        return change_locks(options, without=names)
    changed = find_changed_environment()
    if changed and read_marker(paths.venv) is None:
        python = str(changed.find_interpreter())
        raise UsageError(
            "environment-missing",
            f"{changed.venv} is not an environment that gpuinstall created",
            hint=Advice(
                "uv",
                ("pip", "uninstall", "--python", python, *names),
                note="install --into reinstalls packages that your files require",
            ),
        )
    with options.open_project(without=names) as project:
        return _install_changed_request(project, options, "remove", *names)


@define_command(
    "venv",
    "target",
    "wheels",
    "reinstall",
    "reinstall_packages",
    "dry_run",
    "replace",
    "discard_previous",
    *SOURCING_OPTIONS,
    "record",
)
def sync_command(options: CommandOptions) -> Outcome:
    """Install the lock file for this machine, or the project's own lock."""
    selected_target = Target.parse(options.target) if options.target else None
    own_lock = selected_target is not None or find_project_lock(Path.cwd()) is None
    request = Request(
        ("torch",) if own_lock else (),
        backend=selected_target.backend if selected_target else None,
        sourcing=options.sourcing,
    )
    with options.open_project(
        request=request, only=own_lock, ignores_existing_backend=own_lock
    ) as project:
        options.read_machine = project.machine
        check_libcuda(project.paths.venv, project.machine)
        if own_lock:
            _check_inputs(project, selected_target)
        target = str(selected_target) if selected_target else None
        return _install(project, options, locked=own_lock, target=target, attempts=1)


def _warn_if_request_differs(lock: Lock, project: Project) -> None:
    now = Record.from_request(read_current_request(project))
    changes = compare_requests(lock.record, now).requirements
    if changes:
        text = f"the request has changed since {lock.name}: {', '.join(changes)}"
        project.reporter.warn(text, make_command("lock", note="updates it"))


def _check_inputs(project: Project, target: Target | None) -> None:
    """Raise LockError if a recorded requirements file has changed.

    The project's own files may change, and a lock can be shipped without its files.
    """
    from gpuinstall.lock.request.project import compute_build_files_digest

    request = read_current_request(project)
    digest = compute_build_files_digest(request.requirements, project.paths.folder)
    today = Record.from_request(replace(request, build_files_digest=digest))
    hint: Hint = make_command("lock", note="then run it again")
    if project.sourcing.offline:
        from gpuinstall.sources.web import LOCK_ONLINE

        hint = LOCK_ONLINE
    for lock in project.contents.locks.check():
        if target and lock.name != target.filename:
            continue
        known = lock.record.requirements_files.keys() & request.files.keys()
        for name in compare_requests(lock.record, today).files:
            if name in {BUILD_FILES, *known.difference(PROJECT_FILES)}:
                raise LockError(
                    "lock-stale",
                    f"{lock.name} is stale: {name} has changed since it was written",
                    hint=hint,
                )
