"""The programs that a request names beside torch: what the default index has of them, and who requires which torch.

Who requires what is told by uv, if versions do not go together.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import (
    ParsedRequirement,
    parse_requirement,
    requirement_names,
)
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.pages import SourceRelease, parse_page, parse_sources
from gpuinstall.plan.companions import PAIRED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.sources.session import Session

_LONGEST = 240

_PREAMBLE = "No solution found when resolving dependencies; "

_WITH_VERSION = r"[A-Za-z0-9][^\s=<>!~]*[=<>!~]\S*"
_DEPENDENCIES = re.compile(
    rf"(?<!\S)((?:{_WITH_VERSION}\s+)+|\S+\s+)depends? on"
    rf" ({_WITH_VERSION}(?:\s+and\s+{_WITH_VERSION}(?!\S|\s+depend))*)"
)
"""uv's words for versions of a package, and for what they depend on."""


class ListedProgram(NamedTuple):
    """A program with its newest version, of those that are requested and that no constraint forbids."""

    name: str
    newest: Version | None = None
    """Its newest release, as a wheel that fits or as source."""

    has_wheel: bool = False
    """Whether that has a wheel."""

    def is_newer_than(self, version: str) -> bool:
        """Whether there is a newer release."""
        return self.newest is not None and self.newest > Version(
            Version(version).public
        )


def names_programs(requirements: Iterable[str]) -> bool:
    """Whether something is requested whose versions the catalogue does not pair with torch's."""
    return not requirement_names(requirements) <= PAIRED


def programs_first(
    requirements: Iterable[str],
    family: Collection[str],
) -> tuple[str, ...]:
    """Put torch's family last: uv decides first what stands first."""

    def rank(text: str) -> int:
        name = parse_requirement(text).name
        return (name in family) + (name in PAIRED)

    return tuple(sorted(requirements, key=rank))


def list_programs(
    request: LockRequest,
    session: Session,
) -> list[ListedProgram]:
    """Look up what is requested beside the family, but for what is pinned to one version, in that order.

    Args:
        request: What is requested, for which Python and platform.
        session: What the index is asked with.
    """
    choice = request.choice
    tags = set(request.target.tags(choice.python))
    constraints = list(map(parse_requirement, request.pins.constraints))
    names = request.catalog.family.union(load_extensions().unclaimed, request.files)

    def listed(program: ParsedRequirement) -> ListedProgram:
        name = program.name
        page = session.known_page(name)
        # Which of its files a date hides, uv alone decides.
        if page is None or session.sources.is_dated(name):
            return ListedProgram(name)
        wheels = [
            wheel
            for wheel in parse_page(page)
            if wheel.package == name and not tags.isdisjoint(wheel.tags)
        ]
        limits = [program, *[limit for limit in constraints if limit.name == name]]
        newest: Wheel | SourceRelease | None = None
        # Of a version that has a wheel the source does not count.
        releases: list[Wheel | SourceRelease] = [*wheels, *parse_sources(page, name)]
        for release in releases:
            version = release.version
            # What a page of 4,000 files says is looked at only where it may matter.
            if version.is_prerelease or (newest and version <= newest.version):
                continue
            if _allows_python(release, choice.python) and all(
                limit.allows(version) for limit in limits
            ):
                newest = release
        if newest is None:
            return ListedProgram(name)
        return ListedProgram(name, newest.version, isinstance(newest, Wheel))

    return side_by_side(listed, open_programs(request.request.requirements, names))


def _allows_python(
    release: Wheel | SourceRelease,
    python: str,
) -> bool:
    with suppress(ValueError):
        specifiers = SpecifierSet(release.requires_python or "")
        return specifiers.contains(f"{python.removesuffix('t')}.99")
    return True


def open_programs(
    requirements: Iterable[str],
    family: Collection[str],
) -> list[ParsedRequirement]:
    """Return what is neither of the family, nor by address, nor pinned to one version."""
    return [
        requirement
        for requirement in map(parse_requirement, requirements)
        if not (requirement.url or requirement.name in family or requirement.is_exact)
    ]


