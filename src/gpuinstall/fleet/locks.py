"""The locks of a fleet's plan, checked against every class, and their files."""

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
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.fleet.fleet_plan import FleetPlan, PlannedGroup
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.request import Request
    from gpuinstall.session import Session


def make_locks(
    plan: FleetPlan,
    request: Request,
    catalog: Catalog,
    folder: RunFolder,
    session: Session,
) -> list[LockGroup]:
    """Write a lock for each group into the run's folder, with the versions of one that is there.

    Nothing else of that is believed: others may have written it.

    Raises:
        NoBuildError: if a lock does not run on a class that it was made for.
        GpuInstallError: what resolving raises.
    """
    if not plan.groups:
        return []
    locks = _resolved(plan, request, catalog, folder, session)
    groups = []
    for planned, lock in zip(plan.groups, locks, strict=True):
        group = _group(planned, lock, plan)
        write_atomically(folder.place("locks", group.name, lock.name), lock.text)
        groups.append(group)
    return groups


def fetch(
    groups: Sequence[LockGroup],
    folder: RunFolder,
    session: Session,
) -> int:
    """Download every file of the locks into the run's folder; return how many there are.

    Raises:
        LockError: for a host that is none of the sources, before it is asked.
    """
    locks = [group_lock(group, folder) for group in groups]
    for group, lock in zip(groups, locks, strict=True):
        check_hosts(lock, lock.files, group.backend, session)
    if not locks:
        return 0
    return len(download(locks, folder.place("wheels"), session))


def group_lock(group: LockGroup, folder: RunFolder) -> Lock:
    """Read the lock of a group; raise LockError if it is not the plan's."""
    lock = read_lock(folder.place("locks", group.name, group.lock))
    if lock.sha256 != group.sha256:
        message = f"{lock.name} is not the plan's lock"
        hint = "gpuinstall fleet plan --run-dir DIR"
        raise LockError(
            "lock-edited",
            message,
            hint=hint,
        )
    return lock


def different_collectives(groups: Sequence[LockGroup]) -> str | None:
    """Return which locks can share no job, because their collective libraries differ."""
    versions = {group.name: group.nccl for group in groups if group.nccl}
    if len(set(versions.values())) < 2:
        return None
    libraries = ", ".join(f"{name} has NCCL {version}" for name, version in versions.items())
    return f"jobs cannot span these locks: {libraries}"


def _resolved(
    plan: FleetPlan,
    request: Request,
    catalog: Catalog,
    folder: RunFolder,
    session: Session,
) -> list[Lock]:
    """Resolve for all groups together, with one torch if the plan has one."""
    place = folder.place("locks")
    earlier = sorted(place.glob("*/pylock.*.toml"))
    torches = {group.build.torch for group in plan.groups}
    resolutions = resolve_locks(
        [lock_request(group, plan, request, catalog) for group in plan.groups],
        session,
        held=list(_readable(earlier)),
        newest=len(torches) > 1,
    )
    for path in earlier:
        remove_file(path)
    requests = [request] * len(resolutions)
    locks = build_locks(
        resolutions,
        requests,
        session,
        folder=place,
    )
    for group, lock in zip(plan.groups, locks, strict=True):
        _check(group, lock, plan, request, catalog)
    return locks


def _readable(paths: Iterable[Path]) -> Iterator[Lock]:
    for path in paths:
        with suppress(LockError):
            yield read_lock(path)


def lock_request(
    group: PlannedGroup,
    plan: FleetPlan,
    request: Request,
    catalog: Catalog,
) -> LockRequest:
    """Return the request for the lock of a group: its build, or with programs an older one."""
    build = group.build
    if names_programs(request.requirements):
        requirements = (*request.requirements, f"torch<={build.torch}")
    else:
        requirements = pin_torch(request.requirements, str(build.torch))
    wanted = replace(
        request,
        python=group.python,
        requirements=requirements,
    )
    machines = tuple(plan.classes[position].machine for position in group.classes)
    return LockRequest.for_target(_target(build), wanted, catalog, machines)


def _check(
    group: PlannedGroup,
    lock: Lock,
    plan: FleetPlan,
    request: Request,
    catalog: Catalog,
) -> None:
    open_request = replace(
        request,
        backend=None,
        python=group.python,
    )
    for position in group.classes:
        kind = plan.classes[position]
        verdict = fit(lock, kind.machine, open_request, catalog)
        if not isinstance(verdict, Fit):
            message = f"{lock.name} does not run on {kind.label}: {verdict.reason.message}"
            hint = "Change the request, or leave these nodes out"
            raise NoBuildError(
                "lock-does-not-fit",
                message,
                hint=hint,
            )


def _group(
    group: PlannedGroup,
    lock: Lock,
    plan: FleetPlan,
) -> LockGroup:
    build = group.build
    collectives = [version for name, version in lock.versions.items() if "-nccl-" in name]
    return LockGroup(
        name=f"torch-{build.torch}-{_target(build)}",
        lock=lock.name,
        torch=lock.versions.get("torch", str(build.torch)),
        backend=build.backend.tag,
        python=group.python,
        nodes=plan.nodes(group.classes),
        sha256=Sha256(lock.sha256),
        nccl=collectives[0] if collectives else None,
    )


def _target(build: Build) -> Target:
    return Target(build.backend.tag, build.os, build.arch)
