"""``gpuinstall lock``: write the locks that a team commits, say whether they are fresh, compare two of them."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import asked, options
from gpuinstall.cli.envelope import Outcome, written
from gpuinstall.cli.install import named
from gpuinstall.cli.lock_view import show_changes, show_checked, show_written
from gpuinstall.cli.machine_file import read_machine_file
from gpuinstall.errors import LockError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.config import Config
    from gpuinstall.lock.check import CheckedLock, DeclaredUse
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.write import LockOptions
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request
    from gpuinstall.session import Session


@click.command("lock", help="Write pylock.<target>.toml for each kind of machine; without a target, for this one.")
@asked.request_options
@click.option("--target", "targets", multiple=True, metavar="T", help="Lock for cu126, cu130-windows-x86_64, …")
@click.option("--machine", "machines", multiple=True, metavar="FILE", help="Lock for recorded machines (probe --json).")
@click.option("--gpu", multiple=True, metavar="NAME", help='Lock for a machine with this GPU, such as "RTX 5090".')
@click.option("--driver", metavar="VERSION", help="The driver of the machine that --gpu names.")
@click.option("--os", "system", type=click.Choice(["linux", "windows", "macos"]), help="Its system (linux).")
@click.option("--arch", type=click.Choice(["x86_64", "aarch64", "arm64"]), help="Its processor (x86_64).")
@click.option("--per-target", type=click.Choice(["newest"]), help="Give each target its own newest torch.")
@click.option("--check", is_flag=True, help="Say whether the locks are fresh; exit 6 where they are not.")
@click.option("--upgrade", is_flag=True, help="Make new locks, whatever there is.")
@click.option("--upgrade-package", "packages", multiple=True, metavar="P", help="Let only this package move.")
@click.option("--diff", nargs=2, metavar="OLD NEW", help="Compare two locks.")
@click.option("--download", metavar="DIR", type=click.Path(path_type=Path), help="Fetch every file of the locks.")
@options.offline
@options.command("lock")
def command(
    terminal: Terminal,
    request: asked.AskedRequest,
    *,
    targets: tuple[str, ...],
    machines: tuple[str, ...],
    gpu: tuple[str, ...],
    driver: str | None,
    system: str | None,
    arch: str | None,
    per_target: str | None,
    check: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    diff: tuple[str, str] | None,
    download: Path | None,
    offline: bool,
) -> Outcome:
    """Lock."""
    if diff:
        return _diff(Path(diff[0]), Path(diff[1]))
    from gpuinstall.catalog import load_catalog
    from gpuinstall.lock.check import DeclaredUse
    from gpuinstall.lock.inputs import digest_files, plain
    from gpuinstall.lock.write import LockOptions
    from gpuinstall.plan.requirement import normalised
    from gpuinstall.session import open_session
    from gpuinstall.sources import read_sources

    folder, catalog = Path.cwd(), load_catalog()
    config = _settings(request, folder, catalog)
    sources = read_sources(asked.asked_index(request, config), os.environ, folder)
    catalog = replace(catalog, torch_index=sources.torch_index)
    words = asked.AskedMachine(gpu=gpu, driver=driver, os=system, arch=arch)
    wanted = asked.asked_request(request, config, machine=words)
    plain(wanted.requirements)  # a malformed one is refused before anything is asked
    meant = [read_machine_file(name, terminal) for name in machines]
    meant += [asked.asked_machine(words, terminal)] if any((gpu, driver, system, arch)) else []
    moving = tuple(map(normalised, packages))
    files = digest_files(request.files, folder)
    with open_session(sources, terminal, offline=offline) as session:
        chosen = targets or (() if meant else config.targets or ())
        if check:
            told = bool(request.requirements or request.files)
            declared = DeclaredUse(tuple(chosen), tuple(meant), told, named(request, config))
            return _check(folder, wanted, catalog, declared, None if offline else session)
        if download:
            return _download(folder, download, session)
        requests = _lock_requests(chosen, meant, wanted, catalog, terminal)
        newest = per_target == "newest"
        exact = named(request, config)
        return _write(LockOptions(folder, requests, exact, files, upgrade, moving, newest), session)


def _settings(request: asked.AskedRequest, folder: Path, catalog: Catalog) -> Config:
    """The project's settings; where nobody names the requirements, its own dependencies are meant."""
    from gpuinstall.lock.inputs import read_dependencies

    config = asked.here()
    if named(request, config):
        return config
    return config._replace(requirements=read_dependencies(folder, catalog.family) or None)


def _lock_requests(
    targets: Sequence[str], machines: Sequence[Machine], request: Request, catalog: Catalog, terminal: Terminal
) -> tuple[LockRequest, ...]:
    """The locks to make: for the targets, for the machines that are meant, or for this one."""
    from gpuinstall.lock.cover import cover
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.target import Target

    if len(machines) == 1 and not targets:
        return (LockRequest(machines[0], request, catalog),)
    named_targets = [Target.parse(text) for text in targets]
    if request.backend and any(target.backend != request.backend for target in named_targets):
        message = f"the backend {request.backend} is asked for, and the targets {' '.join(targets)}"
        raise UsageError("backend-and-target", message, hint="leave out --backend (and GPUINSTALL_BACKEND)")
    covering = cover(machines, request, catalog) if machines else ()
    every = dict.fromkeys((*named_targets, *covering))
    if every:
        return tuple(LockRequest.for_target(target, request, catalog) for target in every)
    return (LockRequest(asked.asked_machine(asked.AskedMachine(), terminal), request, catalog),)


def _write(options: LockOptions, session: Session) -> Outcome:
    from gpuinstall.lock.compare import differences
    from gpuinstall.lock.write import write_locks

    made = write_locks(options, session)
    apart = differences(made, options.requests[0].catalog.family)
    data = {"locks": [each.to_dict() for each in made], "differences": [each.to_dict() for each in apart]}
    return Outcome(data, lambda screen: show_written(screen, made, apart))


def _check(folder: Path, request: Request, catalog: Catalog, declared: DeclaredUse, session: Session | None) -> Outcome:
    from gpuinstall.lock.check import check_locks

    checked = check_locks(folder, request, catalog, declared, session)
    stale = [each for each in checked if each.reasons]
    errors = tuple(written(_stale(each)) for each in stale)
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
    files = "".join(f" -r {shlex.quote(name)}" for name in checked.lock.requirements_files)
    message = f"{checked.lock.name} is stale: {reasons}"
    return LockError("lock-stale", message, hint=f"gpuinstall lock --upgrade{files}")


def _diff(old: Path, new: Path) -> Outcome:
    from gpuinstall.lock.compare import compare_locks
    from gpuinstall.lock.lock import read_lock

    found = compare_locks(read_lock(old), read_lock(new))
    return Outcome({"changes": [change.to_dict() for change in found]}, lambda screen: show_changes(screen, found))
