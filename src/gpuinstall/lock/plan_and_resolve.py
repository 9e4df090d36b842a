"""Plans and resolutions that agree: of what the sources list today, or close to what the locks of a folder hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import MachineError, NoBuildError, UsageError
from gpuinstall.lock.live_index import ask_live_index
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import VersionPins, plan_locks
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session


def plan_and_resolve(
    requests: Sequence[LockRequest], session: Session, *, newest: bool = False, pins: VersionPins | None = None
) -> list[Resolution]:
    """Choose from what the sources list today and resolve; with ``newest`` each lock has its own torch.

    Raise MachineError or NoBuildError where nothing fits, InstallationError where a source or uv fails.
    """
    with ask_live_index(requests, session) as index:
        # Loaded while the servers answer.
        from gpuinstall.lock.agreement import agree_from_cache, agree_with_code
        from gpuinstall.lock.resolution import check_resolution

        live, unreachable = index.read()
    pins = (pins or VersionPins()).within(requests[0].request.constraints)
    try:
        if unreachable is None:
            agreed = agree_with_code(live, pins, session, newest=newest)
        else:
            agreed = agree_from_cache(live, pins, session, unreachable, newest=newest)
    except NoBuildError:
        _blame_the_index(requests, session, newest=newest)
        raise
    for resolution in agreed:
        check_resolution(resolution, session)
    return agreed


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


def _blame_the_index(requests: Sequence[LockRequest], session: Session, *, newest: bool) -> None:
    """Raise UnreachableError where the request would be served if the torch index answered."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent:
        with suppress(MachineError, NoBuildError):
            plan_locks(requests, newest=newest)
            raise silent


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
