"""The programs that a request names beside torch: what the default index has of them, and which torch they want."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.catalog.pages import SourceRelease, parse_page, parse_sources
from gpuinstall.errors import InstallationError
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog.build import Wheel
    from gpuinstall.lock.target import Target
    from gpuinstall.plan.requirement import Asked
    from gpuinstall.session import Session
    from gpuinstall.web.cache import Page

FIRST_PAGES = ("torch", "torchaudio", "torchvision", "triton")
"""The members of the family that nearly every program leads to."""


@dataclass(frozen=True)
class ListedProgram:
    """A program, the newest wheel of it that fits, and the newest release that there is as source; None: there is none.

    Both are among the versions that are asked for and that no constraint forbids.
    """

    name: str
    wheel: Wheel | None
    source: Version | None

    @property
    def newest(self) -> Version | None:
        """Its newest release."""
        return max((version for version in (self._wheel_version, self.source) if version), default=None)

    @property
    def needs_no_building(self) -> bool:
        """Say whether no source is newer than its wheels."""
        return self._wheel_version is not None and self._wheel_version == self.newest

    def is_newer_than(self, version: str) -> bool:
        """Say whether there is a newer release."""
        return self.newest is not None and self.newest > Version(version.partition("+")[0])

    @property
    def _wheel_version(self) -> Version | None:
        return self.wheel.version if self.wheel else None


def names_programs(requirements: Iterable[str]) -> bool:
    """Say whether something is asked for whose versions the catalogue does not pair with torch's."""
    return any(parse_requirement(text).name not in PAIRED for text in requirements)


def programs_first(requirements: Iterable[str], family: Collection[str]) -> tuple[str, ...]:
    """Put torch's family last: uv decides first what stands first."""

    def rank(text: str) -> int:
        name = parse_requirement(text).name
        return (name in family) + (name in PAIRED)

    return tuple(sorted(requirements, key=rank))


def list_programs(
    requirements: Iterable[str],
    family: Collection[str],
    target: Target,
    python: str,
    session: Session,
    *,
    constraints: Iterable[str] = (),
) -> list[ListedProgram]:
    """Look up what is asked for beside the family, but for what is pinned to one version, in the order of asking."""
    asked, tags = _open_programs(requirements, family), target.tags(python)
    limits = [parse_requirement(text) for text in constraints]
    return side_by_side(partial(_listed, limits=limits, tags=tags, python=python, session=session), asked)


def fetch_pages(requirements: Iterable[str], family: Collection[str], session: Session) -> None:
    """Ask for the pages of the programs, for whoever looks them up later."""
    side_by_side(partial(_page, session=session), _open_programs(requirements, family))


def _open_programs(requirements: Iterable[str], family: Collection[str]) -> list[Asked]:
    return [one for one in map(parse_requirement, requirements) if one.name not in family and not _is_exact(one)]


def _is_exact(asked: Asked) -> bool:
    exact = (one.operator == "==" and "*" not in one.version for one in asked.specifier or ())
    return asked.url is not None or any(exact)


def _listed(asked: Asked, limits: Sequence[Asked], tags: list[Tag], python: str, session: Session) -> ListedProgram:
    page = _page(asked, session)
    if page is None:
        return ListedProgram(asked.name, None, None)
    fitting, wanted = set(tags), [asked, *(limit for limit in limits if limit.name == asked.name)]
    wheels = [
        wheel
        for wheel in parse_page(page.text, page.content_type, page.url)
        if wheel.package == asked.name and not fitting.isdisjoint(wheel.tags) and _suits(wheel, wanted, python)
    ]
    sources = [one for one in parse_sources(page.text, page.content_type, page.url) if _suits(one, wanted, python)]
    return ListedProgram(
        asked.name,
        max(wheels, key=lambda wheel: wheel.version, default=None),
        max((one.version for one in sources), default=None),
    )


def _page(asked: Asked, session: Session) -> Page | None:
    with suppress(InstallationError):
        return session.client.page(f"{session.default_index}/{asked.name}/")
    return None


def _suits(release: Wheel | SourceRelease, wanted: Iterable[Asked], python: str) -> bool:
    """Say whether a release is one that is asked for and is for this Python."""
    if release.version.is_prerelease or not all(one.allows(release.version) for one in wanted):
        return False
    with suppress(ValueError):
        return SpecifierSet(release.requires_python or "").contains(f"{python.removesuffix('t')}.99")
    return True
