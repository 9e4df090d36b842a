"""What the sources list today, read for all locks at once, and whether the default index answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.backend import CPU
from gpuinstall.catalog.listing import default_wheels, family_wheels, index_names
from gpuinstall.lock.programs import FIRST_PAGES, fetch_pages, names_programs
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.reporter import SilentReporter
from gpuinstall.web import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from gpuinstall.lock.request import LockRequest
    from gpuinstall.reporter import Reporter
    from gpuinstall.session import Session

AT_ONCE = 32


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


@dataclass(frozen=True)
class LiveIndex:
    """The pages that are needed, on their way; ``reached`` tells whether the default index answers."""

    requests: Sequence[LockRequest]
    session: Session
    pages: Iterable[object]
    reached: Future[UnreachableError | None]

    def read(self) -> tuple[list[LockRequest], UnreachableError | None]:
        """Narrow each catalogue to what the sources list; return with them a default index that does not answer.

        What is to be said of the sources is said once, and not where the default index is unreachable.
        """
        list(self.pages)
        warnings = PostponedWarnings(self.session.reporter)
        reporters = [warnings, *[SilentReporter()] * (len(self.requests) - 1)]
        live = [self._narrowed(*each) for each in zip(self.requests, reporters, strict=True)]
        unreachable = self.reached.result()
        if unreachable is None:
            for text in (*warnings.warnings, *dict.fromkeys(map(self._loss, self.requests, live))):
                if text:
                    self.session.reporter.warn(text)
        return live, unreachable

    def _narrowed(self, request: LockRequest, reporter: Reporter) -> LockRequest:
        from gpuinstall.learned.live import learned_catalog

        session, machine, wanted = self.session, request.machine, request.request
        sources, client = session.sources, session.client
        catalog = learned_catalog(request.catalog, machine, wanted, reporter, sources=sources, client=client)
        return replace(request, catalog=catalog)

    def _loss(self, request: LockRequest, live: LockRequest) -> str | None:
        """Say what a torch index that does not answer would give."""
        silent = self.session.client.unreachable(self.session.sources.torch_index)
        there, here = request.outcome.choice, live.outcome.choice
        if silent is None or there is None or here is None or there.build.name == here.build.name:
            return None
        return (
            f"until {silent.host} can be reached, the newest torch here is {here.build.name} and not {there.build.name}"
        )


@contextmanager
def ask_live_index(requests: Sequence[LockRequest], session: Session) -> Iterator[LiveIndex]:
    """Ask for every page that is known to be needed at once; meanwhile uv looks at its interpreter."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pool.submit(process.run, uv.look(session.python), env=session.environment)
        session.client.prepare()
        reached = pool.submit(_reach_default_index, session)
        pool.submit(fetch_pages, requests[0].request.requirements, requests[0].catalog.family, session)
        pool.submit(default_wheels, session.sources, session.client, "torch")
        for backend in {each.request.backend for each in requests} - {None}:
            pool.submit(index_names, session.sources, session.client, str(backend))
        wheels = partial(family_wheels, session.sources, session.client)
        yield LiveIndex(requests, session, pool.map(wheels, *zip(*_pages(requests), strict=True)), reached)


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
        error.hint = f"{error.hint}; behind a proxy set HTTPS_PROXY, behind a mirror UV_DEFAULT_INDEX"
        return None if error.untrusted else error
    return None


def _pages(requests: Sequence[LockRequest]) -> list[tuple[str, str]]:
    """The backends and packages of the pages that will be needed, as far as the backends are given."""
    wanted = {
        (backend, package)
        for each in requests
        if (backend := each.request.backend)
        for package in _first_pages(each, backend)
    }
    return sorted(wanted)


def _first_pages(request: LockRequest, backend: str) -> set[str]:
    """The members of the family that a resolution meets: torch and what it demands on Linux, and those asked for."""
    requirements = request.request.requirements
    first = FIRST_PAGES if names_programs(requirements) else ("torch",)
    named = {parse_requirement(text).name for text in requirements} | ({"triton"} if backend != CPU.tag else set())
    return {*first, *(named & request.catalog.family)}
