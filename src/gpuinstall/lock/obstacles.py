"""Who wants the torch that was taken, and what kept a program from being the newest: uv's account, in few words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.lock.programs import ListedProgram
    from gpuinstall.lock.proposal import Proposal

LONGEST = 240
PREAMBLE = "No solution found when resolving dependencies; "
MOST_NAMES = 3


def who_wants(proposal: Proposal, programs: Sequence[ListedProgram]) -> str:
    """Name the packages that go with no newer torch, those that were asked for where there are such."""
    torch, asking = str(proposal.torch), proposal.versions["torch"][1]
    told = proposal.obstacles.get("torch", "")
    refusing = [name for name in asking if any(_needs(told, name, proposal.versions[name][0], "torch"))]
    named = [program.name for program in programs]
    names = [name for name in refusing if name in named] or refusing
    who = [f"{name} {proposal.versions[name][0]}" for name in names[:MOST_NAMES]]
    who += [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    if not who:
        return f"{' and '.join(named[:MOST_NAMES]) or 'what is asked for'} goes with no torch newer than {torch}"
    return f"{_listed(who)} {'want' if len(names) > 1 else 'wants'} torch {torch}"


def held_back(versions: dict[str, str], proposal: Proposal, programs: Sequence[ListedProgram]) -> Iterator[str]:
    """Say of each program that is not at its newest what is against that."""
    for program in programs:
        version = versions.get(program.name)
        if version and program.is_newer_than(version):
            told = proposal.obstacles.get(program.name, "")
            need = next(_needs(told, program.name, str(program.newest)), None)
            why = f", which needs {need}" if need else f": {shortened(told)}" if told else ""
            yield f"{program.name} is {version} and not {program.newest}{why}"


def torches_wanted(told: str) -> list[str]:
    """Find in uv's account which torch the packages want, as specifiers."""
    wanted = re.findall(r"(\S+) depends? on torch([=<>!~][^\s{]*)", told)
    return list(dict.fromkeys(specifier.rstrip(",") for who, specifier in wanted if who != "the-request"))


def shortened(text: str) -> str:
    """Cut a long text of uv's."""
    text = text.removeprefix(PREAMBLE)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _needs(told: str, name: str, version: str, of: str = "") -> Iterator[str]:
    """Find in uv's account what a version of a package depends on, of one package alone where it is named."""
    plain = re.sub(r"\{[^}]*\}", "", told)
    subject = rf"((?:(?<![\w.-]){re.escape(name)}(?:[=<>!~]\S*)?\s+)+)depends? on "
    for match in re.finditer(rf"{subject}({re.escape(of) or '[a-z0-9]'}(?:[\w.-]*)[^\s\w-]\S*)", plain):
        if any(_covers(spec.removeprefix(name), version) for spec in match[1].split()):
            yield match[2].rstrip(",")


def _covers(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier.rstrip(",")).contains(Version(version), prereleases=True)
    except InvalidSpecifier:
        return False


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
