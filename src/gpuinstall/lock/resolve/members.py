"""Find wheels of torch-family packages that a lock lacks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.threads import map_concurrently
from gpuinstall.catalog import PAIRED, Catalog, Wheel
from gpuinstall.catalog.listing import read_family_wheels
from gpuinstall.environments.guard import FamilyMember
from gpuinstall.lock.file.target import Target, select_best_files
from gpuinstall.plan.companions import Companions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.lock.file.fit import CompatibleLock
    from gpuinstall.sources.session import Session


def select_best_wheels(
    wheels: Iterable[Wheel],
    backend: str,
    tags: Sequence[Tag],
) -> tuple[Wheel, ...]:
    """Return the best wheel of each version, from the first source.

    Args:
        wheels: The wheels of the sources.
        backend: The tag of the backend.
        tags: The tags of the target, the best first.
    """
    suitable = set(tags)
    candidates = [
        wheel
        for wheel in wheels
        if wheel.backend in {backend, None} and not wheel.tags.isdisjoint(suitable)
    ]
    best = select_best_files(candidates, tags, lambda wheel: str(wheel.version))
    return tuple(best)


def find_missing_members(
    fit: CompatibleLock,
    catalog: Catalog,
    session: Session,
) -> list[FamilyMember]:
    """Return the torch-family packages that a lock lacks.

    A package has no file if the source of torch does not list it or did not respond.
    If torch is from the default index, only the versions that the catalog pairs with it
    are known.

    Args:
        fit: The lock and its torch.
        catalog: The packages and their versions.
        session: The sources and their clients.
    """
    build = fit.choice.build
    backend = build.backend.tag
    companions = Companions((), catalog)
    # The catalog has paired versions only for some packages.
    paired = {
        name: companions.find_available_versions(build, Requirement.of(name))
        for name in PAIRED - fit.lock.names - {"torch"}
    }
    if fit.choice.index is None:
        return [
            FamilyMember(name, version=versions[0])
            for name, versions in sorted(paired.items())
            if versions
        ]
    target = Target(backend, build.os, build.arch)
    tags = target.tags(fit.choice.python)

    def find_member(name: str) -> FamilyMember:
        wheels: Sequence[Wheel] = ()
        with suppress(InstallationError):
            wheels = read_family_wheels(session.sources, session.client, backend, name)
        suitable = select_best_wheels(wheels, backend, tags)
        by_version = {wheel.version.public: wheel for wheel in suitable}
        # Without a paired version, use the latest.
        versions = paired.get(name)
        if versions is None:
            versions = sorted(by_version, key=Version, reverse=True)
            versions = [one for one in versions if not Version(one).is_prerelease]
        for version in filter(by_version.__contains__, versions):
            wheel = by_version[version]
            return FamilyMember(name, str(wheel.version), wheel.url, wheel.sha256)
        return FamilyMember(name)

    return map_concurrently(find_member, sorted(catalog.family - fit.lock.names))
