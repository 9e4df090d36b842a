"""What the sources list today, asked for at once and before it is known what will be chosen of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuinstall.base import process, uv
from gpuinstall.base.backend import CPU
from gpuinstall.base.reporter import Reporter, SilentReporter
from gpuinstall.base.requirement import requirement_names
from gpuinstall.catalog.listing import default_wheels, family_wheels, index_names
from gpuinstall.lock.programs import FIRST_PAGES, fetch_pages, names_programs
from gpuinstall.plan import Rejected
from gpuinstall.sources.web import UnreachableError
from gpuinstall.sources.web.answers import ways_to_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpuinstall.lock.request import LockRequest
    from gpuinstall.sources.session import Session

LISTS_AT_ONCE = 32


@dataclass
class PostponedWarnings(SilentReporter):
    """Keeps warnings until it is known whether they are true."""

    reporter: Reporter
    warnings: list[str] = field(default_factory=list)

    def step(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Report what was done at once."""
        self.reporter.step(label, text, seconds)

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)


LiveRequests = tuple[list["LockRequest"], "UnreachableError | None"]
"""Every request with its catalogue narrowed to what the sources list, and a default index that does not answer."""


@contextmanager
def ask_live_index(
    requests: Sequence[LockRequest], session: Session
) -> Iterator[Callable[[], LiveRequests]]:
    """Request every page that is known to be needed at once, and give what reads the answers.

    Meanwhile uv looks at its interpreter. What is to be reported of the sources is reported once, and not if the
    default index is unreachable.
    """
    sources = session.sources
    client = session.client
    first = requests[0]
    with ThreadPoolExecutor(LISTS_AT_ONCE) as pool:
        pool.submit(process.run, uv.look(session.python), env=session.environment)
        # It asks uv first, which takes as long as to load what requests are made with.
        reached = pool.submit(_reach_default_index, session)
        client.prepare()
        pool.submit(fetch_pages, first.request.requirements, first.catalog.family, session)
        pool.submit(default_wheels, sources, client, "torch")
        for backend in {request.request.backend for request in requests} - {None}:
            pool.submit(index_names, sources, client, str(backend))
        pages = [
            pool.submit(family_wheels, sources, client, *page) for page in _first_pages(requests)
        ]

        def read() -> LiveRequests:
            from gpuinstall.lock.learned import learned_catalog

            for page in pages:
                page.result()
            postponed = PostponedWarnings(session.reporter)
            reporter: Reporter = postponed
            live = []
            for request in requests:
                catalog = learned_catalog(
                    request.catalog,
                    request.machine,
                    request.request,
                    reporter,
                    sources=sources,
                    client=client,
                )
                live.append(replace(request, catalog=catalog))
                reporter = SilentReporter()
            unreachable = reached.result()
            if unreachable is None:
                losses = _losses(requests, live, session)
                for text in (*postponed.warnings, *losses):
                    session.reporter.warn(text)
            return live, unreachable

        yield read


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


def _first_pages(requests: Sequence[LockRequest]) -> list[tuple[str, str]]:
    """Return the backends and packages of the pages that a resolution needs first, if the backends are given."""
    pages = set()
    for request in requests:
        backend = request.request.backend
        if not backend:
            continue
        requirements = request.request.requirements
        packages = requirement_names(requirements) & request.catalog.family
        if backend != CPU.tag:
            packages |= {"triton"} & request.catalog.family
        packages |= set(FIRST_PAGES) if names_programs(requirements) else {"torch"}
        pages |= {(backend, package) for package in packages}
    return sorted(pages)
