"""Plans and resolutions that agree, with one version of every shared package for all targets as far as possible."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from packaging.version import Version

from gpuinstall.errors import InstallationError, InternalError, NoBuildError
from gpuinstall.lock.code_check import with_code
from gpuinstall.lock.live_index import read_live_index
from gpuinstall.lock.request import is_torch, plan_locks
from gpuinstall.lock.resolution import Resolution, check_resolution, resolve
from gpuinstall.lock.resolver import ConflictError, ResolverProject, VersionPins, demanded_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpuinstall.lock.request import LockRequest, PlannedLock
    from gpuinstall.lock.target import Target
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError

    ResolveWithin = Callable[[PlannedLock, tuple[str, ...]], Resolution | ConflictError]

T = TypeVar("T")
R = TypeVar("R")

PLANS = 3
"""How often to choose again where other packages demand another torch."""
ROUNDS = 3
AT_ONCE = 6


def plan_and_resolve(
    requests: Sequence[LockRequest], session: Session, *, newest: bool = False, pins: VersionPins | None = None
) -> list[Resolution]:
    """Choose from what the sources list today and resolve; with ``newest`` each lock has its own torch.

    Raise MachineError or NoBuildError where nothing fits, InstallationError where a source or uv fails.
    """
    requests, unreachable = read_live_index(requests, session)
    pins = (pins or VersionPins()).within(requests[0].request.constraints)
    if unreachable is None:
        agree = partial(_agree, session=session, newest=newest)
        agreed = with_code(agree, requests, pins, session)
    else:
        agreed = _agree_from_cache(requests, session, pins, unreachable, newest=newest)
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
    """Plan and resolve; where other packages demand a torch of their own, again with that one."""

    def resolve_within(planned: PlannedLock, bounds: tuple[str, ...] = ()) -> Resolution | ConflictError:
        return _resolved(planned, pins.within(bounds), session)

    for plans_left in reversed(range(PLANS)):
        planned = plan_locks(requests, newest=newest)
        answers = _side_by_side(resolve_within, planned)
        pairs = zip(planned, answers, strict=True)
        conflicts = [(one, answer) for one, answer in pairs if isinstance(answer, ConflictError)]
        if not conflicts:
            done = [answer for answer in answers if isinstance(answer, Resolution)]
            return align_versions(done, requests[0].catalog.family, resolve_within)
        first, conflict = conflicts[0]
        torch = _demand(first, session) if plans_left else None
        if torch is None:
            raise conflict
        requests = [request.with_torch(torch) for request in requests]
    raise InternalError("disagreement", "the choice and the resolution did not agree")


def _resolved(planned: PlannedLock, pins: VersionPins, session: Session) -> Resolution | ConflictError:
    """Resolve what was chosen; where a package has wheels for newer systems alone, for this very machine's glibc."""
    target = planned.target
    answer = _answer(planned, target, pins, session)
    newer = target.up_to(planned.request.machine.glibc)
    if newer == target or (isinstance(answer, Resolution) and not answer.builds_from_source):
        return answer
    again = _answer(planned, newer, pins, session)
    return again if isinstance(again, Resolution) else answer


def _answer(planned: PlannedLock, target: Target, pins: VersionPins, session: Session) -> Resolution | ConflictError:
    try:
        return resolve(planned, target, pins, session)
    except ConflictError as conflict:
        return conflict


def _demand(planned: PlannedLock, session: Session) -> str | None:
    """Ask which torch the other packages agree on, of the default index alone; None where that does not help."""
    others = tuple(text for text in planned.request.request.requirements if not is_torch(text))
    found = demanded_torch(ResolverProject(others, planned.choice.python, planned.target), session)
    if found is None or found[0].partition("+")[0] == str(planned.choice.build.torch):
        return None
    torch, packages = found
    session.reporter.step("Build", f"{' and '.join(packages) or 'a package'} demands torch {torch}")
    return torch


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
