"""What a lock is made from: requirements, and the files that they were read from."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason
from gpuinstall.requirements_file import read_requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.plan.requirement import Asked


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling and order; raise UsageError for a malformed one."""
    return tuple(sorted({_spelled(parse_requirement(text)) for text in requirements}))


def is_requirement(text: object) -> bool:
    """Say whether something is a requirement."""
    with suppress(UsageError):
        return isinstance(text, str) and bool(parse_requirement(text))
    return False


def digest(inputs: Iterable[str]) -> str:
    """The digest of requirements, in any order."""
    return hashlib.sha256(json.dumps(sorted(inputs)).encode()).hexdigest()


def recorded(names: Iterable[str], folder: Path) -> dict[str, str]:
    """The digest of what each requirements file asks for, by its path from ``folder``.

    What has no such path (a pipe, a file on another drive) is passed over; raise UsageError for a malformed file.
    """
    kept = (path for path in map(Path, sorted(names)) if path.is_file() and path.absolute().drive == folder.drive)
    return {Path(os.path.relpath(path, folder)).as_posix(): _digest(path) for path in kept}


def moved(files: Mapping[str, str], folder: Path) -> Iterator[Reason]:
    """Say which of the requirements files that were recorded are gone, or ask for something else today."""
    for name, before in files.items():
        if not (folder / name).is_file():
            yield Reason("inputs-gone", f"it was made from {name}, which is not there")
        elif _digest_today(folder / name) != before:
            yield Reason("inputs-changed", f"{name} has changed since it was made")


def _spelled(requirement: Asked) -> str:
    return re.sub(r"^[\w.-]+", requirement.name, requirement.text)


def _digest(path: Path) -> str:
    return digest(plain(read_requirements(path)))


def _digest_today(path: Path) -> str | None:
    try:
        return _digest(path)
    except UsageError:
        return None
