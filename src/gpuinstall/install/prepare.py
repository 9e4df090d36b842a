"""The lock to install: the one in the folder that fits, as it is, or a new one; its price is said before it is paid."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinstall import uv
from gpuinstall.errors import LockError, NoBuildError
from gpuinstall.facts.pythons import find_python
from gpuinstall.install.options import Prepared
from gpuinstall.install.space import bill, sizes
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fit import Fit, Misfit, best, fits_in, selected
from gpuinstall.lock.plan_and_resolve import plan_and_resolve
from gpuinstall.lock.request import LockRequest, plan_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.install.space import Bill
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session


def prepare(order: InstallOptions, catalog: Catalog, session: Session) -> Prepared:
    """Find or make the lock; every byte that has no hash is fetched here. Raise what choosing or resolving raises."""
    judged = [] if order.upgrade else fits(order, catalog)
    misfits = tuple(each for each in judged if isinstance(each, Misfit))
    found = best(judged)
    if found is None and order.locked:
        if misfits:
            _refuse_early(order, catalog)
        raise _no_lock_fits(order, misfits)
    for misfit in misfits:
        session.reporter.step("Lock", f"{misfit.lock.name} is not taken: {misfit.reason.message}")
    return replace(_as_it_is(found, order, session) if found else _new(order, catalog, session), misfits=misfits)


def fits(order: InstallOptions, catalog: Catalog) -> list[Fit | Misfit]:
    """Judge every lock in the folder, or the one of the target that is meant; raise LockError for an unreadable one."""
    judged = fits_in(order.place.folder, order.machine, order.request, catalog, exact=order.exact)
    return [each for each in judged if order.target in {each.lock.target, None}]


def _no_lock_fits(order: InstallOptions, misfits: tuple[Misfit, ...]) -> LockError:
    if not misfits:
        name = f"pylock.{order.target}.toml" if order.target else "lock"
        return LockError("lock-missing", f"there is no {name} in {order.place.folder}", hint="gpuinstall lock")
    seen = "\n".join(f"{misfit.lock.name}: {misfit.reason.message}" for misfit in misfits)
    return LockError(
        "lock-does-not-fit",
        "no lock here runs on this machine",
        seen=seen,
        hint="gpuinstall lock makes one that does",
        data={"chosen": None, "rejected": [misfit.to_dict() for misfit in misfits]},
    )


def _as_it_is(found: Fit, order: InstallOptions, session: Session) -> Prepared:
    session.reporter.step("Build", _build_line(found.choice))
    files = selected(found.lock, found.choice.python, order.machine)
    price = _announce(order, found.choice, sizes(files, session.client), (), session)
    return Prepared(found.lock, found.plan, found.choice, price.fetch, price.caches)


def _new(order: InstallOptions, catalog: Catalog, session: Session) -> Prepared:
    _refuse_early(order, catalog)
    resolution = plan_and_resolve([LockRequest(order.machine, order.request, catalog)], session)[0]
    plan, choice, hashes = resolution.planned.plan, resolution.planned.choice, resolution.hashes
    session.reporter.step("Build", _build_line(choice))
    for warning in plan.warnings:
        session.reporter.warn(warning.message)
    missing, listed = hashes.missing, dict(_listed_sizes(resolution.document))
    files = [replace(file, sha256=hashes.known.get(file.url)) for file in resolution.files]
    size = {file: head.size or 0 for file, head in missing.items()}
    size |= {file: listed[file.url] for file in files if file.url in listed}
    size |= sizes([file for file in files if file not in size], session.client)
    price = _announce(order, choice, size, missing, session)
    return Prepared(
        build_locks([resolution], [order.request], session, order.files)[0], plan, choice, price.fetch, price.caches
    )


def _listed_sizes(resolved: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The sizes of wheels by address, where their index says them."""
    for package in resolved.get("packages", ()):
        yield from ((entry["url"], entry["size"]) for entry in package.get("wheels", ()) if entry.get("size"))


def _refuse_early(order: InstallOptions, catalog: Catalog) -> None:
    """Raise MachineError before any request where only mending the machine helps."""
    with suppress(NoBuildError):
        plan_lock(LockRequest(order.machine, order.request, catalog))


def _announce(
    order: InstallOptions,
    choice: Choice,
    size: Mapping[LockedFile, int],
    unhashed: Iterable[LockedFile],
    session: Session,
) -> Bill:
    """Say what will be fetched and written where; raise InstallationError where there is no room for it."""
    price = bill(size, unhashed, order.place.venv, uv.cache_folder(session.environment), session.cache)
    python = "" if find_python(choice.python) else f"; uv fetches Python {choice.python} too"
    session.reporter.step("Download", f"{price}{python}")
    price.check()
    return price


def _build_line(choice: Choice) -> str:
    return f"torch {choice.build.name} · Python {choice.python}"
