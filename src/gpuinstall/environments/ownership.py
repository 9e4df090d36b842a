"""Determine which files in an environment belong to its user.

Packages own the files in their RECORD and the compiled modules. Environment tools and
gpuinstall own a few fixed names. All other files are the user's, and gpuinstall does not
delete them. This module also finds packages that write forbidden files.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.environment_paths import WORK, packages_folders
from gpuinstall.base.files import file_sha256, leads_outside, read_document
from gpuinstall.base.removal import iter_files
from gpuinstall.environments.damage import find_intact_files
from gpuinstall.environments.environment import (
    NAME,
    find_modified_scripts,
    is_virtual,
    read_marker,
)
from gpuinstall.environments.guard import find_guard_paths, is_own_guard_file
from gpuinstall.environments.packages import (
    InstalledPackage,
    find_written_files,
    read_packages,
)
from gpuinstall.environments.stamp import STAMP_NAME, read_home

_COMPILED = r"(.*/)?__pycache__/[^/]+\.(pyc|nbi|nbc)"
"""Modules compiled by Python and Numba."""

MADE_FILES = (
    r"pyvenv\.cfg|CACHEDIR\.TAG|\.lock|lib64"
    r"|(bin|Scripts)/(activate(\.\w+)?|activate_this\.py|Activate\.ps1|deactivate\.\w+|pydoc\.bat)"
    # venv in Python 3.14 creates a link with a Greek letter.
    r"|(bin|Scripts)/(python|𝜋thon)w?[\d.]*t?(w?\.exe)?"
    r"|(lib/[^/]+|Lib)/site-packages/_virtualenv\.(py|pth)"
)
"""The files that venv, virtualenv, and uv create."""

_MADE = (
    rf"(?s){MADE_FILES}|(lib/[^/]+|Lib)/site-packages/\.gpuinstall/.*"
    # virtualenv records no hashes of these scripts.
    r"|(bin|Scripts)/(pip|wheel)-?[\d.]*(\.exe)?"
)
"""The files of environment tools and the journal of ``install --into``."""
_IGNORE_ALL = r"(#.*\n)*\*\n?"
"""The ``.gitignore`` of an environment tool. A user's file has more lines."""

# Some file systems ignore case.
_ENVIRONMENT_FILES = (
    rf"(?i){MADE_FILES}|gpuinstall(-stamp)?\.json|pip\.(conf|ini)|constraints\.txt"
    r"|pylock\.[^/]*toml|.*/_gpuinstall\.(py|pth)"
)
"""The files that environment tools and gpuinstall write."""
_RECORD = r".*/(?:site|dist)-packages/(?P<name>[^/]+\.(?:dist-info|egg-info|egg-link))(?:/.*)?"


def is_environment(folder: Path) -> bool:
    """Return whether a folder is a virtual environment, managed or not."""
    return is_virtual(folder) or read_marker(folder) is not None


def find_user_paths(folder: Path) -> list[str]:
    """Return the relative paths that the user added or modified.

    A top-level folder with only user files is returned as one path. If the folder is not
    an environment, all files are the user's.
    """
    # pathlib takes ten times as long as strings for 17,000 files.
    start = len(f"{folder}{os.sep}")
    paths = {str(file)[start:].replace(os.sep, "/") for file in iter_files(folder)}
    paths = {path for path in paths if path.partition("/")[0] != WORK}
    owned = _find_owned_paths(folder, paths) if is_environment(folder) else set()
    shared_folders = {path.partition("/")[0] for path in owned}
    names = set()
    for path in paths - owned:
        first = path.partition("/")[0]
        names.add(path if first in shared_folders else first)
    return sorted(names)


def _find_owned_paths(venv: Path, paths: set[str]) -> set[str]:
    """Return the unmodified paths of packages, tools, and gpuinstall."""
    packages = read_packages(packages_folders(venv))
    known = find_intact_files(packages, venv, paths) | find_own_files(venv)
    known |= find_copied_files(venv)
    lost_records = tuple(
        f"{package.record.relative_to(venv).as_posix()}/"
        for package in packages
        if package.find_record_fault()
    )
    owned = set[str]()
    for path in paths:
        if (
            path in known
            or re.fullmatch(_MADE, path)
            or re.fullmatch(_COMPILED, path)
            or path.startswith(lost_records)
            or (lost_records and (venv / path).lstat().st_nlink > 1)
        ):
            owned.add(path)
    return owned - find_modified_scripts(venv)


def find_own_files(venv: Path) -> set[str]:
    """Return gpuinstall's unmodified files and a tool's ``.gitignore``."""
    own = set()
    for path in find_guard_paths(venv):
        if is_own_guard_file(venv / path):
            own.add(path)
    marker = read_marker(venv)
    if marker:
        own |= {NAME, STAMP_NAME}
        with suppress(OSError):
            if file_sha256(venv / marker.lock) == marker.lock_sha256:
                own.add(marker.lock)
    with suppress(OSError, ValueError):
        if re.fullmatch(_IGNORE_ALL, read_document(venv / ".gitignore", venv)):
            own.add(".gitignore")
    return own


def find_copied_files(venv: Path) -> set[str]:
    """Return the files of an embeddable Python, which uv copies as a whole."""
    copied = set[str]()
    base = read_home(venv)
    if base is None:
        return copied
    for file in (venv / "Scripts").glob("*"):
        with suppress(OSError):
            if file_sha256(file) == file_sha256(Path(base, file.name)):
                copied.add(f"Scripts/{file.name}")
    return copied


def find_misplaced_file(package: InstalledPackage, root: Path) -> str | None:
    """Return a message if a package writes a file at a forbidden path.

    Args:
        package: The package.
        root: The environment or a folder with the same layout.
    """
    name = f"{package.name} {package.version}"
    for path, row in find_written_files(package, root).items():
        if leads_outside(path) or ":" in path:
            return f"the RECORD of {name} lists {row.path}, which is outside the environment"
        if re.fullmatch(_ENVIRONMENT_FILES, path):
            return f"{name} would overwrite {path}, which belongs to the environment itself"
        record = re.fullmatch(_RECORD, path)
        if record and record["name"] != package.record.name:
            return f"{name} would write {path}, metadata of another package"
    return None
