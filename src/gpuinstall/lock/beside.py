"""The wheels of PyTorch's family that go with the torch of a lock, without being in it: what may come in later."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog.listing import family_wheels, index_names
from gpuinstall.environments.guard import FamilyMember
from gpuinstall.lock.binding import fitting
from gpuinstall.lock.target import Target
from gpuinstall.plan.companions import PAIRED, Companions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog import Catalog, Wheel
    from gpuinstall.lock.fit import Fit
    from gpuinstall.sources.session import Session


def members_beside(
    fit: Fit,
    catalog: Catalog,
    session: Session,
) -> tuple[FamilyMember, ...]:
    """Return every member of the family that a lock does not hold, by the file that goes with its torch.

    One that the source of this torch does not list, or that could not be asked about, has no file. Beside a torch of
    the default index only the versions are known that the catalogue pairs with it; its other members come from there.
    """
    names = sorted(catalog.family - fit.lock.names)
    if fit.choice.index is None:
        paired = {name: _paired_versions(name, fit, catalog) for name in names}
        return tuple(
            FamilyMember(name, version=versions[0]) for name, versions in paired.items() if versions
        )
    sources, client = session.sources, session.client
    backend = fit.choice.build.backend.tag
    listed = frozenset(names)
    with suppress(InstallationError):
        on_index = index_names(sources, client, backend)
        # A mirror of plain files, and a folder of them, have no page of names.
        if on_index and not sources.find_links:
            listed &= on_index

    def member(name: str) -> FamilyMember:
        wheel = None
        with suppress(InstallationError):
            if name in listed:
                wheels = family_wheels(sources, client, backend, name)
                wheel = _newest(name, wheels, fit, catalog)
        if wheel is None:
            return FamilyMember(name)
        return FamilyMember(name, str(wheel.version), wheel.url, wheel.sha256)

    return tuple(side_by_side(member, names))


def _newest(
    name: str,
    listed: Sequence[Wheel],
    fit: Fit,
    catalog: Catalog,
) -> Wheel | None:
    """Return the wheel for the lock's Python and platform of the version that is paired with torch, else the newest."""
    try:
        target = Target.parse(fit.lock.target)
    except UsageError:
        return None
    fitting_wheels = fitting(listed, target.backend, target.tags(fit.choice.python))
    wheels = [wheel for wheel in fitting_wheels if wheel.package == name]
    paired = _paired_versions(name, fit, catalog)
    if paired is None:
        final = [wheel for wheel in wheels if not wheel.version.is_prerelease]
        return max(final, key=lambda wheel: wheel.version, default=None)
    by_version = {wheel.version.public: wheel for wheel in wheels}
    return next((by_version[version] for version in paired if version in by_version), None)


def _paired_versions(
    name: str,
    fit: Fit,
    catalog: Catalog,
) -> Sequence[str] | None:
    """Return the versions of a companion that load beside the lock's torch, the preferred first; None if unknown."""
    if name == "torch" or name not in PAIRED:
        return None
    companions = Companions({}, catalog)
    return companions.loading(fit.choice.build, parse_requirement(name))
