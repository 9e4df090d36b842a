"""``gpuinstall lock``: write, check, and download lock files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import click

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.text import format_count, join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU, version_key
from gpuinstall.catalog import Catalog
from gpuinstall.cli.options import MACHINE_OPTIONS, REQUEST_OPTIONS, CommandOptions
from gpuinstall.cli.outcome import Outcome, Row, define_command
from gpuinstall.export.needs import MachineNeeds, find_machine_needs
from gpuinstall.install.environment_lock import lock_files_mutex
from gpuinstall.lock.check import CheckedProject, check_locks
from gpuinstall.lock.file.lock import (
    Lock,
    find_different_versions,
    format_pinning,
    format_versions,
)
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import add_locked_builds, check_hosts
from gpuinstall.lock.uv.fetch import download
from gpuinstall.lock.write import WriteOptions, find_warnings_about_others, write_locks
from gpuinstall.project import Project
from gpuinstall.project.extras import select_extras
from gpuinstall.project.request import read_request
from gpuinstall.project.targets import make_lock_requests


class LockGroup(click.Group):
    """Click group of ``lock``, which accepts packages or a subcommand."""

    # click would end a group's options at the first argument, which is a package.
    allow_interspersed_args = True

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the arguments of ``lock`` or of a subcommand."""
        if args and args[0] in self.commands:
            name, *rest = args
            return self.commands[name].make_context(
                f"{info_name} {name}", rest, parent, **extra
            )
        return super().make_context(info_name, args, parent, **extra)


@define_command(
    *REQUEST_OPTIONS,
    "only",
    "upgrade",
    "upgrade_packages",
    "dry_run",
    "machine",
    *MACHINE_OPTIONS,
    "targets",
    cls=LockGroup,
    invoke_without_command=True,
    subcommand_metavar="",
)
def lock_command(options: CommandOptions) -> Outcome:
    """Write lock files, or report how they would change."""
    # --target is refused with a GPU, and the CPU build needs no driver.
    assumes_driver = bool(options.targets) or options.backend == CPU.tag
    machine = options.read_other_machine(assumes_driver=assumes_driver)
    return change_locks(options, machine=machine)


def change_locks(options: CommandOptions, **settings: Any) -> Outcome:
    """Resolve the request, and write the lock files or report their changes.

    Args:
        options: The options of the command.
        settings: Additional fields of the project's settings.
    """
    with ExitStack() as stack:
        if not options.dry_run:
            paths = options.read_paths(is_read_only=True)
            stack.enter_context(lock_files_mutex(paths, options.terminal))
        opened = options.open_project(is_read_only=True, **settings)
        project = stack.enter_context(opened)
        request = read_request(project)
        requests = make_lock_requests(project, request)
        return _write_locks(options, requests, project)


def _write_locks(
    options: CommandOptions,
    requests: Sequence[LockRequest],
    project: Project,
) -> Outcome:
    """Resolve and write a lock file for each request.

    With ``--dry-run``, no file is written."""
    locks = write_locks(
        requests,
        project.open_session(),
        project.contents.locks,
        project.lock_gate,
        WriteOptions(options.upgrade, options.packages_to_upgrade(), options.dry_run),
    )
    made = [written.lock for written in locks]
    if not options.dry_run:
        contents = project.contents
        for text in find_warnings_about_others(made, contents.locks, contents.config):
            options.terminal.warn(text)
    # Later commands do not have the typed requirements.
    required = project.contents.required.requirements
    gate = replace(project.lock_gate, requirements=required)
    for lock in made:
        if reasons := [*gate.find_rejections(lock)]:
            others = len(reasons) - 1
            text = (
                f"{reasons[0].message}: sync rejects {lock.name} "
                "unless requirements.txt, pyproject.toml, or trusted-sources lists it"
            )
            if others:
                text += f" (and the sources of {format_count(others, 'more package')})"
            options.terminal.warn(text)
    rows: list[Row] = []
    for written in locks:
        packages = format_count(len(written.lock.pylock.packages), "package")
        status = "not written" if written.status == "stale" else written.status
        text = f"{packages}, {format_pinning(written.lock)} ({status})"
        rows.append(("Lock", f"{written.path.name}: {text}"))
    if len(made) > 1 or project.settings.machine:
        rows += _generate_support_rows(made, project.catalog)
    for text in _find_lost_gpus(made, project):
        options.terminal.warn(text)
    split = find_different_versions(made)
    rows += [("Differs", f"{name} {format_versions(split[name])}") for name in split]
    data = {"locks": [written.to_dict() for written in locks], "differences": split}
    if options.dry_run:
        rows.append(("Dry run", "nothing was changed"))
    return Outcome(data, rows, is_always_printed=options.dry_run)


