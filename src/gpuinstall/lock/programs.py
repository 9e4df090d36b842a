"""The programs that a request names beside torch: what the default index has of them, and who requires which torch.

Who requires what is told by uv, if versions do not go together.
"""

from __future__ import annotations

import re
from contextlib import suppress
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
from gpuinstall.catalog.pages import (
    SourceRelease,
    parse_page,
    parse_sources,
)
from gpuinstall.plan.companions import PAIRED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.target import Target
    from gpuinstall.sources.session import Session


_LONGEST = 240

_PREAMBLE = "No solution found when resolving dependencies; "


class ListedProgram(NamedTuple):
    """A program with its newest version, of those that are requested and that no constraint forbids."""

    name: str
    newest: Version | None = None
    """Its newest release, as a wheel that fits or as source."""

    needs_no_building: bool = False
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
    requirements: Iterable[str], family: Collection[str]
) -> tuple[str, ...]:
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
    """Look up what is requested beside the family, but for what is pinned to one version, in that order."""
    limits = list(map(parse_requirement, constraints))
    tags = set(target.tags(python))

    def listed(program: ParsedRequirement) -> ListedProgram:
        name = program.name
        page = session.known_page(name)
        # Which of its files a date hides, uv alone decides.
        if page is None or session.sources.is_dated(name):
            return ListedProgram(name)
        allowed = [program, *[limit for limit in limits if limit.name == name]]
        wheels = [
            wheel
            for wheel in parse_page(page)
            if wheel.package == name and not tags.isdisjoint(wheel.tags)
        ]
        wheel = _newest(wheels, allowed, python)
        source = _newest(parse_sources(page, name), allowed, python)
        newest = max(filter(None, (wheel, source)), default=None)
        return ListedProgram(
            name, newest, needs_no_building=newest is not None and newest == wheel
        )

    return side_by_side(listed, open_programs(requirements, family))


def _newest(
    releases: Iterable[Wheel | SourceRelease],
    allowed: Iterable[ParsedRequirement],
    python: str,
) -> Version | None:
    """Return the newest release for a Python that all requirements allow."""
    newest = None
    for release in releases:
        version = release.version
        # What a page of 4,000 files says is looked at only where it may matter.
        if version.is_prerelease or (newest and version <= newest):
            continue
        if all(one.allows(version) for one in allowed) and _allows_python(
            release, python
        ):
            newest = version
    return newest


def _allows_python(release: Wheel | SourceRelease, python: str) -> bool:
    with suppress(ValueError):
        specifiers = SpecifierSet(release.requires_python or "")
        return specifiers.contains(f"{python.removesuffix('t')}.99")
    return True


def open_programs(
    requirements: Iterable[str], family: Collection[str]
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


def required_torches(account: str) -> list[str]:
    """Return the specifiers of torch that packages require, as uv's account has them."""
    pairs = re.findall(r"(\S+) depends? on torch([=<>!~][^\s{]*)", account)
    return list(
        dict.fromkeys(
            specifier.rstrip(",.")
            for package, specifier in pairs
            if package != "the-request"
        )
    )


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
    for name, version in versions.items():
        for requirement in _requirements(account, name, version):
            if requirement.name == "torch":
                words = f"torch {torch}" if requirement.is_exact else requirement.text
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
        version = versions.get(program.name)
        if version is None or not program.is_newer_than(version):
            continue
        account = obstacles.get(program.name, "")
        why = f": {shortened(account)}" if account else ""
        for text in beside:
            if text.startswith(program.name):
                why = f": torch {versions['torch'].partition('+')[0]} requires {text}"
        for requirement in _requirements(account, program.name, str(program.newest)):
            # uv counts our own constraints as what a package depends on: what the lock meets stands against nothing.
            locked = versions.get(requirement.name)
            if locked is None or not requirement.allows(locked):
                why = f", which requires {requirement.text}"
                break
        yield f"{program.name} is {version} instead of {program.newest}{why}"


def shortened(account: str) -> str:
    """Return a long account of uv's, cut."""
    account = account.removeprefix(_PREAMBLE)
    return account if len(account) <= _LONGEST else f"{account[: _LONGEST - 1]}…"


def _requirements(account: str, name: str, version: str) -> Iterator[ParsedRequirement]:
    """Yield what a version of a package depends on by uv's account, as far as that names versions."""
    without_markers = re.sub(r"\{[^}]*\}", "", account)
    subjects = rf"((?:(?<![\w.-]){re.escape(name)}(?:[=<>!~]\S*)?\s+)+)"
    dependency = r"[a-z0-9][\w.-]*[^\s\w-]\S*"
    dependencies = rf"({dependency}(?:\s+and\s+{dependency})*)"
    for match in re.finditer(rf"{subjects}depends? on {dependencies}", without_markers):
        # What is no requirement in uv's words explains nothing.
        with suppress(UsageError):
            named = [parse_requirement(text.rstrip(",")) for text in match[1].split()]
            if any(subject.allows(version) for subject in named):
                for text in re.split(r"\s+and\s+", match[2]):
                    # A comma or a full stop belongs to uv's sentence; ==2.7.* ends otherwise.
                    yield parse_requirement(text.rstrip(",."))
