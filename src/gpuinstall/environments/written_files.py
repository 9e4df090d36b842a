"""What the wheels of an environment have written where they may not: by the records of what was installed.

uv completes every RECORD with the files that it has put there (tried with 0.13.8: also those that the wheel's own did
not list), so that nothing is missing in it; but a digest in it is what the wheel says of itself.
"""

from __future__ import annotations

import base64
import hashlib
import os
import posixpath
import re
from collections import defaultdict
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuinstall.base.files import open_regular
from gpuinstall.base.regex import regex
from gpuinstall.environments.ownership import MADE_FILES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.environments.packages import InstalledPackage, RecordedFile

_OF_THE_ENVIRONMENT = regex(
    rf"{MADE_FILES}|gpuinstall\.json|pip\.(conf|ini)|constraints\.txt|pylock\.[^/]*toml",
    re.IGNORECASE,
)
"""What the environment's making writes, and we."""
_RECORD = regex(r"[^/]+\.(dist-info|egg-info|egg-link)")
_SHIPPED_BY_MISTAKE = regex(
    r"(tests?|docs?|examples?|benchmarks|scripts|tools)/.*|[^/]+\.(md|rst|txt)|LICENSE.*"
)
_NAMESPACE = regex(rb"extend_path|declare_namespace")
_TOOLS = {
    "pip": "pip",
    "setuptools": "setuptools",
    "pkg_resources": "setuptools",
    "_distutils_hack": "setuptools",
    "uv": "uv",
    "gpuinstall": "gpuinstall",
}
"""Modules of the tools that install, whether they are in the environment or come later, with their packages."""


WrittenFiles: TypeAlias = "dict[str, RecordedFile]"
"""The files that a package has written: the row of its RECORD by the path below the environment."""


class WriteFault(NamedTuple):
    """Packages that have written where they may not."""

    packages: tuple[InstalledPackage, ...]
    """Of several that write the same files, the one to do without comes first."""
    message: str
    is_refused: bool = True
    """Whether they may not be installed; else they are as pip installs them, which lets the last one win."""


def write_faults(
    packages: Sequence[InstalledPackage],
    changed: Collection[str],
    root: Path,
    *,
    family: Collection[str],
    is_tied: Callable[[str], bool],
) -> Iterator[WriteFault]:
    """Yield what packages have written where they may not.

    Args:
        packages: All packages of the environment.
        changed: The names of those that are new: the others were looked at when they were.
        root: The environment.
        family: The packages of torch's index, into whose modules nothing else may write.
        is_tied: Says of a name whether it belongs to torch's build: the family, and what it loads.
    """
    modules = _TOOLS | _modules_of(family, packages)
    written = {package: written_files(package, root) for package in packages}
    new = set[str]()
    for package, files in written.items():
        if package.name not in changed:
            continue
        for path, message in _misplaced_files(package, files, modules, family):
            yield WriteFault((package,), message)
            del files[path]
        new |= files.keys()
    shared: dict[tuple[InstalledPackage, ...], list[str]] = defaultdict(list)
    for path in sorted(new & _paths_of_several(written)):
        sharing = {package: files[path] for package, files in written.items() if path in files}
        if _differ(sharing.values(), root / path):
            shared[tuple(sharing)].append(path)
    for group, paths in shared.items():
        *names, last = [f"{package.name} {package.version}" for package in group]
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        module = _top_name(paths[0]).replace("_", "-").lower()
        # The owner of the module comes last.
        owner_last = sorted(group, key=lambda one: is_tied(one.name) or one.name == module)
        sharing_files = {package: written[package] for package in group}
        is_refused = _is_refused(sharing_files, paths, root, is_tied)
        yield WriteFault(
            tuple(owner_last),
            f"{', '.join(names)} and {last} write {paths[0]}{more}, with different contents",
            is_refused,
        )


def written_files(package: InstalledPackage, root: Path) -> WrittenFiles:
    """Return the files that a package's record names."""
    folder = package.record.parent.relative_to(root).as_posix()
    files = {}
    for row in package.recorded:
        path = row.path.replace(os.sep, "/")
        if "../" in path or "//" in path or "./" in path:
            path = posixpath.normpath(posixpath.join(folder, path))
        elif not path.startswith("/"):
            path = f"{folder}/{path}"
        files[path] = row
    return files


def _paths_of_several(written: Mapping[InstalledPackage, WrittenFiles]) -> set[str]:
    """Return the paths that more than one package has written."""
    seen = set[str]()
    again = set[str]()
    for files in written.values():
        again |= seen & files.keys()
        seen |= files.keys()
    return again