def _generate_support_rows(locks: Iterable[Lock], catalog: Catalog) -> Iterator[Row]:
    """Yield the GPUs and drivers that torch in each lock file supports."""
    for lock in locks:
        for needs in _find_needs(lock, catalog):
            for gpus in needs.gpu_texts if needs.maker else ():
                yield "Supports", f"torch for {lock.target}: {gpus}"


def _find_lost_gpus(locks: Iterable[Lock], project: Project) -> Iterator[str]:
    """Yield warnings about GPUs that only the previous lock files support."""
    previous = {lock.name: lock for lock in project.contents.locks.valid}
    for lock in locks:
        before = previous.get(lock.name)
        if before and before.record.torch != lock.record.torch:
            lost = _list_gpus(before, project.catalog)
            lost -= _list_gpus(lock, project.catalog)
            if lost:
                codes = join_names(sorted(lost, key=version_key))
                yield f"{lock.name} no longer supports GPU architecture {codes}; lock with --gpu for these GPUs"


def _list_gpus(lock: Lock, catalog: Catalog) -> set[str]:
    found = _find_needs(lock, catalog)
    return {code for needs in found for gpus in needs.gpus for code in gpus.codes}


def _find_needs(lock: Lock, catalog: Catalog) -> list[MachineNeeds]:
    with suppress(UsageError):  # an unknown build
        return find_machine_needs(lock, catalog)
    return []


@define_command(
    *REQUEST_OPTIONS,
    "only",
    "same",
    "targets",
    group=lock_command,
)
def check_command(options: CommandOptions) -> Outcome:
    """Check that the lock files are up to date; if not, exit with 6."""
    with options.open_project(is_read_only=True) as project:
        session = project.open_session()
        locks = project.contents.locks
        catalog = add_locked_builds(project.catalog, locks.valid, project.open_session)

        configured = project.contents.config.targets
        checked = check_locks(
            locks,
            CheckedProject(
                read_request(project),
                catalog,
                partial(select_extras, project.silence()),
                targets=() if options.targets else configured,
                gate=project.lock_gate,
                same=options.same,
            ),
            options.targets or configured,
            None if options.offline else session,
        )
    rows: list[Row] = []
    errors = []
    for row in checked:
        name = row.lock.name
        reasons = [reason.message for reason in row.reasons]
        if reasons:
            message = f"{name} is stale: {'; '.join(reasons)}"
            errors.append(Finding("lock-stale", message, fixes=row.fixes))
            continue
        rows.append(("Lock", f"{name} is up to date"))
        if relaxed := row.lock.record.relaxed:
            rows.append(("", f"--relax replaced {join_names([*relaxed.values()])}"))
    split = find_different_versions(row.lock for row in checked)
    if split and not options.same:
        texts = [f"{name} ({format_versions(split[name])})" for name in split]
        rows.append(("Differs", join_names(texts)))
    return Outcome(
        {"locks": [row.to_dict() for row in checked], "differences": split},
        rows,
        exit_code=LockError.exit_code if errors else 0,
        errors=tuple(errors),
    )


@define_command(
    "folder",
    "torch_index",
    "offline",
    group=lock_command,
)
def download_command(options: CommandOptions) -> Outcome:
    """Download all locked files into DIR, for sync --wheels."""
    folder = options.folder
    with options.open_project(is_read_only=True) as project:
        locks = project.contents.locks.check()
        session = project.open_session()
        for lock in locks:
            project.lock_gate.check(lock)
            if not options.offline:
                sources = session.find_listed_sources()
                check_hosts(lock, lock.files, sources, session.client, session.reporter)
        names = download(locks, folder, session.client, session.reporter)
    text = f"{len(names)} in {folder}, hashes verified"
    return Outcome({"folder": str(folder), "files": names}, [("Files", text)])
