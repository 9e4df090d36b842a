"""The extras that were requested of packages, and those that the versions which were resolved have.

uv goes on without an extra that a version does not have, and what it stands for is missing then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.utils import canonicalize_name
from packaging.version import Version

from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.wheels.learned.reader import listed_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.catalog import Wheel
    from gpuinstall.sources.web import Client

OLDER_VERSIONS = 12
"""How many older versions are asked for their METADATA, of some kB each."""


class MissingExtras(NamedTuple):
    """The requested extras that a version of a package lacks."""

    package: str
    version: str
    requested: frozenset[str]
    missing: frozenset[str]

    def __str__(self) -> str:
        names = " or ".join(sorted(self.missing))
        return f"{self.package} {self.version} has no extra {names}"


def missing_extras(
    requirements: Iterable[str],
    document: Mapping[str, Any],
) -> list[MissingExtras]:
    """Return the requested extras that resolved versions lack, as uv has said of a resolved document."""
    requested = {}
    for text in requirements:
        requirement = parse_requirement(text)
        extras = frozenset(map(str, map(canonicalize_name, requirement.extra_names)))
        requested[requirement.name] = extras
    missing: dict[str, MissingExtras] = {}
    for package, version, extra in document.get(MISSING_EXTRAS, ()):
        # An extra that a dependency names is its authors' affair.
        if extra not in requested.get(package, ()):
            continue
        known = missing.get(package)
        names = known.missing | {extra} if known else frozenset({extra})
        missing[package] = MissingExtras(package, version, requested[package], names)
    return list(missing.values())


def older_with_extras(
    missing: MissingExtras,
    wheels: Iterable[Wheel],
    client: Client,
) -> Version | None:
    """Return the newest of some older versions that has all that was requested; None if none of them has."""
    older: dict[Version, Wheel] = {}
    for wheel in wheels:
        is_older = wheel.version < Version(missing.version)
        if is_older and not wheel.version.is_prerelease:
            older[wheel.version] = wheel
    for version in sorted(older, reverse=True)[:OLDER_VERSIONS]:
        extras = _extras(older[version].url, client)
        if extras is not None and missing.requested <= extras:
            return version
    return None


def _extras(url: str, client: Client) -> frozenset[str] | None:
    metadata = listed_metadata(url, client)
    if metadata is None:
        return None
    names = metadata.get_all("Provides-Extra", ())
    return frozenset(str(canonicalize_name(str(name))) for name in names)
