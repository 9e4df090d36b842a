"""What uv says of a resolution that failed: who wants an older torch, and what kept a program from its newest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.programs import ListedProgram
    from gpuinstall.lock.resolver import ResolvedVersions

_LONGEST = 240
_PREAMBLE = "No solution found when resolving dependencies; "
_MOST_NAMES = 3


def who_wants(versions: ResolvedVersions, obstacles: Mapping[str, str], programs: Sequence[ListedProgram]) -> str:
    """Name the packages that exclude a newer torch, those that were asked for first; "" where uv refused none."""
    torch, dependents = Version(versions["torch"][0]).public, versions["torch"][1]
    account = obstacles.get("torch", "")
    if not account:
        return ""
    refusing = [name for name in dependents if any(_needs(account, name, versions[name][0], "torch"))]
    named = [program.name for program in programs]
    names = [name for name in refusing if name in named] or refusing
    who = [f"{name} {versions[name][0]}" for name in names[:_MOST_NAMES]]
    who += [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    if not who:
        return f"{' and '.join(named[:_MOST_NAMES]) or 'the request'} does not resolve with a torch newer than {torch}"
    listed = " and ".join(filter(None, (", ".join(who[:-1]), who[-1])))
    return f"{listed} {'require' if len(names) > 1 else 'requires'} torch {torch}"


def held_back(
    versions: Mapping[str, str],
    obstacles: Mapping[str, str],
    programs: Sequence[ListedProgram],
    beside: Iterable[str] = (),
) -> Iterator[str]:
    """Say of each program that is not at its newest what is against that; ``beside`` are the constraints of torch."""
    for program in programs:
        version = versions.get(program.name)
        if version and program.is_newer_than(version):
            account = obstacles.get(program.name, "")
            need = next(_needs(account, program.name, str(program.newest)), None)
            own = next((text for text in beside if text.startswith(program.name)), None)
            bound = f"torch {versions['torch'].partition('+')[0]} goes with {own}" if own else shortened(account)
            why = f", which requires {need}" if need else f": {bound}" if bound else ""
            yield f"{program.name} is {version} and not {program.newest}{why}"


def torches_wanted(account: str) -> list[str]:
    """Find in uv's account which torch the packages want, as specifiers."""
    wanted = re.findall(r"(\S+) depends? on torch([=<>!~][^\s{]*)", account)
    return list(dict.fromkeys(specifier.rstrip(",") for who, specifier in wanted if who != "the-request"))


def shortened(text: str) -> str:
    """Cut a long text of uv's."""
    text = text.removeprefix(_PREAMBLE)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _needs(account: str, name: str, version: str, of: str = "") -> Iterator[str]:
    """Find in uv's account what a version of a package depends on, of one package alone where it is named."""
    plain = re.sub(r"\{[^}]*\}", "", account)
    subject = rf"((?:(?<![\w.-]){re.escape(name)}(?:[=<>!~]\S*)?\s+)+)depends? on "
    for match in re.finditer(rf"{subject}({re.escape(of) or '[a-z0-9]'}(?:[\w.-]*)[^\s\w-]\S*)", plain):
        if any(_covers(spec.removeprefix(name), version) for spec in match[1].split()):
            yield match[2].rstrip(",")


def _covers(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier.rstrip(",")).contains(Version(version), prereleases=True)
    except InvalidSpecifier:
        return False
