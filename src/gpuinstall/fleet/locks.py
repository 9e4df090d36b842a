"""The locks of a fleet's plan, made and checked against every class, and their files fetched where the network is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import LockError, NoBuildError
from gpuinstall.files import remove_file, write_atomically
from gpuinstall.fleet.documents import LockGroup, Sha256
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fetch import download
from gpuinstall.lock.fit import Fit, fit
from gpuinstall.lock.lock import Lock, read_lock
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import LockRequest, pin_torch
from gpuinstall.lock.strangers import check_hosts
from gpuinstall.lock.target import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.fleet.fleet_plan import FleetPlan, PlannedGroup
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.request import Request
    from gpuinstall.session import Session


def make_locks(
    plan: FleetPlan, request: Request, catalog: Catalog, folder: RunFolder, session: Session
) -> list[LockGroup]:
    """Write a lock for each group into the run's folder, with the versions of one that lies there already.

    Nothing else of that is believed: others may have written it. Raise what resolving raises, NoBuildError where a lock
    does not run on a class that it was made for.
    """
    if not plan.groups:
        return []
    locks = _resolved(plan, request, catalog, folder, session)
    for group, lock in zip(plan.groups, locks, strict=True):
        write_atomically(folder.place("locks", _name(group), lock.name), lock.text)
    return [_group(group, lock, plan) for group, lock in zip(plan.groups, locks, strict=True)]


def fetch(groups: Sequence[LockGroup], folder: RunFolder, session: Session) -> int:
    """Bring every file of the locks into the run's folder, each once; return how many there are.

    Raise LockError for a host that is none of the sources, which is not asked.
    """
    locks = [group_lock(group, folder) for group in groups]
    for group, lock in zip(groups, locks, strict=True):
        check_hosts(lock, lock.files, group.backend, session)
    return len(download(locks, folder.place("wheels"), session)) if locks else 0


def group_lock(group: LockGroup, folder: RunFolder) -> Lock:
    """Read the lock of a group; raise LockError where it is not the one of the plan."""
    lock = read_lock(folder.place("locks", group.name, group.lock))
    if lock.sha256 != group.sha256:
        message = f"{lock.name} is not the plan's lock"
        raise LockError("lock-edited", message, hint="gpuinstall fleet plan --run-dir DIR")
    return lock


def different_collectives(groups: Sequence[LockGroup]) -> str | None:
    """Say between which nodes no job can run, because their locks hold different collective libraries."""
    versions = {group.nccl for group in groups if group.nccl}
    if len(versions) < 2:
        return None
    libraries = ", ".join(f"{group.name} has NCCL {group.nccl}" for group in groups if group.nccl)
    return f"jobs cannot span these locks: {libraries}"


def _resolved(plan: FleetPlan, request: Request, catalog: Catalog, folder: RunFolder, session: Session) -> list[Lock]:
    """Resolve for all groups together, with one torch where the plan has one."""
    requests = [lock_request(group, plan, request, catalog) for group in plan.groups]
    apart = len({group.build.torch for group in plan.groups}) > 1
    held = []
    for path in sorted(folder.place("locks").glob("*/pylock.*.toml")):
        with suppress(LockError):
            held.append(read_lock(path))
    resolutions = resolve_locks(requests, session, held=held, newest=apart)
    for path in folder.place("locks").glob("*/pylock.*.toml"):
        remove_file(path)
    locks = build_locks(resolutions, [request] * len(resolutions), session, folder=folder.place("locks"))
    for group, lock in zip(plan.groups, locks, strict=True):
        _check(group, lock, plan, request, catalog)
    return locks


def lock_request(group: PlannedGroup, plan: FleetPlan, request: Request, catalog: Catalog) -> LockRequest:
    """Ask for the group's build; with programs, which may want an older torch, for those that every class runs."""
    build = group.build
    if names_programs(request.requirements):
        requirements = (*request.requirements, f"torch<={build.torch}")
    else:
        requirements = pin_torch(request.requirements, str(build.torch))
    wanted = replace(request, python=group.python, requirements=requirements)
    machines = tuple(plan.classes[position].machine for position in group.classes)
    return LockRequest.for_target(_target(build), wanted, catalog, machines)


def _check(group: PlannedGroup, lock: Lock, plan: FleetPlan, request: Request, catalog: Catalog) -> None:
    open_request = replace(request, backend=None, python=group.python)
    for kind in (plan.classes[position] for position in group.classes):
        verdict = fit(lock, kind.machine, open_request, catalog)
        if not isinstance(verdict, Fit):
            message = f"{lock.name} does not run on {kind.label}: {verdict.reason.message}"
            raise NoBuildError("lock-does-not-fit", message, hint="Change the request, or leave these nodes out")


def _group(group: PlannedGroup, lock: Lock, plan: FleetPlan) -> LockGroup:
    torch = lock.versions.get("torch", str(group.build.torch))
    nccl = next((version for name, version in lock.versions.items() if "-nccl-" in name), None)
    own = _name(group), lock.name, torch, group.build.backend.tag, group.python
    return LockGroup(*own, plan.nodes(group.classes), Sha256(lock.sha256), nccl)


def _name(group: PlannedGroup) -> str:
    return f"torch-{group.build.torch}-{_target(group.build)}"


def _target(build: Build) -> Target:
    return Target(build.backend.tag, build.os, build.arch)
