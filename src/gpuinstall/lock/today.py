"""What the sources list today, read for all locks at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.catalog.live import live_catalog
from gpuinstall.lock.alignment import side_by_side
from gpuinstall.lock.draft import expected
from gpuinstall.lock.reach import silence
from gpuinstall.reporter import SilentReporter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.lock.request import LockRequest
    from gpuinstall.reporter import Reporter
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError


class Postponed(SilentReporter):
    """Keeps warnings until it is known whether they are true."""

    def __init__(self) -> None:
        self._warnings: list[str] = []

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self._warnings.append(text)

    def say(self, reporter: Reporter) -> None:
        """Say what was kept."""
        for text in self._warnings:
            reporter.warn(text)


def today(aims: Sequence[LockRequest], session: Session) -> tuple[list[LockRequest], UnreachableError | None]:
    """Narrow each aim's catalogue to what the sources list; return with it a default index that does not answer.

    Every page that is known to be needed is asked for at once, and meanwhile uv looks at its interpreter. What is to
    be said of the sources is said once, and not where the default index is silent.
    """
    postponed = Postponed()
    with ThreadPoolExecutor() as meanwhile:
        meanwhile.submit(process.run, uv.look(session.python), env=session.environment)
        asked = meanwhile.submit(silence, session)
        side_by_side([partial(session.listed, *page) for page in _pages(aims)])
        narrowed = [_narrowed(aim, session, postponed if aim is aims[0] else SilentReporter()) for aim in aims]
    silent = asked.result()
    if silent is None:
        postponed.say(session.reporter)
    return narrowed, silent


def _narrowed(aim: LockRequest, session: Session, reporter: Reporter) -> LockRequest:
    found = live_catalog(
        aim.catalog, aim.machine, aim.request, reporter, sources=session.sources, client=session.client
    )
    return replace(aim, catalog=found)


def _pages(aims: Sequence[LockRequest]) -> list[tuple[str, str]]:
    """The backends and packages of the pages that the aims will need, as far as their backends are given."""
    wanted = {
        (aim.request.backend, package)
        for aim in aims
        if aim.request.backend
        for package in ("torch", *expected(aim.request.requirements, aim.request.backend, aim.catalog.family))
    }
    return sorted(wanted)