def _misplaced_files(
    package: InstalledPackage,
    files: WrittenFiles,
    modules: Mapping[str, str],
    family: Collection[str],
) -> list[tuple[str, str]]:
    """Return the files that a package may not write, each with the reason."""
    misplaced = []
    sound_folders = set[str]()
    for path, row in files.items():
        folder, _, name = path.rpartition("/")
        # What is right for one file in a folder of a module is right for all: torch has 12,000 files.
        if folder in sound_folders and ":" not in name:
            continue
        message = _misplaced(package, path, row) or _intruding(package, path, modules, family)
        if message:
            misplaced.append((path, message))
        elif _import_path(folder):
            sound_folders.add(folder)
    return misplaced


def _import_path(path: str) -> str:
    """Return a path below the folder of the packages, however it gets there; empty for scripts and data."""
    folder, _, below = path.partition("-packages/")
    return below if folder.endswith(("/site", "/dist")) else ""


def _top_name(path: str) -> str:
    """Return the name in the folder of the packages of what a file lies in, or of itself; empty for scripts and data."""
    return _import_path(path).partition("/")[0]


def _are_forms_of_one_thing(one: WrittenFiles, other: WrittenFiles) -> bool:
    """Whether one package writes most of the modules of another.

    opencv-python and its headless form replace each other as a whole, which pip and uv allow and projects live with.
    """
    modules = {path for path in one if _import_path(path) and not _is_record(path)}
    others = {path for path in other if _import_path(path) and not _is_record(path)}
    return len(modules & others) * 2 >= max(len(modules), len(others))


def _is_refused(
    sharing: Mapping[InstalledPackage, WrittenFiles],
    paths: Sequence[str],
    root: Path,
    is_tied: Callable[[str], bool],
) -> bool:
    """Whether packages that write the same files may not be installed together."""
    tied = [is_tied(package.name) for package in sharing]
    if any(tied):
        # The parts of CUDA come from one source and share folders.
        return not all(tied)
    if any(package.name in _TOOLS.values() for package in sharing):
        return True
    if all(_are_forms_of_one_thing(*pair) for pair in combinations(sharing.values(), 2)):
        return False
    return not all(_is_untidy(path, root) for path in paths)


def _is_record(path: str) -> bool:
    """Whether a file belongs to the record of a package, which no two packages share."""
    return _RECORD.fullmatch(_top_name(path)) is not None


def _is_untidy(path: str, root: Path) -> bool:
    """Whether a file is one that many packages ship unasked, or the head of a package of many distributions."""
    import_path = _import_path(path)
    if not import_path or _SHIPPED_BY_MISTAKE.fullmatch(import_path):
        return True
    if not import_path.endswith("/__init__.py"):
        return False
    content = _content(root / path) or b""
    return _NAMESPACE.search(content) is not None


def _modules_of(
    family: Collection[str],
    packages: Sequence[InstalledPackage],
) -> dict[str, str]:
    """Return the modules of torch's family in an environment, each with its package."""
    modules: dict[str, str] = {}
    for package in packages:
        if package.name not in family:
            continue
        for file in package.files:
            folder, _, name = file.path.rpartition("/")
            if name == "__init__.py" and "/" not in folder:
                modules[folder.lower()] = package.name
    return modules


def _intruding(
    package: InstalledPackage,
    path: str,
    modules: Mapping[str, str],
    family: Collection[str],
) -> str | None:
    """Return that a file lies in a module of torch's family, or of a tool that installs; None if it does not.

    Other packages share folders in good faith: ``nvidia``, ``google``, ``airflow`` and ``mlflow``.
    """
    # "torchvision.libs" is torchvision's, "pip.py" would be imported as pip; some file systems ignore case.
    module = _top_name(path).partition(".")[0].lower()
    owner = modules.get(module)
    if owner is None or package.name == owner:
        return None
    if package.name in family and owner in family:
        return None
    return f"{package.name} {package.version} writes {path}, a file of a module of {owner}"


def _misplaced(
    package: InstalledPackage,
    path: str,
    row: RecordedFile,
) -> str | None:
    """Return where a file lies that no package may write; None if it may."""
    name = f"{package.name} {package.version}"
    if path.startswith("../") or posixpath.isabs(path) or ":" in path:
        return f"{name} names {row.path}, which is outside the environment, as a file of its own"
    if _OF_THE_ENVIRONMENT.fullmatch(path):
        return f"{name} writes {path}, a file of the environment itself"
    if _is_record(path) and _top_name(path) != package.record.name:
        return f"{name} writes {_import_path(path)}, the record of another package"
    return None


def _differ(rows: Collection[RecordedFile], path: Path) -> bool:
    """Whether one of the packages has recorded other bytes for a file than those that lie there."""
    content = _content(path)
    if content is None:
        return False
    sha256 = hashlib.sha256(content).digest()
    digest = base64.urlsafe_b64encode(sha256).decode().rstrip("=")
    for row in rows:
        if row.digest and row.digest != digest:
            return True
        if not row.digest and row.size != len(content):
            return True
    return False


def _content(path: Path) -> bytes | None:
    with suppress(OSError), open_regular(path) as file:
        return file.read()
    return None
