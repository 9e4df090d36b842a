"""Results of a search: an answer with its explanation, or a conflict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.values import Value, field
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import Build
from gpuinstall.lock.resolve.facts import Answer, Fact, Facts
from gpuinstall.lock.resolve.question import Question
from gpuinstall.lock.uv.conflict import Conflict, IncompatibleWheel
from gpuinstall.lock.uv.edges import UvLog
from gpuinstall.wheels.compatibility import Compatibility

if TYPE_CHECKING:
    from packaging.version import Version


class Newest(Value):
    """The latest release of a package that the request allows."""

    version: Version

    torch: Requirement | None = None
    """Its requirement of torch, if it allows no build that runs."""

    glibc: str = ""
    """The glibc that its wheel requires, if the target has an older one."""


class Found(Value):
    """An answer, its facts, and the conflicts of newer releases."""

    question: Question
    answer: Answer
    known: Facts

    builds: Mapping[str, Build]
    """The builds of torch by their version for uv, best first."""

    bound: frozenset[str]
    """The packages that are bound to the sources of torch."""

    conflicts: Mapping[str, Conflict] = field(default_factory=dict)
    """uv's conflict for a newer release, by package."""

    newest: Mapping[str, Newest] = field(default_factory=dict)
    """The latest releases of packages that may be older in the answer."""

    inspected: Mapping[str, Compatibility] = field(default_factory=dict)
    """The results of inspecting the wheels of the answer, by package."""

    unread: frozenset[str] = frozenset()
    """The packages that a limit prevented from being inspected."""

    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The libraries that packages need and no package provides."""

    @property
    def facts_here(self) -> list[Fact]:
        """The facts about releases of the answer."""
        return [*self.known.find_facts(self.answer.versions)]

    def find_version(self, package: str) -> Version | None:
        """Return the public version of a package in the answer."""
        version = self.answer.versions.get(package)
        return parse_public_version(version) if version else None

    def find_excluding_demands(
        self, package: str, version: Version
    ) -> Iterator[tuple[str, str, Requirement]]:
        """Yield selected releases that exclude another, with their demands."""
        for name, selected in self.answer.versions.items():
            for one in self.known.log.find_dependencies(name, selected):
                if one.name == package and not one.allows(version):
                    yield name, selected, one

    def is_kept(self, package: str) -> bool:
        """Return whether the answer keeps a package's locked version."""
        kept = self.question.preferences.get(package)
        return bool(kept) and parse_public_version(kept or "") == self.find_version(
            package
        )

    def find_requirers(self, package: str) -> tuple[str, ...]:
        """Return the packages from a requested one to a direct requirer."""
        requested = self.question.requested
        return self.known.log.find_requirers(package, requested, self.answer.versions)


class Refused(Value):
    """uv's conflict for a question, and the facts passed to uv."""

    question: Question
    conflict: Conflict
    known: Facts
    builds: Mapping[str, Build]

    is_listed: bool = False
    """Whether PyTorch's index has the unlisted package for another Python."""

    listed: Mapping[str, tuple[Version, ...]] = field(default_factory=dict)
    """The versions of requested packages in the sources of torch."""

    incompatible: IncompatibleWheel | None = None
    """The release with wheels for the nearest newer glibc or other Python.

    uv's conflict names its package, or its build failed.
    """


SEARCH_ENDED = "search-ended"
"""The code of a refusal because of too many facts."""
TORCH_ADDED = "torch-added"
"""The code of messages about the torch that gpuinstall adds to a request."""


def is_torch_added(
    question: Question, log: UvLog, releases: Iterable[tuple[str, str]]
) -> bool:
    """Return whether neither the request nor a release requires torch.

    Args:
        question: The question.
        log: The dependencies of the releases.
        releases: The packages and versions.
    """
    family = question.catalog.family
    requirements = question.lock_request.request.requirements
    return family.isdisjoint(requirement_names(requirements)) and not any(
        "torch" in requirement_names(log.find_dependencies(name, version))
        for name, version in releases
        if name not in family
    )
