"""What the sources list today of what locks are requested for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.base.backend import CPU
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.requirement import requirement_names
from gpuinstall.catalog.listing import COMPANIONS, default_wheels, family_wheels, index_names
from gpuinstall.lock.learned import learned_catalog
from gpuinstall.lock.programs import names_programs
from gpuinstall.plan import Rejected
from gpuinstall.sources.web import UnreachableError
from gpuinstall.sources.web.answers import ways_to_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.sources.session import Session


ANSWERS_AT_ONCE = 32


def live_requests(
    requests: Sequence[LockRequest],
    session: Session,
) -> tuple[list[LockRequest], UnreachableError | None]:
    """Return every request with its catalogue narrowed to what the sources list, and a default index that is silent.

    What is to be reported of the sources is reported once, and not if the default index is unreachable.
    """
    unreachable = _ask_at_once(requests, session)
    reporter: Reporter = SilentReporter() if unreachable else session.reporter
    live = []
    for request in requests:
        catalog = learned_catalog(
            request.catalog,
            request.machine,
            request.request,
            reporter,
            sources=session.sources,
            client=session.client,
        )
        live.append(replace(request, catalog=catalog))
        reporter = SilentReporter()
    if unreachable is None:
        for text in _losses(requests, live, session):
            session.reporter.warn(text)
    return live, unreachable


def _ask_at_once(requests: Sequence[LockRequest], session: Session) -> UnreachableError | None:
    """Ask for every page that is known to be needed; return why the default index does not answer, if it does not.

    An index may be 50 ms away, and the pages of a lock with six targets are twenty.
    """
    sources, client = session.sources, session.client
    pages: dict[tuple[str, str], Callable[[], object]] = {
        ("", "torch"): partial(default_wheels, sources, client, "torch"),
    }
    for request in requests:
        requirements = request.request.requirements
        names = requirement_names(requirements)
        family = request.catalog.family
        for name in names - family:
            pages["", name] = partial(session.known_page, name)
        backend = request.request.backend
        if backend is None:
            pages["", ""] = partial(client.page, f"{sources.torch_index}/torch/")
            usual = request.outcome
            if isinstance(usual, Rejected):
                continue
            backend = usual.choice.build.backend.tag
        pages[backend, ""] = partial(index_names, sources, client, backend)
        needed = names & family | {"torch"}
        if names_programs(requirements):
            needed |= COMPANIONS
        if backend != CPU.tag:
            needed |= {"triton"} & family
        for name in needed:
            pages[backend, name] = partial(family_wheels, sources, client, backend, name)

    with ThreadPoolExecutor(ANSWERS_AT_ONCE) as pool:
        reached = pool.submit(_reach_default_index, session)
        # What fails is told where its answer is used.
        for page in pages.values():
            pool.submit(page)
        return reached.result()


def _losses(
    requests: Iterable[LockRequest],
    live: Iterable[LockRequest],
    session: Session,
) -> Iterable[str]:
    """Return what a torch index that does not answer would give."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent is None:
        return ()
    losses = dict[str, None]()
    for request, live_request in zip(requests, live, strict=True):
        usual = request.outcome
        now = live_request.outcome
        if isinstance(usual, Rejected) or isinstance(now, Rejected):
            continue
        best = usual.choice.build.name
        here = now.choice.build.name
        if here != best:
            text = f"{silent.host} is unreachable, so the build is {here} instead of {best}"
            losses[text] = None
    return losses


def _reach_default_index(session: Session) -> UnreachableError | None:
    """Return why the default index does not answer; None if it does, or uv is offline.

    uv alone tries for up to a minute. A certificate that we do not trust is left to uv, which may know another
    authority.
    """
    address = session.default_index or ""
    if session.environment.get("UV_OFFLINE") or not address.startswith(("http://", "https://")):
        return None
    try:
        session.client.head(f"{address}/")
    except UnreachableError as error:
        if error.untrusted:
            return None
        hints = dict.fromkeys((error.hint or "", ways_to_network()))
        error.hint = "\n".join(hints)
        return error
    return None
