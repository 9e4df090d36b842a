"""Whose the files of an environment are.

An installer's files are listed in the RECORD of a package, and Python compiles them. Others come
with the making of an environment, or are gpuinstall's own. Everything else is the user's, and no
command of gpuinstall deletes it.
"""

from __future__ import annotations

import filecmp
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.files import read_document
from gpuinstall.base.location import file_path
from gpuinstall.base.regex import regex
from gpuinstall.environments.environment import NAME, added_packages, packages_called, read_marker
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.packages import file_size, read_packages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

_COMMAND = regex(r"(bin|Scripts)/[^/]+")
_COMPILED = regex(r"(?P<folder>.*/)?__pycache__/(?P<module>[^/.]+)\.[^/]+\.(pyc|nbi|nbc)")
"""What Python and Numba compile of a module, beside it."""

MADE_FILES = (
    r"pyvenv\.cfg|CACHEDIR\.TAG|\.lock|lib64"
    r"|(bin|Scripts)/(activate(\.\w+)?|activate_this\.py|Activate\.ps1|deactivate\.\w+|pydoc\.bat)"
    # A venv of Python 3.14 has a link with the Greek letter too.
    r"|(bin|Scripts)/(python|𝜋thon)w?[\d.]*t?(w?\.exe)?"
    r"|(lib/[^/]+|Lib)/site-packages/_virtualenv\.(py|pth)"
)
"""The paths that venv, virtualenv and uv write when they make an environment, as a pattern."""

_MADE = regex(MADE_FILES)
_IGNORE_ALL = regex(r"(#.*\n)*\*\n?")
"""The ``.gitignore`` that comes with an environment; one of the user's lists something."""


def is_environment(folder: Path) -> bool:
    """Whether a folder is a virtual environment, whoever made it."""
    return (folder / "pyvenv.cfg").is_file() or read_marker(folder) is not None


def user_paths(folder: Path) -> tuple[str, ...]:
    """Return the user's own files and folders in an environment, by their paths in it.

    A folder that holds nothing else is named, and not its files. In a folder that is no environment
    everything is the user's. A folder that cannot be read is named as a file is, the environment
    itself as an empty path.
    """
    paths = list(_list_paths(folder))
    owned = _owned_paths(folder, paths) if is_environment(folder) else ()
    return topmost_paths(paths, owned)


def left_paths(folder: Path, venv: Path) -> tuple[str, ...]:
    """Return the user's own files and folders in an environment that the one in its place lacks.

    An edited ``pip.conf`` is carried over; it would be kept once more with every change.
    """
    users = user_paths(folder)
    return tuple(path for path in users if not _is_carried(path, folder, venv))


def _is_carried(
    path: str,
    folder: Path,
    venv: Path,
) -> bool:
    if path not in GUARD_FILES or (folder / path).is_symlink():
        return False
    with suppress(OSError):
        return filecmp.cmp(folder / path, venv / path, shallow=False)
    return False


def topmost_paths(
    paths: Iterable[str],
    owned: Collection[str],
) -> tuple[str, ...]:
    """Return the paths that are not ``owned``, each as high as nothing owned is below it."""
    shared_folders = enclosing_folders(owned)
    found = set[str]()
    for path in paths:
        if path in owned:
            continue
        highest = path
        folder = highest.rpartition("/")[0]
        while folder not in shared_folders:
            highest = folder
            folder = highest.rpartition("/")[0]
        found.add(highest)
    return tuple(sorted(found))


def enclosing_folders(paths: Iterable[str]) -> set[str]:
    """Return the folders that these paths lie in, at any depth; the outermost is an empty path."""
    folders = {""}
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def recorded_paths(venv: Path, folders: Iterable[Path]) -> set[str]:
    """Return the files in an environment that the packages in ``folders`` recorded, by their paths in it."""
    root = venv.resolve()
    recorded = set[str]()
    for package in read_packages(folders):
        site = package.record.parent.resolve()
        if not site.is_relative_to(root):
            continue
        base = site.relative_to(root).as_posix()
        for file in package.recorded:
            path = f"{base}/{file.path}"
            if ".." not in path:
                recorded.add(path)
                continue
            path = os.path.normpath(path).replace(os.sep, "/")
            # Outside the folder of the packages a RECORD could name a file of the user's. Installers
            # write the size of what they put there, virtualenv alone not that of its commands.
            is_command = not file.size and _COMMAND.fullmatch(path)
            is_below = path.startswith(f"{base}/")
            if is_below or is_command or file_size(root / path) == file.size:
                recorded.add(path)
    return recorded


def only_copies(venv: Path) -> tuple[str, ...]:
    """Return those of the added packages that came from a file or a folder which is gone."""
    added = {text.partition(" ")[0]: text for text in added_packages(venv)}
    packages = packages_called(added, venv)
    return tuple(added[one.name] for one in packages if _is_source_gone(one.record))


def _is_source_gone(record: Path) -> bool:
    with suppress(OSError, ValueError, KeyError, TypeError):
        origin = json.loads(read_document(record / "direct_url.json", record))
        address = urlsplit(origin["url"])
        path = file_path(address.path)
        return address.scheme == "file" and not os.path.lexists(path)
    return False


def _list_paths(folder: Path) -> Iterator[str]:
    """Yield the files and links in a folder of any depth, and the folders that cannot be listed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            # As text: a Path for each of 2,000 folders takes as long as all else here.
            with os.scandir(f"{folder}/{below}") as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{below}{entry.name}/")
                    else:
                        yield f"{below}{entry.name}"
        except OSError:
            yield below.rstrip("/")


def _owned_paths(venv: Path, paths: Iterable[str]) -> set[str]:
    """Return the paths that an installer, the making of the environment, or gpuinstall wrote."""
    recorded = recorded_paths(venv, packages_folders(venv))
    own_files = _own_files(venv)
    owned = set[str]()
    compiled_files = []
    for path in paths:
        if path in recorded or path in own_files or _MADE.fullmatch(path):
            owned.add(path)
        elif compiled := _COMPILED.fullmatch(path):
            compiled_files.append(compiled)
    for compiled in compiled_files:
        folder = compiled["folder"] or ""
        if f"{folder}{compiled['module']}.py" in owned:
            owned.add(compiled[0])
    return owned


def _own_files(venv: Path) -> set[str]:
    """Return what gpuinstall wrote, and a ``.gitignore`` that came with the environment."""
    own = {name for name in GUARD_FILES if is_own_guard_file(venv / name)}
    marker = read_marker(venv)
    if marker:
        own |= {NAME, marker.lock}
    with suppress(OSError, ValueError):
        if _IGNORE_ALL.fullmatch(read_document(venv / ".gitignore", venv)):
            own.add(".gitignore")
    return own
