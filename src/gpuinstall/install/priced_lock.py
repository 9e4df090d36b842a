"""The lock to install, there already or only resolved, and what it costs: known before anything is paid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomli

from gpuinstall.facts.pythons import find_python
from gpuinstall.files import check_cache
from gpuinstall.install.space import bill, is_cached, sizes
from gpuinstall.lock.compare import compare_versions
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fit import Fit, selected
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.resolution import Resolution
from gpuinstall.lock.source_builds import check_builds, check_wheels, source_builds, this_site
from gpuinstall.lock.strangers import check_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.install.space import Bill
    from gpuinstall.lock.compare import VersionChange
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.source_builds import BuildSite, SourceBuild
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session


@dataclass(frozen=True)
class PricedLock:
    """What is to be installed: a lock that is there, or a resolution that a lock is yet to be made of.

    ``changes`` are those of the environment, ``was_empty`` says that there is none; ``bill`` is None where nothing is
    built.
    """

    of: Fit | Resolution
    changes: tuple[VersionChange, ...] = ()
    was_empty: bool = False
    bill: Bill | None = None

    @property
    def plan(self) -> Plan:
        """The plan that it carries out."""
        return self.of.plan

    @property
    def choice(self) -> Choice:
        """The build that it holds."""
        return self.of.choice

    def said(self) -> Iterator[tuple[str, str]]:
        """What is told of it before it is carried out, line by line with the label of each."""
        if self.bill is None:
            return
        yield "Build", f"torch {self.choice.build.name} · Python {self.choice.python}"
        if isinstance(self.of, Resolution):
            yield from (("Build", remark) for remark in self.of.remarks)
        if self.was_empty:
            yield "Changes", f"+ {len(self.changes)} packages"
        else:
            said = list(map(str, self.changes)) or ["none, the same versions"]
            yield from (("" if position else "Changes", each) for position, each in enumerate(said))
        fetched = "" if find_python(self.choice.python) else f"; uv fetches Python {self.choice.python} too"
        yield "Download", f"{self.bill}{fetched}"

    def made(self, options: InstallOptions, session: Session) -> Fit:
        """Have the lock; where a resolution has files without a hash, all that is to be installed is fetched here."""
        if isinstance(self.of, Fit):
            return self.of
        missing = self.bill.missing if self.bill else {}
        also = {file: size or None for file, size in missing.items() if file.sha256}
        lock = build_locks([self.of], [options.request], session, options.asked, options.paths.folder, also=also)[0]
        return Fit(lock, self.plan)


def price_lock(found: Fit, existing: ExistingEnvironment, options: InstallOptions, session: Session) -> PricedLock:
    """Reckon what a lock that is there costs and changes."""
    builds, site = builds_of(found, options.machine, session)
    if session.only_binary:
        check_wheels(builds)
    check_builds(builds, site, session.reporter, here=True)
    if unserved := found.lock.unserved:
        session.reporter.warn(f"{found.lock.name} takes {', '.join(unserved)} from files of this machine")
    files = selected(found.lock, found.choice.python, options.machine)
    if not (options.wheels or session.environment.get("UV_OFFLINE")):
        check_hosts(found.lock, files, found.choice.build.backend.tag, session)
    price = _bill(files, {}, options, session)
    changes = compare_versions(existing.packages, found.lock.held)
    return PricedLock(found, changes, existing.is_empty, price)


def resolve_lock(
    existing: ExistingEnvironment, options: InstallOptions, catalog: Catalog, session: Session
) -> PricedLock:
    """Resolve a new lock, and reckon what it costs and changes. Raise what choosing or resolving raises.

    Versions that are locked stay unless they are to move.
    """
    request = LockRequest(options.machine, options.request, catalog)
    held = [existing.held_by] if existing.held_by and not options.upgrade else []
    resolution = resolve_locks([request], session, held=held, moving=options.moving if held else ())[0]
    hashes = resolution.hashes
    for warning in resolution.plan.warnings:
        session.reporter.warn(warning.message)
    files = [replace(file, sha256=hashes.known.get(file.url)) for file in resolution.files]
    listed = {file.url: head.size or 0 for file, head in hashes.missing.items()}
    listed |= dict(_listed_sizes(resolution.document))
    price = _bill(files, listed, options, session)
    changes = compare_versions(existing.packages, resolution.held)
    return PricedLock(resolution, changes, existing.is_empty, price)


def builds_of(found: Fit, machine: Machine, session: Session) -> tuple[tuple[SourceBuild, ...], BuildSite]:
    """What an installation of a lock builds, and where."""
    site = this_site(found.choice.build.backend.tag, found.lock.versions, machine, session.environment)
    return source_builds(tomli.loads(found.lock.text)), site


def _listed_sizes(resolved: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The sizes of wheels by address, where their index says them."""
    for package in resolved.get("packages", ()):
        yield from ((entry["url"], entry["size"]) for entry in package.get("wheels", ()) if entry.get("size"))


def _bill(
    files: Sequence[LockedFile],
    listed: Mapping[str, int],
    options: InstallOptions,
    session: Session,
) -> Bill:
    """Reckon what will be fetched and written where; raise InstallationError for a cache that is not to be trusted."""
    check_cache(session.uv_cache, session.reporter)
    cached = {file for file in files if is_cached(file, session.uv_cache, session.cache)}
    size = sizes(files, listed, cached, session)
    return bill(size, cached, options.paths.venv, uv_cache=session.uv_cache, cache=session.cache.folder)
