"""Whose the files of an environment are.

An installer's files are listed in the RECORD of a package, and Python compiles them. Others come
with the making of an environment, or are gpuinstall's own. Everything else is the user's, and no
command of gpuinstall deletes it. A package that writes where none may, or over another, is told here too.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.files import read_document
from gpuinstall.base.removal import files_below
from gpuinstall.environments.environment import NAME, is_virtual, read_marker
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.packages import (
    InstalledPackage,
    RecordedFile,
    file_size,
    read_packages,
    written_files,
)

_COMMAND = re.compile(r"(bin|Scripts)/[^/]+")
_COMPILED = re.compile(r"(.*/)?__pycache__/[^/]+\.(pyc|nbi|nbc)")
"""What Python and Numba compile of a module, beside it."""

MADE_FILES = (
    r"pyvenv\.cfg|CACHEDIR\.TAG|\.lock|lib64"
    r"|(bin|Scripts)/(activate(\.\w+)?|activate_this\.py|Activate\.ps1|deactivate\.\w+|pydoc\.bat)"
    # A venv of Python 3.14 has a link with the Greek letter too.
    r"|(bin|Scripts)/(python|𝜋thon)w?[\d.]*t?(w?\.exe)?"
    r"|(lib/[^/]+|Lib)/site-packages/_virtualenv\.(py|pth)"
)
"""The paths that venv, virtualenv and uv write when they make an environment, as a pattern."""

_MADE = re.compile(
    rf"{MADE_FILES}|(lib/[^/]+|Lib)/site-packages/\.gpuinstall/.*", re.DOTALL
)
"""Those, and the journal of ``install --into``, which lies among the packages."""
_IGNORE_ALL = re.compile(r"(#.*\n)*\*\n?")
"""The ``.gitignore`` that comes with an environment; one of the user's lists something."""

# Some file systems ignore case.
_OF_THE_ENVIRONMENT = re.compile(
    rf"{MADE_FILES}|gpuinstall\.json|pip\.(conf|ini)|constraints\.txt|pylock\.[^/]*toml",
    re.IGNORECASE,
)
"""What the environment's making writes, and we."""
_RECORD = re.compile(
    r".*/(?:site|dist)-packages/(?P<name>[^/]+\.(?:dist-info|egg-info|egg-link))(?:/.*)?"
)


def is_environment(folder: Path) -> bool:
    """Whether a folder is a virtual environment, whoever made it."""
    return is_virtual(folder) or read_marker(folder) is not None


def user_paths(folder: Path) -> tuple[str, ...]:
    """Return the user's own files and folders in an environment, by their paths in it.

    A folder beside an environment's own is named, and not its files. In a folder that is no environment everything is
    the user's.
    """
    # As text: pathlib takes ten times as long for 17,000 files.
    start = len(f"{folder}{os.sep}")
    paths = {str(file)[start:].replace(os.sep, "/") for file in files_below(folder)}
    owned = _owned_paths(folder, paths) if is_environment(folder) else set()
    shared_folders = {path.partition("/")[0] for path in owned}
    names = set()
    for path in paths - owned:
        first = path.partition("/")[0]
        names.add(path if first in shared_folders else first)
    return tuple(sorted(names))


def recorded_paths(root: Path, folders: Iterable[Path]) -> set[str]:
    """Return the files in an environment that the packages in ``folders`` recorded, by their paths below ``root``."""
    recorded = set[str]()
    for package in read_packages(folders):
        base = package.record.parent.relative_to(root).as_posix()
        for path, row in written_files(package, root).items():
            # Outside the folder of the packages a RECORD could name a file of the user's. Installers
            # write the size of what they put there, virtualenv alone not that of its commands.
            is_command = not row.size and _COMMAND.fullmatch(path)
            is_below = path.startswith(f"{base}/")
            if is_below or is_command or file_size(root / path) == row.size:
                recorded.add(path)
    return recorded


def _owned_paths(venv: Path, paths: Iterable[str]) -> set[str]:
    """Return the paths that an installer, Python, the making of the environment, or gpuinstall wrote."""
    folders = packages_folders(venv)
    known = recorded_paths(venv, folders) | _own_files(venv)
    lost_records = tuple(
        f"{package.record.relative_to(venv).as_posix()}/"
        for package in read_packages(folders)
        if package.is_record_lost
    )
    owned = set[str]()
    for path in paths:
        if (
            path in known
            or _MADE.fullmatch(path)
            or _COMPILED.fullmatch(path)
            or path.startswith(lost_records)
            or (lost_records and (venv / path).lstat().st_nlink > 1)
        ):
            owned.add(path)
    return owned


def _own_files(venv: Path) -> set[str]:
    """Return the files that gpuinstall wrote, and a ``.gitignore`` that came with the environment."""
    own = {name for name in GUARD_FILES if is_own_guard_file(venv / name)}
    marker = read_marker(venv)
    if marker:
        own |= {NAME, marker.lock}
    with suppress(OSError, ValueError):
        if _IGNORE_ALL.fullmatch(read_document(venv / ".gitignore", venv)):
            own.add(".gitignore")
    return own


def misplaced_file(package: InstalledPackage, root: Path) -> str | None:
    """Return, in words, a file of a package that lies where no package may write; None if there is none.

    Args:
        package: The package.
        root: The environment, or the folder in which it was unpacked as it will lie there.
    """
    name = f"{package.name} {package.version}"
    for path, row in written_files(package, root).items():
        if path.startswith("../") or posixpath.isabs(path) or ":" in path:
            return f"{name} names {row.path}, which is outside the environment, as a file of its own"
        if _OF_THE_ENVIRONMENT.fullmatch(path):
            return f"{name} writes {path}, a file of the environment itself"
        record = _RECORD.fullmatch(path)
        if record and record["name"] != package.record.name:
            return f"{name} writes {path}, in the record of another package"
    return None


def overwritten_files(
    packages: Iterable[InstalledPackage], root: Path
) -> dict[tuple[InstalledPackage, ...], list[str]]:
    """Return the files that several packages write with different contents, by the packages that do.

    Args:
        packages: The packages.
        root: The folder that they lie in, laid out as an environment is.
    """
    writers: dict[str, dict[InstalledPackage, RecordedFile]] = defaultdict(dict)
    for package in packages:
        for path, row in written_files(package, root).items():
            writers[path][package] = row
    overwritten: dict[tuple[InstalledPackage, ...], list[str]] = defaultdict(list)
    for path, rows in writers.items():
        # The parts of a namespace have an empty module, or the same, in common.
        if len({(row.digest, row.size) for row in rows.values()}) > 1:
            overwritten[tuple(rows)].append(path)
    return overwritten
