"""What a lock is made from: requirements, the files that they were read from, or a project's own dependencies."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.lock.declaration import read_inputs
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason
from gpuinstall.requirements_file import PROJECT, RequirementsFile, split_group
from gpuinstall.shell import joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping


_MADE_AGAIN = frozenset({"inputs-changed", "other-request", "versions-differ"})
"""The reasons for which a plain ``lock`` makes a lock again, within the versions that it holds."""


def locks_in(folder: Path) -> list[Path]:
    """The locks in a folder, by name."""
    return sorted([*folder.glob("pylock.*.toml"), *folder.glob("pylock.toml")])


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling and order; raise UsageError for a malformed one."""
    return tuple(sorted(spelled(requirements)))


def spelled(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling, each once, in the order of naming; raise UsageError for a malformed one."""
    parsed = map(parse_requirement, requirements)
    return tuple(dict.fromkeys(one.text if one.url else re.sub(r"^[\w.-]+", one.name, one.text) for one in parsed))


def is_requirement(text: object) -> bool:
    """Say whether something is a requirement."""
    with suppress(UsageError):
        return isinstance(text, str) and bool(parse_requirement(text))
    return False


def digest(inputs: Iterable[str]) -> str:
    """The digest of requirements, in any order."""
    return hashlib.sha256(json.dumps(sorted(inputs)).encode()).hexdigest()


def has_place(name: str, folder: Path) -> bool:
    """Say whether a requirements file can be found again from ``folder``: a pipe, or one on another drive, cannot."""
    path = Path(split_group(name)[0])
    return path.is_file() and path.absolute().drive == folder.drive


def lines_of(files: Mapping[str, RequirementsFile], folder: Path) -> dict[str, tuple[str, ...]]:
    """What requirements files and groups ask for, by their paths from ``folder``; ``-c`` stands before constraints."""
    return {Path(os.path.relpath(name, folder)).as_posix(): lines_in(files[name]) for name in sorted(files)}


def changed_inputs(files: Mapping[str, tuple[str, ...]], folder: Path) -> Iterator[Reason]:
    """Say which of the files that were recorded are gone, or ask for something else today.

    The project is read at every run.
    """
    for name, before in ((name, before) for name, before in files.items() if name != PROJECT):
        if not (folder / split_group(name)[0]).is_file():
            yield Reason("inputs-gone", f"it was made from {name}, which no longer exists")
        elif _lines_today(str(folder / name)) != {line.removeprefix("-c ") for line in before}:
            yield Reason("inputs-changed", f"{name} has changed since it was made")


def command_again(codes: Collection[str], files: Iterable[str], requirements: Iterable[str]) -> str:
    """The command after which the locks of a folder are fresh, by the codes of the reasons why one is not.

    ``files`` and ``requirements`` are what they were made from.
    """
    if "inputs-gone" in codes:
        return f"gpuinstall lock --only {joined(requirements)}   # or put the file back"
    upgrade = [] if _MADE_AGAIN.issuperset(codes) else ["--upgrade"]
    read = [word for name in files if name != PROJECT for word in ("-r", name)]
    return joined(["gpuinstall", "lock", *upgrade, *read])


def lines_in(file: RequirementsFile) -> tuple[str, ...]:
    """What a file asks for, line by line; ``-c`` stands before constraints."""
    return (*spelled(file.requirements), *(f"-c {text}" for text in spelled(file.constraints)))


def _lines_today(name: str) -> set[str] | None:
    try:
        file = read_inputs(name)
        return {*spelled(file.requirements), *spelled(file.constraints)}
    except UsageError:
        return None
