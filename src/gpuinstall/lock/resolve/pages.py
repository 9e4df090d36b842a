"""Read the index pages of torch's sources.

If torch has its own source, every torch-family package is bound to it: a package that
no source of torch lists has an empty page. A requested torch-family package is from the
default index if no source of torch lists it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import (
    requirement_names,
)
from gpuinstall.base.text import matches
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import DEFAULT_INDEX, PAIRED, Build, Wheel
from gpuinstall.catalog.catalog import WheelSource
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.listing import (
    hosts_package,
    read_default_wheels,
    read_family_wheels,
    read_index_names,
)
from gpuinstall.catalog.pages import (
    PageFile,
    parse_files,
)
from gpuinstall.lock.resolve.members import select_best_wheels
from gpuinstall.lock.resolve.question import Question
from gpuinstall.sources.session import Session

if TYPE_CHECKING:
    from packaging.version import Version

_WheelPages = dict[str, tuple[Wheel, ...]]

MAX_UNKNOWN = 64
"""Maximum number of packages outside the catalog bound to torch's index."""


class TorchPages:
    """The pages of torch's sources for one target, each read once."""

    def __init__(self, question: Question, session: Session) -> None:
        self.question = question
        self.session = session
        builds = question.builds
        self.backends = tuple(dict.fromkeys(build.backend.tag for build in builds))
        """The backend tags of the builds, best first."""
        self.has_own_source = any(build.source is not DEFAULT_INDEX for build in builds)
        """Whether torch has a source other than the default index."""
        self._pages: dict[str, tuple[Wheel, ...]] = {}
        """The pages read so far, by package."""
        self._copied = set[str]()
        """Packages on PyTorch's index with files of the default index."""
        self._is_for_cpu = self.backends == (CPU.tag,)
        self._kept = question.kept
        # The first call of each function reads the pages.
        self.builds = cache(self._read_builds)
        self.pages_of_sources = cache(self._read_pages_of_sources)
        self.listed = cache(self._read_listed)
        self._extensions = {**load_extensions().empty_pages, **question.files}
        self._bindable = cache(self._read_bindable)

    def names(self) -> frozenset[str]:
        """Return the packages that are bound to the sources of torch."""
        self.read(self._needed_packages)
        return self.question.catalog.family.union(self._pages) - self._copied

    def read_pages(self) -> _WheelPages:
        """Return the wheels of each bound package whose page was read.

        The page of a package that no source of torch lists is empty.
        """
        self.read(self._needed_packages)
        bindable = self._bindable()
        unlisted = self.question.catalog.family - bindable if bindable else ()
        return {**dict.fromkeys(unlisted, ()), **self._pages, **self._extensions}

    def find_unread_packages(self) -> frozenset[str]:
        """Return the packages with an unread page of a source of torch."""
        self.read(self._needed_packages)
        return self._bindable().difference(self._pages, self._copied)

    @cached_property
    def _needed_packages(self) -> set[str]:
        """The packages whose pages every resolution needs."""
        question = self.question
        sources = self.session.sources
        # A setting for a package would otherwise apply to its placeholder.
        named = (
            *question.requirements,
            *question.constraints,
            *sources.uv.overrides,
        )
        needed = {
            "torch",
            *requirement_names(named),
            *question.preferences,
        }
        needed.update(sources.addresses.package_indexes)
        if question.target.os == "linux" or self._is_for_cpu:
            needed.add("triton")
        return needed

    def _read_bindable(self) -> frozenset[str]:
        """Return the packages that a source of torch may list."""
        sources = self.session.sources
        # If there is an extra index, uv would query it before the default index.
        if not self.has_own_source and not sources.addresses.has_further_indexes:
            return frozenset()
        family = self.question.catalog.family
        if self._kept:
            names = {wheel.package for wheel in self._kept}
            return family.union(self.listed(), names).difference(self._extensions)
        # Some mirrors list only some of their packages on the root page.
        if {
            "torch",
            "torchvision",
        } <= self.listed() and not sources.addresses.find_links:
            # GPU builds require Triton. For CPU builds, the default index has Triton.
            family &= self.listed() | self.question.requested | {"triton"}
        return family.union(self.listed()).difference(self._extensions)

    def _read_listed(self) -> frozenset[str]:
        """Return the packages that PyTorch's index lists as its own."""
        backends = self.backends if self.has_own_source else ()
        known = {*self.question.preferences, *self.question.moving}
        programs = self.question.programs
        # A new package may be on PyTorch's index.
        if self._kept and known.issuperset(one.name for one in programs if not one.url):
            backends = ()
        names = map_concurrently(self._read_listed_names, backends)
        return frozenset[str]().union(*names)

    def _read_listed_names(self, backend: str) -> frozenset[str]:
        session = self.session
        catalog = self.question.catalog
        # If torch is kept, an old list is enough.
        index = session.sources.addresses.torch_index
        names = read_index_names(
            index, session.client, backend, is_optional=bool(self._kept)
        )
        unknown = names - catalog.family
        for pattern in catalog.copied:
            unknown -= {name for name in unknown if matches(name, pattern)}
        return names & catalog.family | {*sorted(unknown)[:MAX_UNKNOWN]}

    def read(self, names: Iterable[str]) -> None:
        """Read the index pages of packages that are bound to one index."""
        bound = self._bindable().intersection(names)
        unread = sorted(bound.difference(self._pages, self._copied))
        answers = map_concurrently(self._read_page, unread)
        for name, wheels in zip(unread, answers, strict=True):
            if wheels is None:
                self._copied.add(name)
            else:
                self._pages[name] = wheels

    def _read_page(self, name: str) -> tuple[Wheel, ...] | None:
        """Return a package's wheels, or None if it may be from any index."""
        session = self.session
        sources = session.find_listed_sources()
        if self._kept:
            kept = self._read_wheels(name)
            if not kept and name not in {"torch", "triton"}:
                raise InstallationError("torch-kept", f"{name} is not locked")
            return kept
        if name not in self.question.catalog.family:
            index = sources.addresses.torch_index
            is_own = partial(hosts_package, index, session.client, name)
            return self._read_wheels(name) if any(map(is_own, self.backends)) else None
        listed = self._read_wheels(name)
        is_requested = name in self.question.requested - {"torch"}
        # No CPU build requires Triton; programs use it from the default index.
        is_program = is_requested or (name == "triton" and self._is_for_cpu)
        if listed or name in self.listed() or not is_program:
            return listed
        # uv would query the extra indexes first.
        if sources.addresses.extra_indexes:
            return read_default_wheels(sources, session.client, name)
        return None

    def _read_pages_of_sources(self) -> dict[str, tuple[PageFile, ...]]:
        """Return the files of packages that a project binds to one index.

        Raises:
            InstallationError: The index of a requested package does not respond.
        """
        session = self.session
        sources = self.session.sources
        pages = {}
        for name in sources.addresses.package_indexes.keys() - self.names():
            is_requested = name in self.question.requested
            ask = session.find_page if is_requested else session.find_page_if_reachable
            page = ask(name)
            if page:
                pages[name] = parse_files(page, sources.uv.find_last_day(name))
            else:
                pages[name] = ()
        return pages

    def _read_builds(self) -> dict[str, Build]:
        """Return the builds by their torch version for uv, best first."""
        builds: dict[str, Build] = {}
        torches = self.read_pages().get("torch")
        listed = {str(wheel.version) for wheel in torches or ()}
        for build in self.question.builds:
            version = str(build.torch)
            labeled = f"{version}+{build.backend}"
            if build.source is not DEFAULT_INDEX and labeled in listed:
                version = labeled
            if torches is None or version in listed:
                builds.setdefault(version, build)
        return builds

    def read_pages_for_build(self, build: Build) -> _WheelPages:
        """Return the pages, with the files from one build's own source."""
        own_pages = {}
        for name, wheels in self.read_pages().items():
            own: dict[Version, Wheel] = {}
            if any(wheel.version.local is None for wheel in wheels):
                listed = self._read_wheels(name, [build])
                own = {wheel.version: wheel for wheel in listed}
            own_pages[name] = tuple(own.get(one.version, one) for one in wheels)
        return own_pages

    def _read_wheels(
        self,
        package: str,
        builds: Sequence[Build] = (),
    ) -> tuple[Wheel, ...]:
        """Return one wheel per version from the sources of the builds."""
        session = self.session
        sources = session.find_listed_sources()
        wheels: dict[str, Wheel] = {}
        # A companion has one file per backend, for all torch versions.
        torches: dict[tuple[str, WheelSource], set[str]] = {}
        for build in builds or self.question.builds:
            key = build.backend.tag, build.source
            torches.setdefault(key, set()).add(str(build.torch))
        for (backend, source), versions in torches.items():
            # Use torch's index, not the default index, for its other packages.
            is_of_default_index = source is DEFAULT_INDEX and (
                package in PAIRED or not self.has_own_source
            )
            if self._kept:
                listed = tuple(one for one in self._kept if one.package == package)
            elif is_of_default_index:
                listed = read_default_wheels(sources, session.client, package)
            else:
                listed = read_family_wheels(sources, session.client, backend, package)
            for wheel in select_best_wheels(listed, backend, self.question.tags):
                if package != "torch" or wheel.version.public in versions:
                    wheels.setdefault(str(wheel.version), wheel)
        return tuple(wheels.values())

    def find_preferred_labels(
        self, builds: dict[str, Build], selected: str
    ) -> Mapping[str, list[str]]:
        """Return the versions of torch and companions with the best labels.

        uv selects the highest preferred version, and thus the best build of each torch.

        Args:
            builds: The builds of torch that can be selected.
            selected: The label of the previous resolution's torch, which packages
                whose torch the catalog does not list should have, too.
        """
        releases = self.question.catalog.releases
        # The best build of each torch comes last.
        best = {build.torch: version for version, build in reversed(builds.items())}
        labels: dict[tuple[str, str], str] = {}
        for torch, version in best.items():
            label = version.partition("+")[2]
            release = releases.get(torch)
            if release and label:
                for name, companions in release.companions.items():
                    labels |= {(name, one): label for one in companions}
        preferred = {"torch": list(best.values())}
        for name, wheels in self.read_pages().items():
            if name == "torch":
                continue
            by_public: dict[str, str] = {}
            # The wheels of the best build come first.
            for version in [str(wheel.version) for wheel in wheels]:
                public, _, label = version.partition("+")
                if label == labels.get((name, public), selected):
                    by_public[public] = version
                by_public.setdefault(public, version)
            if any("+" in version for version in by_public.values()):
                preferred[name] = list(by_public.values())
        return preferred
