"""A lane: one lock file to write, with its pages and wheels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import (
    Requirement,
    normalize_name,
    parse_specifier,
)
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.listing import find_family_links
from gpuinstall.catalog.pages import SourceRelease, parse_page, parse_sources
from gpuinstall.lock.file.target import select_best_files
from gpuinstall.lock.request.project import RemoteArchives, find_nested_requirements
from gpuinstall.lock.resolve.pages import TorchPages
from gpuinstall.lock.resolve.question import Question
from gpuinstall.lock.uv.fetch import read_remote_archive
from gpuinstall.lock.uv.resolution import check_required_urls
from gpuinstall.sources.provenance import Effect
from gpuinstall.sources.session import Session
from gpuinstall.sources.sources import check_reported
from gpuinstall.wheels.inspector import Inspector
from gpuinstall.wheels.learned.reader import make_reader
from gpuinstall.wheels.learned.row import requirements_of_metadata

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.wheels.compatibility import Compatibility

_LAST_EXTRA = re.compile(r"""[; ]extra *== *["']([^"']*)["'] *\Z""")

NEWEST_GLIBC = "2.40"
"""A glibc version that satisfies every wheel."""


class Lane:
    """A question for one target. Each of its pages and wheels is read once."""

    def __init__(self, question: Question, session: Session) -> None:
        addresses = session.sources.addresses.filter_by_markers(question.markers)
        sources = replace(session.sources, addresses=addresses)
        links = find_family_links(sources, session.client, question.catalog.family)
        addresses = replace(addresses, family_links=links)
        self.question = question
        self.session = replace(session, sources=replace(sources, addresses=addresses))
        self.pages = TorchPages(question, self.session)
        self.reader = make_reader(self.session)
        self.builds = self.pages.builds()
        """The builds by their torch version for uv, best first."""
        self.inspector = Inspector(self.builds, question.gpus, question.markers)
        self.inspected: dict[Wheel, Compatibility] = {}
        # The first call of each function reads the pages.
        self.newest_releases = cache(self._read_newest_releases)
        self.find_releases = cache(self._find_releases)
        self.read_metadata_requirements = cache(self._read_metadata_requirements)

    def find_nested_requirements(self) -> tuple[Requirement, ...]:
        """Return the paths that requested projects require, and check URLs.

        uv expands variables in METADATA, so METADATA of all URLs is checked.

        Raises:
            UsageError: An index would serve a package for which a setting has a URL.
        """
        one, sources = self.question, self.session.sources
        read = partial(
            read_remote_archive,
            texts=self.session.texts,
            client=self.session.client,
            reporter=self.session.reporter,
            folder=self.session.scratch,
        )
        find = partial(
            find_nested_requirements,
            folder=self.session.folder,
            no_sources=sources.uv.no_sources,
            remote=RemoteArchives(read, one.markers),
        )
        requested = [*filter(one.is_applicable, one.requirements)]
        limits = [*filter(one.is_applicable, (*one.constraints, *sources.uv.overrides))]
        for requirement in (*requested, *limits):
            check_reported(sources.addresses, requirement)
        # Limits add no requirements.
        _ = [*find(limits)]
        nested = tuple(dict.fromkeys(find(requested)))
        by_name = {one.name for one in requested if not one.url}
        # As in uv, the URL of one requirement applies to others of the package.
        located = sources.addresses.list_settings(Effect.LOCATED)
        by_name -= {one.package for one in located}
        check_required_urls(dict.fromkeys(by_name, ()), sources.addresses)
        return nested

    def find_allowed_builds(self, wheel: Wheel) -> frozenset[str]:
        """Return the builds of torch that the METADATA of a wheel allows."""
        requirements = self.read_metadata_requirements(wheel)
        return self.inspector.allowed_builds(requirements)

    def find_wheels(self, package: str) -> list[Wheel]:
        """Return the compatible wheels of a package, from its own source."""
        self.pages.read([package])
        wheels = self.pages.read_pages().get(package)
        if wheels is None:
            page = self.session.find_page_if_reachable(package)
            wheels = parse_page(page) if page else ()
        tags = set(self.question.tags)
        return [
            wheel for wheel in wheels if wheel.package == package and tags & wheel.tags
        ]

    def _read_newest_releases(self) -> dict[str, Version | None]:
        """Return the latest allowed release of each requested program.

        The value is None if only uv can determine the release.
        """
        bound = self.pages.names().union(self.question.files)
        family = bound & self.question.catalog.family
        requested = filter(self.question.is_applicable, self.question.requirements)
        names = [
            one.name for one in requested if not one.url and one.name not in family
        ]
        open_names = [name for name in names if name not in bound]
        newest = map_concurrently(self._find_newest_release, open_names)
        return {**dict.fromkeys(names), **dict(zip(open_names, newest, strict=True))}

    def find_source_versions(self, package: str) -> list[str]:
        """Return the versions of a package with an sdist."""
        page = self.session.find_page_if_reachable(package)
        return (
            [str(one.version) for one in parse_sources(page, package)] if page else []
        )

    def _find_newest_release(self, name: str) -> Version | None:
        # Only uv applies dates and resolution modes.
        is_latest = self.session.sources.uv.selects_latest
        page = self.session.find_page_if_reachable(name) if is_latest else None
        if page is None:
            return None
        newest = next(iter(self.find_releases(name)), None)
        for source in parse_sources(page, name):
            # uv does not build a version that has a wheel.
            is_newer = newest is None or source.version > newest
            if is_newer and self._is_allowed(source, self.question.find_limits(name)):
                newest = source.version
        return newest and parse_public_version(newest)

    def _find_releases(self, package: str) -> Mapping[Version, Wheel]:
        """Return the wheels of allowed final releases, latest first."""
        limits = self.question.find_limits(package)
        # If a version has a native and a pure wheel, uv installs the native one.
        installed = select_best_files(
            self.find_wheels(package),
            self.question.tags,
            lambda wheel: str(wheel.version),
        )
        newest_first = sorted(installed, key=lambda wheel: wheel.version, reverse=True)
        return {
            wheel.version: wheel
            for wheel in newest_first
            if self._is_allowed(wheel, limits)
        }

    def _is_allowed(
        self,
        release: Wheel | SourceRelease,
        limits: Sequence[Requirement],
    ) -> bool:
        """Return whether a release is final and the request allows it."""
        version = release.version
        if version.is_prerelease:
            return False
        if not all(limit.allows(version) for limit in limits):
            return False
        with suppress(ValueError):
            specifiers = parse_specifier(release.requires_python or "")
            python = self.question.markers["python_full_version"]
            return specifiers.contains(python)
        return True

    def _read_metadata_requirements(self, wheel: Wheel | None) -> list[Requirement]:
        """Return a wheel's requirements on the target, with requested extras.

        Without a wheel, or if METADATA is unreadable, the result is empty.
        """
        if wheel is None:
            return []
        extras = set[str]()
        for program in self.question.programs:
            if program.name == wheel.package:
                extras.update(program.extras)
        environment = self.question.markers
        with suppress(InstallationError):
            texts = self.reader.metadata(wheel).get_all("Requires-Dist", ())
            needed = [text for text in map(str, texts) if _may_apply(text, extras)]
            requirements = requirements_of_metadata(needed)
            return [one for one in requirements if one.applies_in(environment, extras)]
        return []

    def find_wheel_for_newer_glibc(
        self,
        package: str,
        selected: Version,
        demands: Sequence[Requirement],
    ) -> Wheel | None:
        """Return the wheel of the next release for a newer glibc, if any.

        The wheel of the selected release is returned if its sdist was selected instead.

        Args:
            package: The package.
            selected: Its selected release.
            demands: The requirements of other packages, which allow the next release.
        """
        page = self.session.find_page_if_reachable(package)
        if page is None or package in self.pages.read_pages():
            return None
        target = replace(self.question.target, glibc=NEWEST_GLIBC)
        tags = set(target.tags(self.question.python))
        limits = [*self.question.find_limits(package), *demands]
        compatible = self.find_releases(package)
        is_built = selected not in compatible
        following = [
            wheel
            for wheel in parse_page(page)
            if (wheel.version > selected or (is_built and wheel.version == selected))
            and tags & wheel.tags
            and wheel.version not in compatible
            and self._is_allowed(wheel, limits)
        ]
        return min(following, key=lambda wheel: wheel.version, default=None)


def _may_apply(text: str, extras: set[str]) -> bool:
    """Return whether a requirement may apply, without parsing its marker.

    Some programs have a thousand requirements, most of them for unrequested extras.
    """
    extra = _LAST_EXTRA.search(text)
    return extra is None or " or " in text or normalize_name(extra[1]) in extras
