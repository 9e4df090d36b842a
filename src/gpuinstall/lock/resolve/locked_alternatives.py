"""Keep the versions in existing lock files, as pins or as preferences."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint
from gpuinstall.base.values import replace
from gpuinstall.lock.file.lock import Lock, Record, find_version_conflicts
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.resolver_input import (
    Alternative,
    Requests,
    parse_public_version,
)
from gpuinstall.plan import Plan
from gpuinstall.plan.demand import parse_request


def create_locked_alternatives(
    requests: Requests,
    locks: Sequence[Lock],
    moving: Collection[str],
    *,
    upgrade: bool,
) -> Iterator[Alternative]:
    """Yield alternatives: pin the locked torch first, then only prefer it.

    Args:
        requests: The request for each target.
        locks: The existing locks.
        moving: The only packages to upgrade.
        upgrade: Whether to upgrade everything.
    """
    alternative = Alternative(python=_find_locked_python(requests[0], locks))
    if upgrade:
        yield alternative
        return
    request = requests[0].request
    versions = _find_locked_versions(request, locks, moving)
    alternative = replace(
        alternative, preferences=versions, hashes=_find_locked_hashes(locks, moving)
    )
    torch = versions.get("torch")
    is_new = not moving and _has_new_programs(requests[0], locks)
    # Without a torch version, the build of the other PyTorch packages is unknown.
    torch_is_kept = torch and not is_new and _can_keep_torch(requests[0], torch)
    if torch_is_kept:
        by_target = {lock.target: lock.versions for lock in locks}
        # Conflicting locks, such as the sides of a merge, cannot be kept unchanged.
        is_whole = (
            not moving
            and len(by_target) == len(locks)
            and not find_version_conflicts(locks)
            and _are_locks_current(request, locks)
        )
        members = requests[0].catalog.family & versions.keys()
        yield replace(
            alternative,
            pins={name: versions[name] for name in sorted(members)},
            locks=by_target if is_whole else {},
        )
    if not moving or not torch_is_kept:
        yield alternative


def _find_locked_python(request: LockRequest, locks: Iterable[Lock]) -> str | None:
    """Return the Python version in lock files if the request allows it."""
    demand = parse_request(request.request, request.catalog.family, request.machine)
    for lock in locks:
        if lock.python in demand.pythons:
            return lock.python
    return None


def _find_locked_versions(
    request: Request,
    locks: Sequence[Lock],
    moving: Collection[str],
) -> dict[str, str]:
    """Return locked versions, also from ``uv.lock`` or ``poetry.lock``.

    Args:
        request: The request, with the versions of the project's own lock.
        locks: The existing locks.
        moving: The packages to upgrade.

    Raises:
        UsageError: A package to upgrade is in no lock.
    """
    locked = dict[str, str]()
    for lock in locks:
        locked |= lock.versions
    preferred = {} if moving and locks else map_pins_by_name(request.preferred)
    is_current = _are_locks_current(request, locks)
    versions = preferred | locked if is_current else locked | preferred
    for name in moving:
        if name not in versions:
            message = f"no lock in this folder has a package named {name}"
            raise UsageError("not-locked", message, hint="Check the name")
        del versions[name]
    return versions


def _are_locks_current(request: Request, locks: Iterable[Lock]) -> bool:
    """Return whether lock files match the current ``uv.lock``.

    If so, the versions of the locks take precedence.
    """
    digest = Record.from_request(request).preferred_digest
    return all(lock.record.preferred_digest == digest for lock in locks)


def _find_locked_hashes(
    locks: Sequence[Lock], moving: Collection[str]
) -> dict[str, str]:
    """Return the SHA-256 hashes of locked files, by name and by URL."""
    hashes = {}
    for lock in locks:
        for file in lock.files:
            if file.sha256 and file.package not in moving:
                hashes[file.name] = file.sha256
                # A local file may have changed.
                if not file.url.startswith("file:"):
                    hashes[file.url] = file.sha256
    return hashes


def _can_keep_torch(request: LockRequest, torch: str) -> bool:
    """Return whether a request allows a torch version that runs."""
    for requirement in request.request.requirements:
        if requirement.name == "torch" and not requirement.allows(torch):
            return False
    return isinstance(request.choose_build(torch=parse_public_version(torch)), Plan)


def _has_new_programs(request: LockRequest, locks: Sequence[Lock]) -> bool:
    """Return whether the request has a program that no lock includes.

    The version of a new program is selected before torch's version. The project itself,
    requested by path, and packages that are tied to torch are not programs.
    """
    locked = set(map_pins_by_name(request.request.preferred))
    for lock in locks:
        locked |= lock.requested
    return any(
        one.url is None
        and one.name not in locked
        and not request.catalog.is_tied(one.name)
        for one in request.request.requirements
    )


def map_pins_by_name(preferred: Iterable[Constraint]) -> dict[str, str]:
    """Return pinned versions by package."""
    return {one.name: one.pinned or "" for one in preferred}
