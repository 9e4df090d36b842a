"""Define facts that METADATA omits, answers of uv, and results of a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import Constraint, Requirement, requirement_names
from gpuinstall.base.text import format_count, join_names
from gpuinstall.base.values import Value, asdict, field, replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import DEFAULT_INDEX, Build, Wheel
from gpuinstall.catalog.pages import PageFile, wheels_from_files
from gpuinstall.lock.file.lock import Packages, list_locked_files, list_versions
from gpuinstall.lock.resolve.question import Question
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.edges import UvLog
from gpuinstall.wheels.compatibility import SHARED_FILES, Compatibility

ReleaseKey = tuple[str, str]
"""A package and its version, including the local label."""


class Fact(Value):
    """A fact about one release that its METADATA omits."""

    package: str
    version: str

    why: str = ""
    """The message about the release, or an empty string."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    """The message about each build with which the release is incompatible."""

    builds: frozenset[str] | None = None
    """The compatible builds of torch; None means all builds."""

    requires: tuple[str, ...] = ()
    """The requirements that the METADATA of the release omits."""

    wheel: Wheel | None = None
    """The wheel that contains the METADATA."""

    unread: str = ""
    """The reason why the release was not inspected; empty if it was."""

    code: str = ""
    """The code of the reason why the release runs with no build, if known."""

    found: Compatibility | None = None
    """The result of inspecting the release, if its wheel was inspected."""

    is_about_files: bool = False
    """Whether builds are incompatible only because packages share files."""

    @classmethod
    def excluding(cls, wheel: Wheel, why: str = "", code: str = "") -> Fact:
        """Create the fact that a release is incompatible with every build."""
        version = str(wheel.version)
        none = frozenset[str]()
        return cls(wheel.package, version, why, builds=none, wheel=wheel, code=code)

    @property
    def excludes(self) -> bool:
        """Whether the release is incompatible with every build."""
        return self.builds == frozenset()

    @property
    def is_about_code(self) -> bool:
        """Whether GPU code that was read excludes the release."""
        has_code = self.found is not None and bool(self.found.row.codes)
        return bool(self.code and (self.unread or has_code))

    def rejects(self, build: str) -> bool:
        """Return whether the release is incompatible with a torch build."""
        return self.builds is not None and build not in self.builds

    def explain(self, build: str) -> str:
        """Return why the release is incompatible with a torch build."""
        return self.reasons.get(build, self.why)


def create_wheel_fact(found: Compatibility, torch: str) -> Fact | None:
    """Return the fact that a wheel's METADATA omits, or None.

    Args:
        found: The compatibility of the wheel.
        torch: The selected build of torch, for the reason to report.
    """
    running = found.compatible_builds
    runs_everywhere = len(running) == len(found.verdicts)
    is_declared = runs_everywhere or (found.allowed and found.allowed <= running)
    if is_declared and not found.adds:
        return None
    package, version = found.wheel.package, str(found.wheel.version)
    why = found.reason(torch) or found.why_adds
    message = f"{package} {version} {why.message}" if why else ""
    if found.allowed and running.isdisjoint(found.allowed):
        # The wheel runs with none of the builds that its METADATA allows.
        limits = [one for one in found.row.requirements() if one.name == "torch"]
        if running:
            message += f", and it requires {join_names([one.text for one in limits])}"
        running = frozenset()
    rejected = {build: found.rejects(build) for build in found.verdicts}
    reasons = {build: one for build, one in rejected.items() if one}
    return Fact(
        package,
        version,
        message,
        {build: f"{package} {version} {one.message}" for build, one in reasons.items()},
        None if runs_everywhere else running,
        found.adds,
        found.wheel,
        code=found.unusable.code if found.unusable else "",
        found=found,
        is_about_files={one.code for one in reasons.values()} == {SHARED_FILES},
    )


class Facts(Value):
    """Accumulated facts for one target; ``|`` returns the union."""

    facts: Mapping[ReleaseKey, Fact] = field(default_factory=dict)

    requirements: tuple[Requirement, ...] = ()
    """Added requirements: paths, build tools, undeclared dependencies."""

    torch_constraints: tuple[tuple[Version, Constraint], ...] = ()
    """Constraints that the METADATA of torch releases omits."""

    files: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    """The prebuilt file of each extension that a package requires."""

    unbuildable: Mapping[str, InstallationError] = field(default_factory=dict)
    """Failed builds of packages that another build of torch may not need."""

    before_torch: tuple[str, ...] = ()
    """Dependencies that uv decides before torch, because of their CUDA."""

    after_torch: frozenset[str] = frozenset()
    """Dependencies that caused a conflict when decided before torch."""

    linked: frozenset[str] = frozenset()
    """The dependencies with libraries that other packages are linked to."""

    log: UvLog = UvLog()
    """The dependencies of all releases that uv tried."""

    def __or__(self, other: Facts) -> Facts:
        union = dict[str, Any]()
        for name, known in asdict(self).items():
            more = getattr(other, name)
            match known:
                case tuple():
                    union[name] = tuple(dict.fromkeys(known + more))
                case frozenset() | UvLog():
                    union[name] = known | more
                case _:
                    union[name] = {**known, **more, **known}
        for release, fact in other.facts.items():
            if fact.excludes and not union["facts"][release].excludes:
                union["facts"][release] = fact
        return Facts(**union)

    @classmethod
    def from_facts(cls, facts: Iterable[Fact | None]) -> Facts:
        """Create a collection of facts about releases."""
        return cls({(one.package, one.version): one for one in facts if one})

    @property
    def facts_for_uv(self) -> tuple[object, ...]:
        """The facts passed to uv. If unchanged, the answer ends."""
        return (
            self.facts,
            self.requirements,
            self.torch_constraints,
            self.files,
            self.unbuildable,
            self.decided_first,
        )

    @property
    def decided_first(self) -> tuple[str, ...]:
        """The dependencies that uv decides before torch."""
        return tuple(one for one in self.before_torch if one not in self.after_torch)

    def without_shared_files(self) -> Facts:
        """Return a copy without the facts about packages that share files."""
        facts = self.facts.items()
        return replace(
            self, facts={key: one for key, one in facts if not one.is_about_files}
        )

    @property
    def is_empty(self) -> bool:
        """Whether no fact would be added to the request for uv."""
        return not (self.facts or self.torch_constraints)

    def find_package_facts(self, package: str) -> Iterator[Fact]:
        """Yield the known facts about one package."""
        return (fact for fact in self.facts.values() if fact.package == package)

    def find_excluded_versions(self, package: str) -> frozenset[str]:
        """Return the versions of a package that facts exclude."""
        facts = self.find_package_facts(package)
        return frozenset(fact.version for fact in facts if fact.excludes)

    def find_facts(self, versions: Mapping[str, str]) -> Iterator[Fact]:
        """Yield the facts about selected releases."""
        return filter(None, map(self.facts.get, versions.items()))

    def rejects(self, versions: Mapping[str, str], build: str) -> bool:
        """Return whether a selected release does not run with a build."""
        facts = self.find_facts(versions)
        return any(not fact.excludes and fact.rejects(build) for fact in facts)

    def format_unread_releases(self, package: str, above: Version | None = None) -> str:
        """Return how many releases were not inspected, with a reason."""
        facts = [*self.find_package_facts(package)]
        # A part that lacks the same code as a whole release is enough.
        if any(fact.is_about_code and not fact.unread for fact in facts):
            facts = [fact for fact in facts if not fact.code]
        facts = [
            fact
            for fact in facts
            if fact.unread and (above is None or Version(fact.version) > above)
        ]
        if not facts:
            return ""
        count = format_count(len(facts), "release")
        return f" ({count} not inspected: {facts[-1].unread})"


class Answer(Value):
    """uv's answer, without the virtual packages."""

    packages: Packages

    missing_extras: Sequence[tuple[str, str, str]]
    """The packages, their versions, and their missing requested extras."""

    build: Build

    torch: str
    """The version of torch, with the local label of the selected build."""

    dropped: frozenset[str]
    """The packages whose optional pins uv dropped."""

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each resolved package."""
        versions = list_versions(self.packages).items()
        return {name: version for name, version in versions if version}

    @cached_property
    def wheels(self) -> tuple[Wheel, ...]:
        """The wheels in the answer."""
        files = list_locked_files(self.packages)
        links = [
            PageFile(file.url, file.name, file.sha256, size=file.size) for file in files
        ]
        return wheels_from_files(links, None, DEFAULT_INDEX)


class Newest(Value):
    """The latest release of a package that the request allows."""

    version: Version

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

    is_listed: bool = False
    """Whether PyTorch's index has the unlisted package for another Python."""

    glibc: str = ""
    """The newer glibc of the wheels of a package without others."""


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
