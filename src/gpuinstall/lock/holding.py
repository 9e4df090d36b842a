"""Versions that are locked stay while something else changes: what is resolved anew keeps close to the locks there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import MachineError, NoBuildError, UsageError
from gpuinstall.lock.plan_and_resolve import plan_and_resolve
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import VersionPins
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session


def resolve_held(
    requests: Sequence[LockRequest],
    locks: Sequence[Lock],
    session: Session,
    *,
    moving: Collection[str] = (),
    newest: bool = False,
) -> list[Resolution]:
    """Choose and resolve with the versions that ``locks`` hold, as far as nothing stands against them.

    With ``moving`` those packages alone may move, and torch only with them. Raise what choosing or resolving raises,
    and UsageError for a package that is to move and that no lock has.
    """
    family, held = requests[0].catalog.family, _held_versions(locks, moving)
    if not held:
        return plan_and_resolve(requests, session, newest=newest)
    firm = [_with_locked_torch(request, locks, held) for request in requests]
    rest = {name: version for name, version in held.items() if name not in family}
    members = sorted(name for name in held if name in family) if "torch" in held else []
    pins = VersionPins(tuple(f"{name}=={_public(held[name])}" for name in members), rest)
    if moving:
        return plan_and_resolve(firm, session, newest=newest, pins=pins)
    if not _asks_for_new_programs(requests[0], locks):
        try:
            return plan_and_resolve(firm, session, newest=newest, pins=pins)
        except (NoBuildError, MachineError):
            pass  # what is asked for now does not go with this torch, or the machine no longer runs it
    return plan_and_resolve(requests, session, newest=newest, pins=VersionPins((), held))


def _held_versions(locks: Sequence[Lock], moving: Collection[str]) -> dict[str, str]:
    """The locked version of every package but those that may move."""
    held = {name: version for lock in locks for name, version in lock.versions.items()}
    for name in moving:
        if name not in held:
            raise UsageError("not-locked", f"no lock here has a package called {name}", hint="check the name")
    return {name: version for name, version in held.items() if name not in moving}


def _with_locked_torch(request: LockRequest, locks: Sequence[Lock], held: Mapping[str, str]) -> LockRequest:
    """Ask for the torch and the Python of the lock of the same target, or of any, where the request allows them."""
    lock = next((lock for lock in locks if lock.target == request.target), locks[0])
    pythons = (*([lock.python] if lock.python else []), *request.request.preferred_pythons)
    request = replace(request, request=replace(request.request, preferred_pythons=pythons))
    torch = _public(lock.versions.get("torch", "")) if "torch" in held else ""
    asked = [one for one in map(parse_requirement, request.request.requirements) if one.name == "torch"]
    return request.with_torch(torch) if torch and all(one.allows(torch) for one in asked) else request


def _asks_for_new_programs(request: LockRequest, locks: Sequence[Lock]) -> bool:
    """Say whether a program is named that no lock was made for: its version comes before that of torch."""
    known = frozenset[str]().union(*(lock.asked for lock in locks))
    named = request.request.requirements
    return names_programs(text for text in named if parse_requirement(text).name not in known)


def _public(version: str) -> str:
    return version.partition("+")[0]
