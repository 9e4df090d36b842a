"""The request of a folder: what its files say, and what was added by hand since, as its locks record it."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import read_document
from gpuinstall.base.request import FOLDERS_OWN, Request
from gpuinstall.base.requirement import (
    canonical,
    normalised,
    parse_requirement,
    requirement_names,
)
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import read_marker
from gpuinstall.lock.request.declaration import PROJECT_FILES, locks_in
from gpuinstall.sources.requirements_file import RequirementsFile, parse_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.lock.file.lock import Lock, Record

_INPUTS = r"(?ms)^inputs = \[(.*?)\]$"


def renewed(
    request: Request,
    files: Mapping[str, RequirementsFile],
    words: Iterable[str] = (),
    further: Mapping[str, RequirementsFile] = MappingProxyType({}),
) -> Request:
    """Return a request as its files have it today, with what is added; beside it stays what was added by hand.

    By name: "torch==2.13" and "torch" are two requests for one package. If a package is named by hand and in a file,
    the line by hand counts, unless that of the file is new since the last lock.

    Args:
        request: As it was recorded.
        files: What files ask for today, in place of what they did, by their paths.
        words: Lines that are added by hand.
        further: Files that are added.
    """
    today = {name: file.lines for name, file in files.items() if file.lines}
    added = {name: file.lines for name, file in further.items()}
    before = set(chain.from_iterable(request.files.values()))
    hand = _by_name(by_hand(request))
    of_today = chain.from_iterable(today.values())
    new = [line for line in of_today if line not in before]
    for line in chain(new, *added.values()):
        hand.pop(_name(line), None)
    hand |= _by_name(words)
    others = {
        name: lines
        for name, lines in request.files.items()
        if name not in PROJECT_FILES and name not in files
    }
    all_files = others | today | added
    of_files = chain.from_iterable(all_files.values())
    lines = [line for line in of_files if _name(line) not in hand]
    listed = parse_lines(chain(lines, *hand.values()))
    return replace(
        request,
        requirements=canonical(listed.requirements),
        constraints=canonical(listed.constraints),
        files=all_files,
    )


def by_hand(request: Request) -> list[str]:
    """Return the lines that no file has."""
    listed = set(chain.from_iterable(request.files.values()))
    file = RequirementsFile.of(Path(), request.requirements, request.constraints)
    return [line for line in file.lines if line not in listed]


def _by_name(lines: Iterable[str]) -> dict[str, list[str]]:
    groups = dict[str, list[str]]()
    for line in lines:
        groups.setdefault(_name(line), []).append(line)
    return groups


def _name(line: str) -> str:
    """Return the name of a requirement; a constraint has one of its own."""
    if line.startswith("-c "):
        return line
    return parse_requirement(line).name


def without(request: Request, names: Iterable[str]) -> Request:
    """Return a request without packages.

    Args:
        request: The request; torch is left if nothing else is.
        names: The packages to take out, in any spelling.

    Raises:
        UsageError: One is not requested, or not by hand.
    """
    removed = set(map(normalised, names))
    for name in sorted(removed):
        _check_removable(name, request)
    requirements = tuple(
        text for text in request.requirements if _name(text) not in removed
    )
    return replace(request, requirements=requirements or ("torch",))


def _check_removable(name: str, request: Request) -> None:
    if name == "torch":
        message = "torch cannot be removed from its environment"
        hint = "gpuinstall env remove   # removes the environment"
        raise UsageError("torch-stays", message, hint=hint)
    for file, lines in request.files.items():
        if name in map(_name, lines):
            hint = f"Remove it from {file}, then install again"
            raise UsageError(
                "requested-elsewhere", f"{file} requires {name}", hint=hint
            )
    if name not in requirement_names(request.requirements):
        requested = " ".join(request.requirements) or "torch"
        message = f"{name} was not requested here; the request is: {requested}"
        why = "dependencies go with the packages that require them"
        raise UsageError("not-requested", message, why=why)


def following(request: Request, recorded: Request) -> Request:
    """Return a request as the successor of the recorded one, whose revision it counts on if it differs.

    Args:
        request: What is requested now.
        recorded: What the locks of the folder were made for.
    """
    before = {*recorded.requirements}, {*recorded.constraints}
    is_same = before == ({*request.requirements}, {*request.constraints})
    # The first request of a folder changes nothing.
    is_new = bool(recorded.requirements) and not is_same
    return replace(request, revision=recorded.revision + is_new)


def other_request(lock: Lock, request: Request) -> str | None:
    """Return in words that a lock was made for other requirements; None if it was not, or does not say for which.

    Args:
        lock: The lock.
        request: The request now.
    """
    inputs = lock.record.inputs
    if not inputs or set(inputs) == set(canonical(request.requirements)):
        return None
    now = " ".join(request.requirements)
    return f"{lock.name} was made for {' '.join(inputs)}, but the request is now {now}"


def recorded_request(folder: Path, own: Lock | None = None) -> Request:
    """Return what the locks of a folder were made for; if they disagree, what those say together that saw the last change.

    Args:
        folder: The folder.
        own: The copy in its environment, which counts if the folder has no lock.
    """
    records = [
        record
        for path in locks_in(folder)
        for record in _records(path)
        if record.inputs
    ]
    # The environment may be all that is left, as in an image that was built from the folder.
    if own and not records:
        records = [own.record]
    revision = max((record.request_revision for record in records), default=0)
    newest = [record for record in records if record.request_revision == revision]
    files = [record.requirements_files.items() for record in newest]
    return replace(
        FOLDERS_OWN,
        requirements=_joined(record.inputs for record in newest),
        constraints=_joined(record.constraints for record in newest),
        sources=_joined(record.sources for record in newest),
        files=dict(chain.from_iterable(files)),
        revision=revision,
    )


def _joined(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(lists)))


def _records(path: Path) -> list[Record]:
    """Return what one lock was made from, of one in conflict both sides; of a damaged one, what its text still says."""
    from gpuinstall.lock.file.lock import Record, parse, sides

    try:
        text = read_document(path, path.parent)
        records = [parse(path.name, side).record for side in sides(text)]
    except (OSError, UnicodeDecodeError):
        return []
    except LockError:
        inputs = "".join(re.findall(_INPUTS, text))
        words = re.findall(r'"([^"\n]+)"', inputs)
        with suppress(UsageError):
            return [Record(inputs=canonical(words))]
        return []
    if len(records) == 1:
        return records
    # Neither side was made for both: what is merged is newer than either.
    revision = max(record.request_revision for record in records) + 1
    return [replace(record, request_revision=revision) for record in records]


def read_own_lock(venv: Path) -> Lock | None:
    """Return the copy of its lock that an environment of ours holds; None if that is gone or another."""
    marker = read_marker(venv)
    if marker is None:
        return None
    from gpuinstall.lock.file.lock import read_lock

    with suppress(LockError):
        lock = read_lock(venv / marker.lock)
        if lock.sha256 == marker.lock_sha256:
            return lock
    return None
