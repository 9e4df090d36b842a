"""The commands that an installation would run; nothing is run, written or downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import uv
from gpuinstall.catalog.live import live_catalog
from gpuinstall.environments.paths import interpreter
from gpuinstall.facts.pythons import find_python
from gpuinstall.install.ownership import check_ownership, check_place
from gpuinstall.install.prepare import fits
from gpuinstall.install.standing import standing
from gpuinstall.lock.fit import best
from gpuinstall.lock.request import LockRequest, plan_lock

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session


def rehearse(order: InstallOptions, catalog: Catalog, session: Session) -> tuple[Plan, list[list[str]]]:
    """Plan as an installation does and list its commands, none where nothing is left to do."""
    check_place(order.place)
    if not order.replace:
        check_ownership(order.place)
    if (found := standing(order, catalog)) and found.proven:
        return found.prepared.plan, []
    locked = None if order.upgrade else best(fits(order, catalog))
    if locked:
        return locked.plan, _commands(order, locked.choice)
    live = live_catalog(
        catalog, order.machine, order.request, session.reporter, sources=session.sources, client=session.client
    )
    planned = plan_lock(LockRequest(order.machine, order.request, live))
    resolve = uv.compile_lock(session.python, planned.choice.python, planned.target.uv_platform)
    return planned.plan, [resolve, *_commands(order, planned.choice)]


def _commands(order: InstallOptions, choice: Choice) -> list[list[str]]:
    place, python = order.place, find_python(choice.python)
    fetch = [] if python else [uv.fetch_python(choice.python)]
    return [
        *fetch,
        uv.create(python or Path(f"python{choice.python}"), place.staging),
        uv.sync(interpreter(place.staging), place.private_lock),
    ]
