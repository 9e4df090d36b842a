"""Plans and resolutions that agree, with one version of every shared package for all targets as far as possible."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.errors import MachineError, NoBuildError
from gpuinstall.lock.live_index import ask_live_index
from gpuinstall.lock.request import VersionPins, plan_locks

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def _blame_the_index(requests: Sequence[LockRequest], session: Session, *, newest: bool) -> None:
    """Raise UnreachableError where the request would be served if the torch index answered."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent:
        with suppress(MachineError, NoBuildError):
            plan_locks(requests, newest=newest)
            raise silent
