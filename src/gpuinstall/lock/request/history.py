"""Update and compare the request that lock files record."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from gpuinstall.base.advice import make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import ANY_TORCH, FOLDER_REQUEST, Request
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    normalize_name,
    parse_requirement,
    remove_duplicates,
    requirement_names,
)
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.records import was_created_here
from gpuinstall.lock.file.folder import FolderLocks, LockFile, read_lock_file
from gpuinstall.lock.request.declaration import PROJECT_FILES
from gpuinstall.sources.requirements_file import RequirementsFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuinstall.lock.file.lock import Lock

_INPUTS = r"(?ms)^inputs = \[(.*?)\]$"
_REVISION = r"(?m)^request-revision = (\d{1,9})$"


def update_request(
    request: Request,
    files: Mapping[str, RequirementsFile],
    words: Iterable[Requirement] = (),
    further: Mapping[str, RequirementsFile] = MappingProxyType({}),
) -> Request:
    """Update a recorded request with the current lines of its files.

    Each package has one requirement. A manually added line replaces a file's line,
    unless the file's line is new since the last lock.

    Args:
        request: The recorded request.
        files: The current contents of files, by path.
        words: Lines from the command line to add.
        further: Files to add.
    """
    today = {name: file.lines for name, file in files.items() if file.lines}
    added = {name: file.lines for name, file in further.items()}
    before = set(chain.from_iterable(request.files.values()))
    hand = _group_by_name(find_unfiled_requirements(request))
    of_today = chain.from_iterable(today.values())
    new = [line for line in of_today if line not in before]
    for line in chain(new, *added.values()):
        hand.pop(_requirement_key(line), None)
    hand |= _group_by_name(words)
    others = {
        name: lines
        for name, lines in request.files.items()
        if name not in PROJECT_FILES and name not in files
    }
    all_files = others | today | added
    of_files = chain.from_iterable(all_files.values())
    lines = [line for line in of_files if _requirement_key(line) not in hand]
    listed = RequirementsFile.from_lines(
        remove_duplicates(chain(lines, *hand.values()))
    )
    return replace(
        request,
        requirements=listed.requirements,
        constraints=listed.constraints,
        files=all_files,
    )


def remove_files(request: Request, names: Collection[str]) -> Request:
    """Remove files and their requirements from a request."""
    files = {name: request.files[name] for name in request.files if name not in names}
    kept = set(chain.from_iterable(files.values()))
    gone = set(chain.from_iterable(request.files.values())) - kept
    return replace(
        request,
        requirements=tuple(one for one in request.requirements if one not in gone),
        constraints=tuple(one for one in request.constraints if one not in gone),
        files=files,
    )


def find_unfiled_requirements(request: Request) -> list[Requirement]:
    """Return the requirements and constraints that are in no file."""
    listed = set(chain.from_iterable(request.files.values()))
    lines = (*request.requirements, *request.constraints)
    return [line for line in lines if line not in listed]


def _group_by_name(lines: Iterable[Requirement]) -> dict[str, list[Requirement]]:
    groups = dict[str, list[Requirement]]()
    for line in lines:
        groups.setdefault(_requirement_key(line), []).append(line)
    return groups


def _requirement_key(line: Requirement) -> str:
    """Return the name of a requirement, or the line of a constraint."""
    return line.line if isinstance(line, Constraint) else line.name


def remove_packages(request: Request, names: Iterable[str]) -> Request:
    """Remove packages from a request.

    Args:
        request: The request. If nothing remains, the result requests torch.
        names: The names of the packages to remove, not necessarily normalized.

    Raises:
        UsageError: A package is not requested, or a file requires it.
    """
    removed = set(map(normalize_name, names))
    for name in sorted(removed):
        _check_removable(name, request)
    requirements = tuple(one for one in request.requirements if one.name not in removed)
    return replace(request, requirements=requirements or (ANY_TORCH,))


def _check_removable(name: str, request: Request) -> None:
    if name == "torch":
        message = "torch cannot be removed from its environment"
        hint = make_command("env list", note="env remove removes an environment")
        raise UsageError("torch-stays", message, hint=hint)
    for file, lines in request.files.items():
        if name in map(_requirement_key, lines):
            message = f"{file} requires {name}"
            fixes = f"Remove it from {file}", make_command("install")
            raise UsageError("requested-elsewhere", message, hint=fixes)
    if name not in requirement_names(request.requirements):
        if not request.requirements:
            message = f"{name} cannot be removed: this folder has no lock file"
            raise UsageError("not-requested", message, hint=make_command("env list"))
        requested = " ".join(map(str, request.requirements))
        message = f"{name} is not in the request: {requested}"
        why = "only requested packages are removed by name"
        raise UsageError("not-requested", message, why=why)


def increment_revision(request: Request, recorded: Request) -> Request:
    """Increment the revision number of a request if the request has changed.

    Args:
        request: The current request. Its sources are not compared.
        recorded: The request that the folder's locks record.
    """
    # The first request in a folder is not a change.
    if not recorded.requirements:
        return replace(request, revision=recorded.revision)
    from gpuinstall.lock.file.lock import Record, compare_requests  # slow to import

    before = Record.from_request(replace(recorded, sources=request.sources))
    changes = compare_requests(before, Record.from_request(request))
    has_other_groups = request.no_groups != recorded.no_groups
    is_changed = bool(changes.requirements or changes.limits or has_other_groups)
    return replace(request, revision=recorded.revision + is_changed)


def combine_recorded_requests(locks: FolderLocks) -> Request:
    """Return the request that the lock files in a folder record.

    If the locks differ, the requests with the latest revision are merged.
    """
    recorded = [
        file.lock.record.to_request(file.path.name)
        if file.lock
        else _recover_request(file)
        for file in locks.files
    ]
    requests = [request for request in recorded if request.requirements]
    # A container image may contain the environment without the folder's locks.
    if locks.own and not requests:
        requests = [locks.own.record.to_request(locks.own.name)]
    revision = max((request.revision for request in requests), default=0)
    newest = [request for request in requests if request.revision == revision]
    files = [request.files.items() for request in newest]
    merged = {
        name: tuple(dict.fromkeys(chain(*(getattr(one, name) for one in newest))))
        for name in ("requirements", "constraints", "sources", "no_groups")
    }
    return replace(
        FOLDER_REQUEST,
        files=dict(chain.from_iterable(files)),
        revision=revision,
        **merged,
    )


def _recover_request(file: LockFile) -> Request:
    """Return the requirements in a malformed file, also of a merge."""
    inputs = "".join(re.findall(_INPUTS, file.text))
    words = re.findall(r'"([^"\n]+)"', inputs)
    revisions = map(int, re.findall(_REVISION, file.text))
    with suppress(UsageError):
        requirements = tuple(map(parse_requirement, words))
        return Request(requirements, revision=max(revisions, default=0))
    return FOLDER_REQUEST


def read_environment_lock(venv: Path) -> Lock | None:
    """Return the lock in an environment, or None if missing or modified."""
    marker = read_marker(venv)
    lock = read_lock_file(venv / marker.lock).lock if marker else None
    is_intact = marker and lock and lock.sha256 == marker.lock_sha256
    return lock if is_intact else None


def was_installed(lock: Lock, venv: Path) -> bool:
    """Return whether this user installed a lock file into an environment."""
    marker = read_marker(venv)
    is_same = marker is not None and marker.lock_sha256 == lock.sha256
    return is_same and was_created_here(venv)
