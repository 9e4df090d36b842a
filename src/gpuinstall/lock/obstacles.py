"""Who wants the torch that was taken, and what kept a program from being the newest: the sentences of the plan."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from gpuinstall.lock.programs import ListedProgram, torch_wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.lock.proposal import Proposal
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session

AT_ONCE = 16
LONGEST = 240
MOST_NAMES = 3


def who_wants(resolution: Resolution, proposal: Proposal, programs: Sequence[ListedProgram], session: Session) -> str:
    """Name the packages that do not go with the newest torch, those that were asked for where there are such."""
    newest = resolution.planned.plan.runnable[0].torch
    _, asking = proposal.versions.get("torch", ("", ()))
    named = [program.name for program in programs if program.name in asking]
    urls = {file.package: file.url for file in resolution.files}

    def refuses(name: str) -> bool:
        python = resolution.planned.choice.python
        wanted = torch_wanted(urls[name], resolution.target, python, session) if name in urls else None
        return wanted is not None and not wanted.contains(newest)

    for names in (named, [name for name in asking if name not in named]):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            refusing = [name for name, no in zip(names, pool.map(refuses, names), strict=True) if no]
        if refusing:
            return _wants(refusing, resolution)
    return _wants(named or asking or [program.name for program in programs], resolution)


def held_back(
    resolution: Resolution, proposal: Proposal, programs: Sequence[ListedProgram], session: Session
) -> Iterator[str]:
    """Say of each program that is not at its newest what is against that."""
    for program in programs:
        version = resolution.versions.get(program.name)
        if version and program.is_newer_than(version):
            why = _against(program, resolution, session) or _in_uvs_words(program, proposal)
            yield f"{program.name} is {version} and not {program.newest}{why}"


def shortened(text: str) -> str:
    """Cut a long text."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _wants(names: Sequence[str], resolution: Resolution) -> str:
    who = [f"{name} {resolution.versions.get(name, '')}".strip() for name in names[:MOST_NAMES]]
    who += [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    listed = " and ".join(filter(None, (", ".join(who[:-1]), who[-1]))) if who else "what is asked for"
    return f"{listed} {'want' if len(who) > 1 else 'wants'} torch {resolution.planned.choice.build.torch}"


def _against(program: ListedProgram, resolution: Resolution, session: Session) -> str:
    """Say which torch the newest release wants, where that is not the one that was taken."""
    planned = resolution.planned
    wheel = program.wheel if program.needs_no_building else None
    wanted = torch_wanted(wheel.url, resolution.target, planned.choice.python, session) if wheel else None
    if wanted is None or wanted.contains(planned.choice.build.torch):
        return ""
    runs = any(wanted.contains(build.torch) for build in planned.plan.runnable)
    return f", which wants torch{wanted}{'' if runs else ': that does not run here'}"


def _in_uvs_words(program: ListedProgram, proposal: Proposal) -> str:
    """Find in uv's account what the newest release needs."""
    told = proposal.obstacles.get(program.name, "")
    clause = rf"\b{re.escape(program.name)}(\S*) ((?:depends on|has no|needs) .+?)(?: and |, we can | And because |$)"
    for match in re.finditer(clause, told):
        if program.newest and _covers(match[1], program.newest):
            return f", which {match[2].rstrip(',')}"
    return f": {shortened(told)}" if told else ""


def _covers(specifier: str, version: Version) -> bool:
    try:
        return SpecifierSet(specifier).contains(version)
    except InvalidSpecifier:
        return False
