"""Decide whose files and programs are trusted.

bootstrap.py has a copy of everything below the first marker. Therefore, this module
uses only the standard library of Python 3.8.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Set

# --- owners: a copy of src/gpuinstall/base/owners.py, written by `make bootstrap` ---


class Exposure(NamedTuple):
    """A part of a path that other users can change."""

    part: Path
    reason: str
    is_refused: bool
    """Whether root refuses the part, because all users can change it."""


def trusted_owners() -> Set[int]:
    """Return the users whose files are trusted: this user and root."""
    # In a user namespace, the host's root has a different user ID.
    return {0, os.getuid(), Path("/").stat().st_uid}


def is_foreign(path: Path, project: Optional[Path] = None) -> bool:
    """Return whether a path or its target belongs to another user.

    Root in a container also trusts the owner of the project, which is a mounted folder.

    Args:
        path: The path of a file, folder, or link.
        project: The project that uses it, if any.
    """
    if os.name != "posix":
        return False
    trusted = trusted_owners()
    if project and os.getuid() == 0 and in_container():
        trusted.add(project.lstat().st_uid)
    owners = {path.lstat().st_uid}
    if os.path.exists(path):
        owners.add(path.stat().st_uid)
    return not owners <= trusted


def is_mine(path: Path) -> bool:
    """Return whether a file, folder, or link belongs to this user."""
    return os.name != "posix" or path.lstat().st_uid == os.getuid()


def is_adoptable(folder: Path, project: Path) -> bool:
    """Return whether a parent folder is trusted, and not world-writable."""
    return not (is_foreign(folder, project) or _is_open(folder.stat()))


def is_shared(folder: Path) -> bool:
    """Return whether others can replace this user's files in a folder."""
    status = folder.stat()
    is_sticky = bool(status.st_mode & stat.S_ISVTX)
    return is_foreign(folder) or (_is_open(status) and not is_sticky)


def owner_of(path: Path) -> str:
    """Return the name of a path's owner, or the number without a name."""
    with suppress(KeyError, NotImplementedError):
        return path.owner()
    return f"uid {path.stat().st_uid}"


def can_start(program: Path) -> bool:
    """Return whether a program on PATH may be started.

    A program in a sticky folder, such as /tmp, must have a trusted owner. In other folders,
    any owner is accepted. If all users can replace programs in a folder, its programs are
    refused only for root on a machine with other users.
    """
    folder = program.parent.stat()
    if not _is_open(folder):
        return True
    if folder.st_mode & stat.S_ISVTX:
        return os.path.lexists(program) and not is_foreign(program)
    return not is_careful()


def exposures(path: Path) -> Iterator[Exposure]:
    """Yield the parts of a path that other users can change.

    A sticky folder is reported only at the end of the path, where other users can create
    files. Only the owner of an entry in a sticky folder can replace the entry.
    """
    if os.name != "posix":
        return
    for part in way_to(path):
        try:
            status = part.lstat()
        except OSError:
            return
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and _is_open(status) and (part == path or not is_sticky):
            is_refused = is_careful() and not is_sticky
            yield Exposure(part, f"everyone can write to {part}", is_refused)
        elif status.st_uid not in trusted_owners():
            yield Exposure(part, f"{part} belongs to {owner_of(part)}", False)


def way_to(path: Path) -> Iterator[Path]:
    """Yield each folder and link that a path leads through, from the root."""
    for part in (*reversed(path.parents), path):
        yield part
        if os.path.islink(part):
            yield from way_to(part.parent / os.readlink(part))


def is_careful() -> bool:
    """Return whether this process is root on a machine with other users."""
    return os.getuid() == 0 and not in_container()


def in_container() -> bool:
    """Return whether this process runs in a container."""
    marks = map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))
    variables = {"container", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER"}
    return any(marks) or bool(variables & os.environ.keys())


def _is_open(status: os.stat_result) -> bool:
    return os.name == "posix" and bool(status.st_mode & stat.S_IWOTH)


# --- end of owners ---
