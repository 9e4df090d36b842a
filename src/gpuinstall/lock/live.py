"""What the sources list today, asked for at once and before it is known what will be chosen of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.backend import CPU
from gpuinstall.catalog.listing import default_wheels, family_wheels, index_names
from gpuinstall.lock.programs import FIRST_PAGES, fetch_pages, names_programs
from gpuinstall.plan import Rejected
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.reporter import Reporter, SilentReporter
from gpuinstall.web import UnreachableError
from gpuinstall.web.answers import ways_to_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpuinstall.lock.request import LockRequest
    from gpuinstall.session import Session

LISTS_AT_ONCE = 32


@dataclass
class PostponedWarnings(SilentReporter):
    """Keeps warnings until it is known whether they are true."""

    reporter: Reporter
    warnings: list[str] = field(default_factory=list)

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say what was done at once."""
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
    """Ask for every page that is known to be needed at once, and give what reads the answers.

    Meanwhile uv looks at its interpreter. What is to be said of the sources is said once, and not where the default
    index is unreachable.
    """
    sources, client = session.sources, session.client
    with ThreadPoolExecutor(LISTS_AT_ONCE) as pool:
        pool.submit(process.run, uv.look(session.python), env=session.environment)
        client.prepare()
        reached = pool.submit(_reach_default_index, session)
        pool.submit(
            fetch_pages, requests[0].request.requirements, requests[0].catalog.family, session
        )
        pool.submit(default_wheels, sources, client, "torch")
        for backend in {request.request.backend for request in requests} - {None}:
            pool.submit(index_names, sources, client, str(backend))
        pages = [
            pool.submit(family_wheels, sources, client, *page) for page in _first_pages(requests)
        ]

        def read() -> LiveRequests:
            for page in pages:
                page.result()
            postponed = PostponedWarnings(session.reporter)
            reporters = [postponed, *[SilentReporter()] * (len(requests) - 1)]
            from gpuinstall.learned.live import learned_catalog

            live = []
            for request, reporter in zip(requests, reporters, strict=True):
                wanted = request.catalog, request.machine, request.request, reporter
                live.append(
                    replace(
                        request, catalog=learned_catalog(*wanted, sources=sources, client=client)
                    )
                )
            unreachable = reached.result()
            if unreachable is None:
                for text in (*postponed.warnings, *_losses(requests, live, session)):
                    session.reporter.warn(text)
            return live, unreachable

        yield read


def _losses(
    requests: Iterable[LockRequest], live: Iterable[LockRequest], session: Session
) -> Iterable[str]:
    """Say what a torch index that does not answer would give."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent is None:
        return ()
    losses = dict[str, None]()
    for request, live_request in zip(requests, live, strict=True):
        best, here = request.outcome, live_request.outcome
        if isinstance(best, Rejected) or isinstance(here, Rejected):
            continue
        names = here.choice.build.name, best.choice.build.name
        if names[0] != names[1]:
            losses[
                f"{silent.host} is unreachable, so the build is {names[0]} instead of {names[1]}"
            ] = None
    return losses


def _reach_default_index(session: Session) -> UnreachableError | None:
    """Ask the default index whether it is there, unless uv is to ask nobody; None where it answers.

    uv alone tries for up to a minute. A certificate that we do not trust is left to uv, which may know another
    authority.
    """
    if session.environment.get("UV_OFFLINE"):
        return None
    address = session.default_index
    try:
        if address and address.startswith(("http://", "https://")):
            session.client.head(f"{address}/")
    except UnreachableError as error:
        error.hint = "\n".join(dict.fromkeys((error.hint or "", ways_to_network())))
        return None if error.untrusted else error
    return None


def _first_pages(requests: Sequence[LockRequest]) -> list[tuple[str, str]]:
    """The backends and packages of the pages that a resolution needs first, as far as the backends are given."""
    pages = set()
    for request in requests:
        requirements, backend = request.request.requirements, request.request.backend
        named = {parse_requirement(text).name for text in requirements} | (
            {"triton"} if backend != CPU.tag else set()
        )
        first = FIRST_PAGES if names_programs(requirements) else ("torch",)
        if backend:
            pages |= {(backend, package) for package in (*first, *(named & request.catalog.family))}
    return sorted(pages)