def torch_requirements(texts: Iterable[str]) -> Iterator[ParsedRequirement]:
    """Yield what METADATA requires of torch."""
    for text in texts:
        with suppress(UsageError):
            requirement = parse_requirement(text)
            if requirement.name == "torch":
                yield requirement


def dependencies_in(
    account: str,
) -> Iterator[tuple[ParsedRequirement, ParsedRequirement]]:
    """Yield which versions of a package depend on what, by uv's account, as far as that names versions."""
    without_markers = re.sub(r"\{[^}]*\}", "", account)
    for subjects, dependencies in _DEPENDENCIES.findall(without_markers):
        pairs = product(subjects.split(), re.split(r"\s+and\s+", dependencies))
        # What is no requirement in uv's words explains nothing.
        with suppress(UsageError):
            for subject, dependency in pairs:
                # A comma or a full stop belongs to uv's sentence; ==2.7.* ends otherwise.
                yield (
                    parse_requirement(subject.rstrip(",")),
                    parse_requirement(dependency.rstrip(",.")),
                )


def required_torches(account: str) -> list[ParsedRequirement]:
    """Return what packages require of torch, by uv's account."""
    torches = [
        dependency
        for subject, dependency in dependencies_in(account)
        if dependency.name == "torch" and subject.name != "the-request"
    ]
    return list(dict.fromkeys(torches))


def who_requires_torch(
    versions: Mapping[str, str],
    obstacles: Mapping[str, str],
    programs: Sequence[ListedProgram],
) -> str:
    """Name the packages that exclude a newer torch, the requested ones first; "" if uv refused none.

    Args:
        versions: What was resolved.
        obstacles: uv's account of why a program, or torch, cannot be newer.
        programs: What was requested beside the family.
    """
    account = obstacles.get("torch", "")
    if not account:
        return ""
    torch = Version(versions["torch"]).public
    sentences = dict[str, str]()
    for subject, dependency in dependencies_in(account):
        name = subject.name
        version = versions.get(name)
        if dependency.name == "torch" and version and subject.allows(version):
            words = f"torch {torch}" if dependency.is_exact else dependency.text
            sentences.setdefault(name, f"{name} {version} requires {words}")
    requested = [program.name for program in programs if program.name in sentences]
    if sentences:
        return some([sentences[name] for name in requested or sentences])
    # Nothing that was requested excludes it: an index may lack what a newer one requires.
    return f"no torch newer than {torch} can be resolved: {shortened(account)}"


def held_back(
    versions: Mapping[str, str],
    obstacles: Mapping[str, str],
    programs: Sequence[ListedProgram],
    beside: Sequence[str] = (),
) -> Iterator[str]:
    """Yield, for each program that is not at its newest, what stands against that.

    Args:
        versions: What was resolved.
        obstacles: uv's account of why a program cannot be newer.
        programs: What was requested beside the family.
        beside: The constraints of torch's own.
    """
    for program in programs:
        name = program.name
        version = versions.get(name)
        if version is None or not program.is_newer_than(version):
            continue
        account = obstacles.get(name, "")
        why = f": {shortened(account)}" if account else ""
        for text in beside:
            if text.startswith(name):
                why = f": torch {versions['torch'].partition('+')[0]} requires {text}"
        for subject, dependency in dependencies_in(account):
            if subject.name != name or not subject.allows(str(program.newest)):
                continue
            # uv counts our own constraints as what a package depends on: what the lock meets stands against nothing.
            locked = versions.get(dependency.name)
            if locked is None or not dependency.allows(locked):
                why = f", which requires {dependency.text}"
                break
        yield f"{name} is {version} instead of {program.newest}{why}"


def prereleases(versions: Mapping[str, str]) -> frozenset[str]:
    """Return the packages of which uv took a pre-release: it does if no release is left, also for a newer program."""
    return frozenset(
        name for name, version in versions.items() if Version(version).is_prerelease
    )


def shortened(account: str) -> str:
    """Return a long account of uv's, cut."""
    account = account.removeprefix(_PREAMBLE)
    return account if len(account) <= _LONGEST else f"{account[: _LONGEST - 1]}…"
