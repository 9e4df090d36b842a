"""The lock to install, as it is or new, and what it costs: said and checked before it is paid."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomli

from gpuinstall.facts.pythons import find_python
from gpuinstall.install.space import bill, is_cached, sizes
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fit import Fit, selected
from gpuinstall.lock.plan_and_resolve import plan_and_resolve
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.source_builds import check_builds, check_wheels, source_builds, this_site

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.install.space import Bill
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.source_builds import BuildSite, SourceBuild
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session


@dataclass(frozen=True)
class PricedLock:
    """A lock with its plan, and what it costs: None where nothing is to be fetched or built."""

    found: Fit
    bill: Bill | None = None


def price_lock(found: Fit, options: InstallOptions, session: Session) -> PricedLock:
    """Say what a lock that is there costs; raise InstallationError where there is no room for it."""
    _say_build(found.choice, session)
    builds, site = builds_of(found, options.machine, session)
    if session.only_binary:
        check_wheels(builds)
    check_builds(builds, site, session.reporter, here=True)
    if unserved := found.lock.unserved:
        session.reporter.warn(f"{found.lock.name} takes {', '.join(unserved)} from files of this machine")
    files = selected(found.lock, found.choice.python, options.machine)
    return PricedLock(found, _announce(files, {}, found.choice.python, venv=options.paths.venv, session=session))


def builds_of(found: Fit, machine: Machine, session: Session) -> tuple[tuple[SourceBuild, ...], BuildSite]:
    """What an installation of a lock builds, and where."""
    site = this_site(found.choice.build.backend.tag, found.lock.versions, machine, session.environment)
    return source_builds(tomli.loads(found.lock.text)), site


def resolve_lock(options: InstallOptions, catalog: Catalog, session: Session) -> PricedLock:
    """Make a lock; every byte that has no hash is fetched here. Raise what choosing or resolving raises."""
    resolution, price = price_resolution(options, catalog, session)
    planned = resolution.planned
    lock = build_locks([resolution], [options.request], session, options.files, options.paths.folder)[0]
    return PricedLock(Fit(lock, planned.plan, planned.choice), price)


def price_resolution(options: InstallOptions, catalog: Catalog, session: Session) -> tuple[Resolution, Bill]:
    """Choose, resolve, and say what that costs; fetch none of it. Raise what choosing or resolving raises."""
    resolution = plan_and_resolve([LockRequest(options.machine, options.request, catalog)], session)[0]
    choice, hashes = resolution.planned.choice, resolution.hashes
    _say_build(choice, session)
    for remark in resolution.planned.remarks:
        session.reporter.step("Build", remark)
    for warning in resolution.planned.plan.warnings:
        session.reporter.warn(warning.message)
    files = [replace(file, sha256=hashes.known.get(file.url)) for file in resolution.files]
    listed = {file.url: head.size or 0 for file, head in hashes.missing.items()} | dict(
        _listed_sizes(resolution.document)
    )
    return resolution, _announce(files, listed, choice.python, venv=options.paths.venv, session=session)


def _say_build(choice: Choice, session: Session) -> None:
    session.reporter.step("Build", f"torch {choice.build.name} · Python {choice.python}")


def _listed_sizes(resolved: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The sizes of wheels by address, where their index says them."""
    for package in resolved.get("packages", ()):
        yield from ((entry["url"], entry["size"]) for entry in package.get("wheels", ()) if entry.get("size"))


def _announce(
    files: Sequence[LockedFile],
    listed: Mapping[str, int],
    python: str,
    *,
    venv: Path,
    session: Session,
) -> Bill:
    """Say what will be fetched and written where; raise InstallationError where there is no room for it."""
    cached = {file for file in files if is_cached(file, session.uv_cache, session.cache)}
    size = sizes(files, listed, cached, session)
    price = bill(size, cached, venv, uv_cache=session.uv_cache, cache=session.cache.folder)
    fetched = "" if find_python(python) else f"; uv fetches Python {python} too"
    session.reporter.step("Download", f"{price}{fetched}")
    price.check()
    return price
