"""Plans and resolutions that agree, with one version of every shared package for all targets as far as possible."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from packaging.version import Version

from gpuinstall.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.lock.joint import resolve_jointly
from gpuinstall.lock.live_index import read_live_index
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import plan_locks
from gpuinstall.lock.resolution import Resolution, check_resolution, resolve_for_here
from gpuinstall.lock.resolver import ConflictError, VersionPins
from gpuinstall.lock.with_code import with_code

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpuinstall.lock.request import LockRequest, PlannedLock
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError

    ResolveWithin = Callable[[PlannedLock, tuple[str, ...]], Resolution | ConflictError]

T = TypeVar("T")
R = TypeVar("R")

ROUNDS = 3
AT_ONCE = 6


def plan_and_resolve(
    requests: Sequence[LockRequest], session: Session, *, newest: bool = False, pins: VersionPins | None = None
) -> list[Resolution]:
    """Choose from what the sources list today and resolve; with ``newest`` each lock has its own torch.

    Raise MachineError or NoBuildError where nothing fits, InstallationError where a source or uv fails.
    """
    asked = requests
    requests, unreachable = read_live_index(requests, session)
    pins = (pins or VersionPins()).within(requests[0].request.constraints)
    agree = partial(_agree, session=session, newest=newest)
    try:
        if unreachable is None:
            agreed = with_code(agree, requests, pins, session)
        else:
            agreed = _agree_from_cache(requests, session, pins, unreachable, newest=newest)
    except NoBuildError:
        _blame_the_index(asked, session, newest=newest)
        raise
    for resolution in agreed:
        check_resolution(resolution, session)
    return agreed


def align_versions(
    resolutions: Sequence[Resolution], family: Collection[str], resolve_within: ResolveWithin
) -> list[Resolution]:
    """Lower every package outside the family to the oldest version that a target has."""
    now = list(resolutions)
    for _ in range(ROUNDS):
        bounds = _bounds(now, family)
        if not any(_above(resolution, bounds) for resolution in now):
            break
        now = _side_by_side(partial(_lowered, bounds=bounds, resolve_within=resolve_within), now)
    return now


def _blame_the_index(requests: Sequence[LockRequest], session: Session, *, newest: bool) -> None:
    """Raise UnreachableError where the request would be served if the torch index answered."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent:
        with suppress(MachineError, NoBuildError):
            plan_locks(requests, newest=newest)
            raise silent


def _agree_from_cache(
    requests: Sequence[LockRequest],
    session: Session,
    pins: VersionPins,
    unreachable: UnreachableError,
    *,
    newest: bool,
) -> list[Resolution]:
    """Let uv resolve with what it holds; what the rules alone refuse is refused as ever."""
    try:
        plan_locks(requests, newest=newest)
    except InstallationError:
        raise unreachable from None
    try:
        agreed = _agree(requests, pins, session.from_cache(), newest=newest)
    except (InstallationError, NoBuildError):
        raise unreachable from None
    session.reporter.warn(f"{unreachable.host} cannot be reached, {unreachable.why}; uv's cache serves instead")
    return agreed


def _agree(requests: Sequence[LockRequest], pins: VersionPins, session: Session, *, newest: bool) -> list[Resolution]:
    """Choose and resolve: the family alone by the rules, programs and torch together."""

    def resolve_within(planned: PlannedLock, bounds: tuple[str, ...] = ()) -> Resolution | ConflictError:
        return resolve_for_here(planned, pins.within(bounds), session)

    planned = plan_locks(requests, newest=newest)
    if names_programs(requests[0].request.requirements):
        together = [[one] for one in planned] if newest else [planned]
        done = [each for group in together for each in resolve_jointly(group, pins, session)]
    else:
        done = [_without_conflict(answer) for answer in _side_by_side(resolve_within, planned)]
    return align_versions(done, requests[0].catalog.family, resolve_within)


def _without_conflict(answer: Resolution | ConflictError) -> Resolution:
    if isinstance(answer, ConflictError):
        raise answer
    return answer


def _bounds(resolutions: Sequence[Resolution], family: Collection[str]) -> dict[str, str]:
    """The oldest version of each package."""
    oldest: dict[str, str] = {}
    for resolution in resolutions:
        for name, version in resolution.versions.items():
            oldest[name] = min(version, oldest.get(name, version), key=Version)
    return {name: version for name, version in sorted(oldest.items()) if name not in family}


def _above(resolution: Resolution, bounds: Mapping[str, str]) -> list[str]:
    """The packages that it has newer than ``bounds``, although nothing stands against the older version."""
    newer = (name for name, version in resolution.versions.items() if version != bounds.get(name, version))
    return sorted(name for name in newer if name not in resolution.apart)


def _lowered(resolution: Resolution, bounds: Mapping[str, str], resolve_within: ResolveWithin) -> Resolution:
    """Resolve again below ``bounds``; where they do not go together, below as many of them as can be kept."""
    above = _above(resolution, bounds)
    if not above:
        return resolution
    planned, apart = resolution.planned, dict(resolution.apart)
    within = {name: f"{name}<={version}" for name, version in bounds.items() if name not in apart}
    answer = resolve_within(planned, tuple(within.values()))
    if isinstance(answer, Resolution):
        return replace(answer, apart=apart)
    kept = tuple(bound for name, bound in within.items() if name not in above)
    for name in above:
        answer = resolve_within(planned, (*kept, within[name]))
        if isinstance(answer, Resolution):
            resolution, kept = answer, (*kept, within[name])
        else:
            apart[name] = answer.why or answer.message
    return replace(resolution, apart=apart)


def _side_by_side(function: Callable[[T], R], each: Sequence[T]) -> list[R]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(function, each))
