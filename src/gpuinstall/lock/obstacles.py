"""Who requires what, as uv tells it if versions do not go together."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from gpuinstall.base.text import some

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.programs import ListedProgram

_LONGEST = 240
_PREAMBLE = "No solution found when resolving dependencies; "


def required_torches(account: str) -> list[str]:
    """Return the specifiers of torch that packages require, as uv's account has them."""
    pairs = re.findall(r"(\S+) depends? on torch([=<>!~][^\s{]*)", account)
    return list(
        dict.fromkeys(
            specifier.rstrip(",.") for package, specifier in pairs if package != "the-request"
        )
    )


def who_requires_torch(
    versions: Mapping[str, str], obstacles: Mapping[str, str], programs: Sequence[ListedProgram]
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
    requirements = {}
    for name, version in versions.items():
        requirement = next(_requirements(account, name, version, of="torch"), None)
        if requirement:
            requirements[name] = f"{name} {version} requires {_in_words(requirement)}"
    requested = [program.name for program in programs]
    sentences = [requirements[name] for name in requirements if name in requested]
    if not sentences:
        sentences = list(requirements.values())
    if sentences:
        return some(sentences)
    # Nothing that was requested excludes it: an index may lack what a newer one requires.
    return f"no torch newer than {torch} can be resolved: {shortened(account)}"


def _in_words(requirement: str) -> str:
    """Return a requirement for a sentence, one of a single version as its name and the version."""
    exact = re.fullmatch(r"([\w.-]+)==([^,*]+)", requirement)
    return f"{exact[1]} {exact[2]}" if exact else requirement


def held_back(
    versions: Mapping[str, str],
    obstacles: Mapping[str, str],
    programs: Sequence[ListedProgram],
    beside: Iterable[str] = (),
) -> Iterator[str]:
    """Yield, for each program that is not at its newest, what stands against that.

    Args:
        versions: What was resolved.
        obstacles: uv's account of why a program cannot be newer.
        programs: What was requested beside the family.
        beside: The constraints of torch's own.
    """
    constraints = tuple(beside)
    for program in programs:
        version = versions.get(program.name)
        if version is None or not program.is_newer_than(version):
            continue
        account = obstacles.get(program.name, "")
        requirements = _requirements(account, program.name, str(program.newest))
        # uv counts our own constraints as what a package depends on: what the lock meets stands against nothing.
        requirement = next((text for text in requirements if not _is_met(text, versions)), None)
        own = next((text for text in constraints if text.startswith(program.name)), None)
        if requirement:
            why = f", which requires {requirement}"
        elif own:
            why = f": torch {versions['torch'].partition('+')[0]} requires {own}"
        else:
            why = f": {shortened(account)}" if account else ""
        yield f"{program.name} is {version} instead of {program.newest}{why}"


def shortened(account: str) -> str:
    """Return a long account of uv's, cut."""
    account = account.removeprefix(_PREAMBLE)
    return account if len(account) <= _LONGEST else f"{account[: _LONGEST - 1]}…"


def _requirements(
    account: str,
    name: str,
    version: str,
    of: str = "",
) -> Iterator[str]:
    """Yield what a version of a package depends on by uv's account; with ``of`` that package alone."""
    without_markers = re.sub(r"\{[^}]*\}", "", account)
    subject = rf"((?:(?<![\w.-]){re.escape(name)}(?:[=<>!~]\S*)?\s+)+)depends? on "
    dependency = rf"{re.escape(of) or '[a-z0-9]'}(?:[\w.-]*)[^\s\w-]\S*"
    dependencies = rf"({dependency}(?:\s+and\s+{dependency})*)"
    for match in re.finditer(subject + dependencies, without_markers):
        specifiers = (word.removeprefix(name) for word in match[1].split())
        if any(_covers(specifier, version) for specifier in specifiers):
            for text in re.split(r"\s+and\s+", match[2]):
                # A comma or a full stop belongs to uv's sentence; ==2.7.* ends otherwise.
                yield text.rstrip(",.")


def _is_met(requirement: str, versions: Mapping[str, str]) -> bool:
    """Whether what was resolved meets a requirement."""
    match = re.fullmatch(r"([\w.-]+)(\S*)", requirement)
    if match is None or match[1] not in versions:
        return False
    return _covers(match[2], versions[match[1]])


def _covers(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier.rstrip(",")).contains(
            Version(version),
            prereleases=True,
        )
    except InvalidSpecifier:
        return False
