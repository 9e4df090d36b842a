"""The programs that a request names beside torch: what the default index has of them, and which torch they want."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.catalog.pages import SourceRelease, misnamed_versions, parse_page, parse_sources
from gpuinstall.errors import InstallationError
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import Asked, parse_requirement, requirement_names
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.target import Target
    from gpuinstall.session import Session
    from gpuinstall.web.client import Page

_EARLY = re.compile(r"\d(a|b|rc|\.dev)\d")
FIRST_PAGES = ("torch", "torchaudio", "torchvision", "triton")
"""The members of the family that nearly every program leads to."""


class ListedProgram(NamedTuple):
    """A program, its newest release that has a wheel that fits, and its newest as source; None: there is none.

    Both are among the versions that are asked for and that no constraint forbids.
    """

    name: str
    wheel: Version | None
    source: Version | None

    @property
    def newest(self) -> Version | None:
        """Its newest release."""
        return max(filter(None, (self.wheel, self.source)), default=None)

    @property
    def needs_no_building(self) -> bool:
        """Say whether no source is newer than its wheels."""
        return self.wheel is not None and self.wheel == self.newest

    def is_newer_than(self, version: str) -> bool:
        """Say whether there is a newer release."""
        return self.newest is not None and self.newest > Version(version.partition("+")[0])


def names_programs(requirements: Iterable[str]) -> bool:
    """Say whether something is asked for whose versions the catalogue does not pair with torch's."""
    return not requirement_names(requirements) <= PAIRED


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
    limits, tags = [parse_requirement(text) for text in constraints], set(target.tags(python))

    @cache  # a page of 4,000 files has a dozen of them
    def allows_python(specifier: str) -> bool:
        with suppress(ValueError):
            return SpecifierSet(specifier).contains(f"{python.removesuffix('t')}.99")
        return True

    def suits(release: Wheel | SourceRelease, allowed: Iterable[Asked]) -> bool:
        if release.version.is_prerelease or not all(one.allows(release.version) for one in allowed):
            return False
        return allows_python(release.requires_python or "")

    def listed(program: Asked) -> ListedProgram:
        page, name = _page(program, session), program.name
        if page is None:
            return ListedProgram(name, None, None)
        allowed = [program, *(limit for limit in limits if limit.name == name)]
        wheels = (wheel for wheel in parse_page(page) if wheel.package == name)
        fitting = (
            wheel.version
            for wheel in wheels
            if not tags.isdisjoint(wheel.tags) and suits(wheel, allowed)
        )
        sources = parse_sources(page)
        newest_source = max(
            (source.version for source in sources if suits(source, allowed)), default=None
        )
        return ListedProgram(name, max(fitting, default=None), newest_source)

    return side_by_side(listed, _open_programs(requirements, family))


def fetch_pages(requirements: Iterable[str], family: Collection[str], session: Session) -> None:
    """Ask for the pages of the programs, for whoever looks them up later."""
    side_by_side(partial(_page, session=session), _open_programs(requirements, family))


def misnamed_releases(
    requirements: Iterable[str], family: Collection[str], session: Session
) -> list[str]:
    """Write constraints against the versions of programs whose files have names that are no wheel's: uv takes them.

    None names a pre-release, which uv would read as leave to use them.
    """
    pages = [
        (one.name, page)
        for one in _open_programs(requirements, family)
        if (page := _page(one, session))
    ]
    wrong = ((name, misnamed_versions(page)) for name, page in pages)
    return [
        f"{name}!={version}"
        for name, versions in wrong
        for version in sorted(versions)
        if not _EARLY.search(version)
    ]


def _open_programs(requirements: Iterable[str], family: Collection[str]) -> list[Asked]:
    """What is neither of the family, nor by address, nor pinned to one version."""

    def is_pinned(requirement: Asked) -> bool:
        return any(
            one.operator == "==" and "*" not in one.version for one in requirement.specifier or ()
        )

    parsed = [
        requirement
        for requirement in map(parse_requirement, requirements)
        if requirement.url is None
    ]
    return [
        requirement
        for requirement in parsed
        if requirement.name not in family and not is_pinned(requirement)
    ]


def _page(program: Asked, session: Session) -> Page | None:
    with suppress(InstallationError):
        return session.page_of(program.name)
    return None
