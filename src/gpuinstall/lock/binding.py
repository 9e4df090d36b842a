"""Which packages are bound to the sources of PyTorch's builds: what uv is given of them, and what may come in later.

If torch has a source of its own, none of the family is asked for at the default index, whoever requires it: what no
source lists has an empty page. Only what was requested by its name may come from the default index, if no source of
the family lists it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import parse_requirement, requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog import DEFAULT_INDEX
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.listing import (
    default_wheels,
    family_wheels,
    index_names,
    own_names,
)
from gpuinstall.catalog.pages import PageFile, parse_files
from gpuinstall.environments.guard import FamilyMember
from gpuinstall.lock.programs import list_programs, programs_first
from gpuinstall.lock.resolver import ResolverProject
from gpuinstall.lock.target import Target, best_by_tags
from gpuinstall.plan.companions import PAIRED, Companions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog import Build, Catalog, Wheel
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.request.lock_request import LockRequest, VersionPins
    from gpuinstall.sources.session import Session

    Pages = dict[str, tuple[Wheel, ...]]

STRANGERS = 64
"""How many names that the catalogue does not know are looked up on the torch index, which may have its own of them."""


class Binding:
    """What is bound to the sources of some builds of torch, for one request."""

    def __init__(
        self,
        requirements: Sequence[str],
        builds: Sequence[Build],
        request: LockRequest,
        session: Session,
    ) -> None:
        """Ask the torch index for the names that it has.

        Args:
            requirements: What uv is to resolve.
            builds: The builds of torch, the best first.
            request: What they were chosen for.
            session: The sources and the clients of the run.
        """
        self.backends = tuple(dict.fromkeys(build.backend.tag for build in builds))
        """Their tags, the best first."""
        self.has_own_source = any(build.source is not DEFAULT_INDEX for build in builds)
        """Whether not everything comes from the default index."""
        self._requirements = requirements
        self._builds = builds
        self._request = request
        self._session = session
        self._listed = frozenset[str]()
        if self.has_own_source:
            self._listed = self._listed.union(
                *side_by_side(self._own_names, self.backends)
            )
        self.names = request.catalog.family | self._listed
        """The names that are bound."""

    def project(self, pins: VersionPins) -> ResolverProject:
        """Return what uv is given, with the pages of the best builds."""
        request, session = self._request, self._session
        python = request.choice.python
        names = self.names.union(load_extensions().unclaimed, request.files)
        programs = list_programs(request, session)
        with_wheels = {program.name for program in programs if program.has_wheel}
        return ResolverProject(
            requirements=(
                *programs_first(self._requirements, self.names),
                *request.libraries,
            ),
            python=python,
            target=request.target,
            pages={**self._pages_of_sources(), **self.pages(self.backends[0])},
            pins=pins,
            folder_projects=request.folder_projects,
            folder=session.folder,
            wheels_only=names | (session.sources.only_binary - {":all:"}) | with_wheels,
            sources=session.sources,
        )

    def _pages_of_sources(self) -> dict[str, tuple[PageFile, ...]]:
        """Return the files of each package that a file takes from one index: from there it comes, whoever requires it.

        Raises:
            InstallationError: The index of a package that is requested does not answer.
        """
        session, sources = self._session, self._session.sources
        requested = requirement_names(self._requirements)
        pages = {}
        for name in sources.package_indexes.keys() - self.names:
            ask = session.page_of if name in requested else session.known_page
            page = ask(name)
            pages[name] = parse_files(page, sources.newest_day) if page else ()
        return pages

    def pages(self, preferred: str) -> Pages:
        """Return the wheels that each name may come from, without the names that the default index may serve.

        Args:
            preferred: The backend whose builds come before better ones.
        """
        extensions = {**load_extensions().unclaimed, **self._request.files}
        sources = self._session.sources
        # Also if all builds are those of the default index, what uv asks before it may have none of the family.
        if not self.has_own_source and not sources.has_further_indexes:
            return extensions
        builds = sorted(self._builds, key=lambda build: build.backend.tag != preferred)
        requested = requirement_names(self._requirements)
        may_have_wheels = self.names | {"torch"}
        if self._listed and not sources.find_links:
            may_have_wheels &= self._listed | requested | {"torch"}
        names = sorted(may_have_wheels)
        answers = side_by_side(lambda name: self._wheels(name, builds), names)
        wheels = dict(zip(names, answers, strict=True))
        from_default_index = requested - self._listed - {"torch"}
        pages: Pages = {}
        for name in sorted(self.names):
            listed = wheels.get(name, ())
            if listed or name not in from_default_index:
                pages[name] = listed
        return {**pages, **extensions}

    def _wheels(
        self,
        package: str,
        builds: Iterable[Build],
    ) -> tuple[Wheel, ...]:
        """Return the wheels of these builds of torch; of another package one of each version, the best build's first."""
        session, client = self._session, self._session.client
        sources = replace(session.sources, default_index=session.default_index)
        tags = self._request.target.tags(self._request.choice.python)

        @cache
        def listed(
            backend: str,
            *,
            is_of_default_index: bool,
        ) -> tuple[Wheel, ...]:
            if is_of_default_index:
                wheels = default_wheels(sources, client, package)
            else:
                wheels = family_wheels(sources, client, backend, package)
            return fitting(wheels, backend, tags)

        wheels: dict[str, Wheel] = {}
        for build in builds:
            # What torch's own index lists beside the paired comes from there, whoever else has that name.
            is_of_default_index = build.source is DEFAULT_INDEX and (
                package in PAIRED or not self.has_own_source
            )
            for wheel in listed(
                build.backend.tag, is_of_default_index=is_of_default_index
            ):
                version = wheel.version.public
                if package != "torch" or version == str(build.torch):
                    wheels.setdefault(version, wheel)
        return tuple(wheels.values())

    def _own_names(self, backend: str) -> frozenset[str]:
        """Return the names of the family, and of packages of its own, that the torch index lists for a backend."""
        session, catalog = self._session, self._request.catalog
        names = index_names(session.sources, session.client, backend)
        listed = names & catalog.family
        strangers = [
            name for name in sorted(names - catalog.family) if not self._is_copied(name)
        ]
        if strangers:
            strangers = strangers[:STRANGERS]
            listed |= own_names(session.sources, session.client, backend, strangers)
        return listed

    def _is_copied(self, name: str) -> bool:
        """Whether the torch index has copies of the default index's files of a package."""
        return any(
            fnmatchcase(name, pattern) for pattern in self._request.catalog.copied
        )


