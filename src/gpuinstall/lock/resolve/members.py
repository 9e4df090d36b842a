"""Find wheels of torch-family packages that a lock lacks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.threads import map_concurrently
from gpuinstall.catalog import COMPANIONS, Catalog, Wheel
from gpuinstall.catalog.listing import read_family_wheels
from gpuinstall.environments.guard import FamilyMember
from gpuinstall.lock.file.target import Target, select_best_files
from gpuinstall.plan.companions import Companions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.lock.file.fit import CompatibleLock
    from gpuinstall.sources import Sources
    from gpuinstall.sources.web import Client


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
    *,
    sources: Sources,
    client: Client,
) -> list[FamilyMember]:
    """Return the torch-family packages that a lock lacks.

    If the source of torch does not list a package or did not respond, or if torch is from
    the default index, only a version that the catalog pairs with torch is known.

    Args:
        fit: The lock and its torch.
        catalog: The packages and their versions.
        sources: The package sources.
        client: The HTTP client.
    """
    choice = fit.choice
    build = choice.build
    backend = build.backend.tag
    names = sorted(COMPANIONS - fit.lock.names)
    companions = Companions(tuple(map(Requirement.of, names)), catalog)
    paired = {
        one.name: FamilyMember(one.name, one.pinned)
        for one in companions.create_pins(build, choice.python)
        if one.pinned
    }
    if choice.index is None:
        return list(paired.values())
    target = Target(backend, build.os, build.arch)
    tags = target.tags(choice.python)

    def find_member(name: str) -> FamilyMember:
        wheels: Sequence[Wheel] = ()
        with suppress(InstallationError):
            wheels = read_family_wheels(sources, client, backend, name)
        suitable = select_best_wheels(wheels, backend, tags)
        by_version = {wheel.version.public: wheel for wheel in suitable}
        versions = companions.find_available_versions(build, Requirement.of(name))
        # If the catalog pairs no version with torch, use the latest.
        if versions is None:
            versions = sorted(by_version, key=Version, reverse=True)
            versions = [one for one in versions if not Version(one).is_prerelease]
        for version in filter(by_version.__contains__, versions):
            wheel = by_version[version]
            return FamilyMember(name, str(wheel.version), wheel.url, wheel.sha256)
        return paired.get(name, FamilyMember(name))

    return map_concurrently(find_member, sorted(catalog.family - fit.lock.names))
