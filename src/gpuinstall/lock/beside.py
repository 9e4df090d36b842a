"""The wheels of PyTorch's family that go with the torch of a lock, without being in it: what may come in later."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.catalog.listing import family_wheels, index_names
from gpuinstall.environments.guard import FamilyMember
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.lock.binding import fitting
from gpuinstall.lock.fetch import known_hashes
from gpuinstall.lock.lock import LockedFile
from gpuinstall.lock.resolution import published_hashes
from gpuinstall.lock.target import Target
from gpuinstall.plan.companions import PAIRED, versions
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.catalog import Catalog, Wheel
    from gpuinstall.lock.fit import Fit
    from gpuinstall.session import Session


def members_beside(fit: Fit, catalog: Catalog, session: Session) -> tuple[FamilyMember, ...]:
    """Return every member of the family that a lock does not hold, by the file that goes with its torch.

    One that the source of this torch does not list, or that could not be asked about, has no file. Beside a torch of
    the default index only the versions are known that the catalogue pairs with it; its other members come from there.
    """
    names = sorted(catalog.family - fit.lock.names)
    if fit.choice.index is None:
        paired = ((name, _paired_versions(name, fit, catalog)) for name in names if name in PAIRED)
        return tuple(FamilyMember(name, version=found[0]) for name, found in paired if found)
    wheels = dict(zip(names, _wheels_beside(names, fit, catalog, session), strict=True))
    files = [
        LockedFile(wheel.package, wheel.url, wheel.sha256) for wheel in wheels.values() if wheel
    ]
    hashes = known_hashes(files, published_hashes, session).known
    return tuple(
        FamilyMember(name, str(wheel.version), wheel.url, hashes.get(wheel.url))
        if wheel
        else FamilyMember(name)
        for name, wheel in wheels.items()
    )


def _wheels_beside(
    names: Sequence[str], fit: Fit, catalog: Catalog, session: Session
) -> Iterator[Wheel | None]:
    backend = fit.choice.build.backend.tag
    listed: frozenset[str] = frozenset()
    with suppress(InstallationError):
        listed = index_names(session.sources, session.client, backend)
    # A mirror of plain files, and a folder of them, have no page of names.
    likely = listed & catalog.family if listed and not session.sources.find_links else names
    listing = partial(_listing, session=session, backend=backend)
    pages = dict(zip(likely, side_by_side(listing, likely), strict=True))
    for name in names:
        yield _newest(name, pages.get(name, ()), fit, catalog)


def _listing(name: str, *, session: Session, backend: str) -> tuple[Wheel, ...]:
    with suppress(InstallationError):
        return family_wheels(session.sources, session.client, backend, name)
    return ()


def _newest(name: str, listed: Sequence[Wheel], fit: Fit, catalog: Catalog) -> Wheel | None:
    """Return the wheel for the lock's Python and platform of the version that is paired with torch, else the newest."""
    try:
        target = Target.parse(fit.lock.target)
    except UsageError:
        return None
    wheels = [
        wheel
        for wheel in fitting(listed, target.backend, target.tags(fit.choice.python))
        if wheel.package == name
    ]
    paired = _paired_versions(name, fit, catalog)
    if paired is not None:
        by_version = {wheel.version.public: wheel for wheel in wheels}
        return next((by_version[version] for version in paired if version in by_version), None)
    final = [wheel for wheel in wheels if not wheel.version.is_prerelease]
    return max(final, key=lambda wheel: wheel.version, default=None)


def _paired_versions(name: str, fit: Fit, catalog: Catalog) -> tuple[str, ...] | None:
    """Return the versions of a companion that load beside the lock's torch, the preferred first; None if unknown."""
    return (
        versions(fit.choice.build, parse_requirement(name), catalog)
        if name in PAIRED - {"torch"}
        else None
    )
