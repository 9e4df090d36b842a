"""An environment that already is what is ordered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.contents import installed
from gpuinstall.environments.marker import fingerprint, read_marker
from gpuinstall.environments.paths import interpreter
from gpuinstall.install.options import Prepared
from gpuinstall.install.ownership import own_lock
from gpuinstall.install.prepare import fits
from gpuinstall.lock.fit import Misfit, best, fit

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.environments.marker import Marker
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.lock.lock import Lock


@dataclass(frozen=True)
class Standing:
    """The environment's own lock with its plan and last verdict; ``proven`` says that nothing is left to do."""

    prepared: Prepared
    verdict: dict[str, Any]
    proven: bool


def standing(order: InstallOptions, catalog: Catalog) -> Standing | None:
    """Compare the environment with the order; None where it has to be built."""
    lock = None if order.upgrade else intact(order.place)
    marker = read_marker(order.place.venv)
    if lock is None or marker is None:
        return None
    judged = fits(order, catalog)
    if not order.locked and not any(each.lock.name == lock.name for each in judged):
        judged.append(fit(lock, order.machine, order.request, catalog))
    found = best(judged)
    if found is None or found.lock.sha256 != lock.sha256:
        return None
    misfits = tuple(each for each in judged if isinstance(each, Misfit))
    return Standing(
        Prepared(lock, found.plan, found.choice, misfits=misfits), marker.verdict, _is_proven(marker, order)
    )


def intact(place: EnvironmentPaths) -> Lock | None:
    """The lock of an environment that holds exactly its packages; None for any other."""
    lock = own_lock(place.venv)
    if lock is None or not interpreter(place.venv).exists():
        return None
    return lock if installed(place.venv).keys() == lock.versions.keys() else None


def _is_proven(marker: Marker, order: InstallOptions) -> bool:
    if order.verify:
        return False
    if order.here is None:
        return True
    return marker.proven and marker.machine == fingerprint(order.here)
