"""What the default index says of a package that the resolver could not have: its newest version, its likely name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from gpuinstall.base.values import dataclass
from gpuinstall.catalog import authored, load_catalog
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.pages import parse_page, parse_sources
from gpuinstall.lock.uv_failure import version_not_found

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from packaging.version import Version

    from gpuinstall.base.requirement import ParsedRequirement
    from gpuinstall.lock.uv_failure import Conflict
    from gpuinstall.sources.session import Session

LEAST_LIKENESS = 0.8
"""How alike a mistyped name and its suggestion are: ``transfomers`` and ``transformers`` are at 0.96,
``rich`` and ``torch`` at 0.67, ``transfomers`` and ``xformers`` at 0.74."""


@dataclass(frozen=True)
class PackageNames:
    """Answers about packages, each by one request to the package's page; none is made offline."""

    session: Session
    names: frozenset[str] = frozenset()
    """The names that the folder itself has: requested or locked."""

    from_elsewhere: Collection[str] = ()
    """The packages that come from another index than the default one."""

    def newest(self, package: str) -> str | None:
        """Return the newest release of a package; None if there is none, or no index can be asked."""
        versions = self._versions(package)
        releases = [version for version in versions if not version.is_prerelease]
        if not versions:
            return None
        newest = max(releases or versions)
        return str(newest)

    def missing_version(self, requirement: ParsedRequirement) -> Conflict | None:
        """Return that no version of a package meets a requirement; None if one does, or it is not known."""
        name = requirement.name
        specifier = requirement.specifier
        newest = self.newest(name)
        if newest is None or specifier is None:
            return None
        for version in self._versions(name):
            if specifier.contains(version, prereleases=True):
                return None
        return version_not_found(name, f"{name}{specifier}", newest)

    def _versions(self, package: str) -> list[Version]:
        if self.session.environment.get("UV_OFFLINE") or package in self.from_elsewhere:
            return []
        page = self.session.known_page(package)
        if page is None:
            return []
        versions = [wheel.version for wheel in parse_page(page)]
        versions += [source.version for source in parse_sources(page, package)]
        return versions

    def likely(self, mistyped: str) -> str | None:
        """Return the name that was probably meant, if the index has a package of that name."""
        names = known_names(self.names) - {mistyped}
        nearest = get_close_matches(mistyped, names, 1, LEAST_LIKENESS)
        for name in nearest:
            if name in self.from_elsewhere:
                return name
            if self.newest(name):
                return name
        return None


def known_names(names: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of packages in the catalogue, and further ones."""
    names_in_conda = authored.read_data("conda_names.toml")["wheels"]
    common = [wheel or name for name, wheel in names_in_conda.items()]
    family = load_catalog().family
    extensions = load_extensions().rows
    return family.union(extensions, common, names)
