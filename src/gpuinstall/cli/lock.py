"""``gpuinstall lock``: write the locks that a team commits, say whether they are fresh, compare two of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import options, values
from gpuinstall.cli.outcome import Outcome, error_entry, framed
from gpuinstall.errors import LockError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.lock.check import CheckedLock, DeclaredUse
    from gpuinstall.lock.compare import TargetDifference, VersionChange
    from gpuinstall.lock.cover import Served
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.write import LockOptions, Written
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request
    from gpuinstall.session import Session


@click.command("lock", help="Write pylock.<target>.toml for each kind of machine: those that lie here, or this one.")
@options.request_options
@options.only
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="T",
    shell_complete=values.targets,
    help="Lock for cu126, cu130-windows-x86_64, …",
)
@click.option("--machine", "machines", multiple=True, metavar="FILE", help="Lock for recorded machines (probe --json).")
@options.machine_words
@click.option("--per-target", type=click.Choice(["newest"]), help="Give each target its own newest torch.")
@click.option("--check", is_flag=True, help="Say whether the locks are fresh; exit 6 where they are not.")
@options.upgrade
@options.upgrade_package
@click.option("--prune", is_flag=True, help="Remove the locks here that are for none of the targets.")
@click.option("--diff", nargs=2, metavar="OLD NEW", help="Compare two locks.")
@click.option("--download", metavar="DIR", type=click.Path(path_type=Path), help="Fetch every file of the locks.")
@options.code_check
@options.only_binary
@options.offline
@framed("lock")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    described: options.MachineOptions,
    *,
    only: bool,
    targets: tuple[str, ...],
    machines: tuple[str, ...],
    per_target: str | None,
    check: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    prune: bool,
    diff: tuple[str, str] | None,
    download: Path | None,
    code_check: bool,
    only_binary: bool,
    offline: bool,
) -> Outcome:
    """Lock."""
    if diff:
        return _diff(Path(diff[0]), Path(diff[1]))
    from gpuinstall.cli.folder import read_folder_request
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.lock.folder_request import read_own_lock, recorded_request
    from gpuinstall.lock.strangers import with_locked_builds
    from gpuinstall.lock.write import LockOptions
    from gpuinstall.plan.requirement import normalised
    from gpuinstall.session import open_session
    from gpuinstall.sources import read_sources

    folder, catalog, config = Path.cwd(), known_catalog(), options.read_project_config()
    own = read_own_lock(EnvironmentPaths.at(folder / ".venv").venv)
    recorded = recorded_request(folder, own)
    asked = read_folder_request(
        request, config, folder, recorded, family=catalog.family, reporter=terminal, only=only, project=True
    )
    sources = read_sources(request.torch_index, os.environ, folder, configured=config.torch_index)
    catalog = replace(catalog, torch_index=sources.torch_index)
    wanted = options.build_request(request, config, machine=described, listed=asked.listed)
    meant = [options.read_machine_file(name, terminal) for name in machines]
    meant += [options.read_selected_machine(described, terminal)] if any(described) else []
    moving, newest = tuple(map(normalised, packages)), per_target == "newest"
    only_binary = only_binary or config.only_binary
    opened = open_session(sources, terminal, offline=offline, code_check=code_check, only_binary=only_binary)
    with opened as session:
        catalog = with_locked_builds(catalog, folder, session)
        declared = targets or (() if meant else config.targets or ())
        if check:
            from gpuinstall.lock.check import DeclaredUse

            every, named = not targets and bool(declared), request.has_requirements
            use = DeclaredUse(tuple(declared), tuple(meant), every, named)
            return _check(folder, wanted, catalog, use, None if offline else session)
        if download:
            return _download(folder, download, session)
        requests = () if declared or meant else _set_requests(folder, own, wanted, catalog, terminal)
        requests = requests or _lock_requests(declared, meant, wanted, catalog, session)
        return _write(LockOptions(folder, requests, asked, upgrade, moving, newest, prune), session)


def _set_requests(
    folder: Path, own: Lock | None, request: Request, catalog: Catalog, terminal: Terminal
) -> tuple[LockRequest, ...]:
    """The locks that lie in a folder, each for its target again; that of the environment here for this very machine."""
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.write import targets_of

    made = []
    for target in targets_of(folder) if not request.backend else ():
        one = LockRequest.for_target(target, request, catalog)
        if own and own.name == target.filename:
            here = options.read_selected_machine(options.MachineOptions(), terminal)
            exact = replace(one, machine=here)
            one = exact if (here.os, here.arch) == (target.os, target.arch) and exact.plan().choice else one
        made.append(one)
    return tuple(made)


def _lock_requests(
    targets: Sequence[str], machines: Sequence[Machine], request: Request, catalog: Catalog, session: Session
) -> tuple[LockRequest, ...]:
    """The locks to make: for the targets, for the machines that are meant, or for this one."""
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.target import Target

    alone = [LockRequest(machine, request, catalog, builds_here=False) for machine in machines]
    if len(machines) == 1 and not targets:
        return tuple(alone)
    named_targets = [Target.parse(text) for text in targets]
    if request.backend and any(target.backend != request.backend for target in named_targets):
        message = f"the backend {request.backend} is asked for, and the targets {' '.join(targets)}"
        raise UsageError("backend-and-target", message, hint="leave out --backend (and GPUINSTALL_BACKEND)")
    every = dict.fromkeys(named_targets, frozenset[int]()) | _cover(alone, session)
    if every:
        return tuple(
            LockRequest.for_target(
                target, request, catalog, tuple(machines[position] for position in sorted(positions))
            )
            for target, positions in every.items()
        )
    return (LockRequest(options.read_selected_machine(options.MachineOptions(), session.reporter), request, catalog),)


def _cover(requests: Sequence[LockRequest], session: Session) -> Served:
    """The fewest targets that serve machines, each with those that it serves; it takes much to load."""
    if not requests:
        return {}
    from gpuinstall.lock.cover import cover_with_programs

    return cover_with_programs(requests, session)


def _write(options: LockOptions, session: Session) -> Outcome:
    from gpuinstall.lock.compare import differences
    from gpuinstall.lock.write import unnamed_locks, write_locks

    made = write_locks(options, session)
    apart = differences(made, options.requests[0].catalog.family)
    unnamed = unnamed_locks(options.folder, {each.lock.target for each in made})
    for path in unnamed:
        if options.prune:
            path.unlink()
        else:
            session.reporter.warn(f"{path.name} is for no target that was named; gpuinstall lock --prune removes it")
    data = {
        "locks": [each.to_dict() for each in made],
        "differences": [each.to_dict() for each in apart],
        "removed": [str(path) for path in unnamed] if options.prune else [],
    }
    return Outcome(data, lambda screen: show_written(screen, made, apart))


def _check(folder: Path, request: Request, catalog: Catalog, declared: DeclaredUse, session: Session | None) -> Outcome:
    from gpuinstall.lock.check import check_locks

    checked = check_locks(folder, request, catalog, declared, session)
    stale = [each for each in checked if each.reasons]
    errors = tuple(error_entry(_stale(each)) for each in stale)
    return Outcome(
        {"locks": [each.to_dict() for each in checked]},
        lambda screen: show_checked(screen, checked),
        status="error" if stale else "success",
        exit_code=LockError.exit_code if stale else 0,
        errors=errors,
    )


def _download(folder: Path, destination: Path, session: Session) -> Outcome:
    from gpuinstall.lock.fetch import download
    from gpuinstall.lock.fit import read_locks

    names = download(read_locks(folder), destination, session)
    data = {"folder": str(destination), "files": names}
    return Outcome(data, lambda screen: screen.field("Files", f"{len(names)} in {destination}, every hash checked"))


def _stale(checked: CheckedLock) -> LockError:
    reasons = "; ".join(reason.message for reason in checked.reasons)
    return LockError("lock-stale", f"{checked.lock.name} is stale: {reasons}", hint=checked.command)


def _diff(old: Path, new: Path) -> Outcome:
    from gpuinstall.lock.compare import compare_locks
    from gpuinstall.lock.lock import read_lock

    found = compare_locks(read_lock(old), read_lock(new))
    return Outcome({"changes": [change.to_dict() for change in found]}, lambda screen: show_changes(screen, found))


def show_written(terminal: Terminal, made: Sequence[Written], apart: Sequence[TargetDifference]) -> None:
    """Write one line a lock, what keeps a lock from being shared, and the packages that they hold apart."""
    for each in made:
        count = len(each.lock.pylock.packages)
        terminal.field("Lock", f"{each.path.name}: {count} packages, {each.lock.pinned_by} ({each.status})")
    private: dict[str, list[str]] = {}
    for each in made:
        for source in each.private:
            private.setdefault(source, []).append(each.path.name)
    for source, names in private.items():
        terminal.warn(f"{', '.join(names)}: only who can reach {source} can install from it")
    for one in apart:
        terminal.field("Apart", f"{one.package} {one.version} for {one.target}: {one.why}")


def show_checked(terminal: Terminal, checked: Sequence[CheckedLock]) -> None:
    """Write one line a lock: fresh, or stale and why; then what makes them fresh."""
    for each in checked:
        terminal.field("Lock", f"{each.lock.name} is {'stale' if each.reasons else 'fresh'}")
        for reason in each.reasons:
            terminal.prose(f"{'':11} {reason.message}", 12)
    for command in dict.fromkeys(each.command for each in checked if each.reasons):
        terminal.line(f"  do    {command}")


def show_changes(terminal: Terminal, changes: Sequence[VersionChange]) -> None:
    """Write one line a package that differs."""
    for change in changes:
        terminal.line(str(change))
    if not changes:
        terminal.line("the two locks hold the same")