def fitting(
    wheels: Iterable[Wheel],
    backend: str,
    tags: Sequence[Tag],
) -> tuple[Wheel, ...]:
    """Return of each version the wheel of ``backend`` that fits best; earlier sources come first."""
    suitable = set(tags)
    candidates = [
        wheel
        for wheel in wheels
        if wheel.backend in {backend, None} and not wheel.tags.isdisjoint(suitable)
    ]
    best = best_by_tags(
        candidates, tags, lambda wheel: (str(wheel.version), wheel.tags)
    )
    return tuple(best)


def members_beside(
    fit: Fit,
    catalog: Catalog,
    session: Session,
) -> list[FamilyMember]:
    """Return every member of the family that a lock does not hold, by the file that goes with its torch.

    One that the source of this torch does not list, or that could not be asked about, has no file. Beside a torch of
    the default index only the versions are known that the catalogue pairs with it; its other members come from there.
    """
    build = fit.choice.build
    backend = build.backend.tag
    companions = Companions({}, catalog)
    # The catalogue knows of torch what is in the lock, and of the others that it pairs which versions load beside it.
    paired = {
        name: companions.loading(build, parse_requirement(name))
        for name in PAIRED - fit.lock.names - {"torch"}
    }
    if fit.choice.index is None:
        return [
            FamilyMember(name, version=versions[0])
            for name, versions in sorted(paired.items())
            if versions
        ]
    names = sorted(catalog.family - fit.lock.names)
    sources, client = session.sources, session.client
    listed = frozenset(names)
    with suppress(InstallationError):
        on_index = index_names(sources, client, backend)
        # A mirror of plain files, and a folder of them, have no page of names.
        if on_index and not sources.find_links:
            listed &= on_index
    tags = Target(backend, build.os, build.arch).tags(fit.choice.python)

    def member(name: str) -> FamilyMember:
        wheels: Sequence[Wheel] = ()
        with suppress(InstallationError):
            if name in listed:
                wheels = family_wheels(sources, client, backend, name)
        by_version = {
            wheel.version.public: wheel for wheel in fitting(wheels, backend, tags)
        }
        # The version that is paired with torch, else the newest.
        versions = paired.get(name)
        if versions is None:
            versions = sorted(by_version, key=Version, reverse=True)
            versions = [one for one in versions if not Version(one).is_prerelease]
        for version in filter(by_version.__contains__, versions):
            wheel = by_version[version]
            return FamilyMember(name, str(wheel.version), wheel.url, wheel.sha256)
        return FamilyMember(name)

    return side_by_side(member, names)
