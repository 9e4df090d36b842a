"""Table of facts about packages that their wheels do not contain."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.base.codec import read_object
from gpuinstall.base.values import Value

_Pattern = re.Pattern[str]


def _compile_ascii(text: str) -> _Pattern:
    return re.compile(text, re.ASCII)


def _compile_ignoring_case(text: str) -> _Pattern:
    return re.compile(text, re.IGNORECASE)


def _compile_sonames(names: str) -> _Pattern:
    return re.compile(rf"({names})\.so\.\d+")


_Whole = Annotated[_Pattern, _compile_ascii]
_Specifiers = Annotated[SpecifierSet, partial(SpecifierSet, prereleases=True)]


class Member(NamedTuple):
    """The packages whose compatibility one library determines."""

    package: _Whole
    member: _Whole


class OptionalPart(NamedTuple):
    """Library without which some packages still run."""

    part: Annotated[_Pattern, _compile_ignoring_case]


class Statement(NamedTuple):
    """CUDA version that the vendor of a package documents."""

    since: Mapping[str, int]
    """The CUDA major by the first version with it, newest version first."""
    platforms: _Whole = _compile_ascii(".*")
    """The platforms with GPU code, such as ``linux-x86_64``."""


class Family(NamedTuple):
    """Versions of packages that require a minimum compute capability."""

    package: _Whole
    lowest: str
    versions: _Specifiers = SpecifierSet()


class Clash(NamedTuple):
    """Versions of two packages that conflict, and the reason."""

    package: _Whole
    other: str
    why: str
    versions: _Specifiers = SpecifierSet()
    other_versions: _Specifiers = SpecifierSet()


class Members(Value):
    """The contents of ``members.toml``, with facts about packages.

    Patterns in the table match whole names, except in ``optional``.
    """

    members: tuple[Member, ...]
    optional: tuple[OptionalPart, ...]
    runtime: _Whole
    """The packages that contain the CUDA runtime."""
    with_torch: _Whole
    """The packages that belong to a build of torch."""
    compiled_with: _Whole
    """The requirements that indicate GPU code in the requiring package."""
    named_for_gpus: _Whole
    """The names that indicate GPU code."""
    works_on_cpu: _Whole
    """The packages that run on the CPU if their GPU library does not load."""
    for_cpu_alone: _Whole
    """The packages without GPU code."""
    stated: Mapping[str, Statement]
    """The CUDA major versions that vendors document, by package."""
    must_open: Mapping[str, Annotated[_Pattern, _compile_sonames]]
    """The libraries that packages open by name and require."""
    per_cuda: Mapping[str, _Specifiers]
    """The packages with one library for each CUDA version.

    The specified versions load the nearest library of the same CUDA major, others only
    the library for torch's CUDA version.
    """
    pairs: tuple[Clash, ...]
    families: tuple[Family, ...]

    def find_conflicts(self, versions: Mapping[str, str]) -> Iterator[str]:
        """Yield conflicts between packages that METADATA does not declare."""
        for pair in self.pairs:
            for name, version in versions.items():
                match = pair.package.fullmatch(name)
                other = match and match.expand(pair.other)
                if other is None or other not in versions:
                    continue
                other_version = versions[other]
                if version in pair.versions and other_version in pair.other_versions:
                    pairing = f"{name} {version} and {other} {other_version}"
                    yield f"{pairing} conflict: {pair.why}"

    def stated_cuda(self, package: str, version: Version, platform: str) -> int | None:
        """Return the CUDA major that a package's vendor documents, if any."""
        row = self.stated.get(package)
        is_for_gpus = row and row.platforms.fullmatch(platform)
        for first, cuda in row.since.items() if row and is_for_gpus else ():
            if version >= Version(first):
                return cuda
        return None

    def has_minimum(self, package: str) -> bool:
        """Return whether the table has a minimum capability for a package."""
        return any(row.package.fullmatch(package) for row in self.families)

    def lowest_chip(self, package: str, version: Version) -> str | None:
        """Return the lowest compute capability that a version supports."""
        for row in self.families:
            if row.package.fullmatch(package) and version in row.versions:
                return row.lowest
        return None

    def has_library(self, package: str) -> bool:
        """Return whether the table lists a library for a package."""
        return bool(self._libraries_of(package))

    def is_optional(self, package: str, library: str) -> bool:
        """Return whether a package runs without one of its libraries.

        A package whose own name matches an optional library has no optional libraries.
        """
        return self._is_part(library) and not self._is_part(package.replace("-", "_"))

    def _is_part(self, name: str) -> bool:
        return any(row.part.search(name) for row in self.optional)

    def match_libraries(
        self,
        package: str,
        names: Collection[str],
    ) -> list[re.Match[str]]:
        """Return the matches of the libraries that determine compatibility.

        The matches are of one library, or of one for each CUDA version.
        """
        matches = []
        for library in self._libraries_of(package):
            for name in names:
                match = library.fullmatch(name)
                if match:
                    matches.append(match)
        return matches

    def _libraries_of(self, package: str) -> list[_Pattern]:
        return [row.member for row in self.members if row.package.fullmatch(package)]


@cache
def load_members() -> Members:
    """Load ``members.toml``."""
    import tomli

    text = Path(__file__).with_name("members.toml").read_text("utf-8")
    return read_object(Members, tomli.loads(text))
