"""What the default index says of a package that the resolver could not have: its newest version, its likely name."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gpuinstall.catalog import authored, load_catalog
from gpuinstall.catalog.pages import parse_page, parse_sources
from gpuinstall.errors import InstallationError
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.lock.uv_failure import version_not_found

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from packaging.version import Version

    from gpuinstall.lock.uv_failure import Conflict
    from gpuinstall.plan.requirement import Asked
    from gpuinstall.session import Session

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
        """Return the newest release of a package; None if there is none, or nobody can be asked."""
        versions = self._versions(package)
        releases = [version for version in versions if not version.is_prerelease]
        return str(max(releases or versions)) if versions else None

    def missing_version(self, requirement: Asked) -> Conflict | None:
        """Return that no version of a package meets a requirement; None if one does, or nobody knows."""
        specifier, newest = requirement.specifier, self.newest(requirement.name)
        if newest is None or specifier is None:
            return None
        versions = self._versions(requirement.name)
        if any(specifier.contains(version, prereleases=True) for version in versions):
            return None
        return version_not_found(requirement.name, f"{requirement.name}{specifier}", newest)

    def _versions(self, package: str) -> list[Version]:
        address = self.session.default_index
        is_offline = bool(self.session.environment.get("UV_OFFLINE"))
        if address is None or package in self.from_elsewhere or is_offline:
            return []
        with suppress(InstallationError):
            page = self.session.client.page(f"{address}/{package}/")
            if page is None:
                return []
            versions = [wheel.version for wheel in parse_page(page)]
            sources = parse_sources(page)
            return [*versions, *(source.version for source in sources)]
        return []

    def likely(self, mistyped: str) -> str | None:
        """Return the name that was probably meant, if the index has a package of that name."""
        names = known_names(self.names) - {mistyped}
        nearest = get_close_matches(mistyped, names, 1, LEAST_LIKENESS)
        if not nearest:
            return None
        return nearest[0] if nearest[0] in self.from_elsewhere or self.newest(nearest[0]) else None


def known_names(names: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of packages in the catalogue, and further ones."""
    wheels = authored.read_data("conda_names.toml")["wheels"]
    common = {wheel or name for name, wheel in wheels.items()}
    return frozenset({*load_catalog().family, *load_extensions().rows, *common, *names})
