"""The packages that a change leaves as they are: given to the new environment as hard links, not installed again."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.environments.packages import file_size, read_packages
from gpuinstall.environments.paths import packages_folders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.install.inspection import ExistingEnvironment

_TORCH = "torch"


def unchanged_packages(
    existing: ExistingEnvironment, versions: Mapping[str, str], hashes: Mapping[str, Collection[str]], python: str
) -> frozenset[str]:
    """Return the packages that are to stay as they are; none if torch or Python changes, as all depend on them.

    Args:
        existing: The environment that is to be changed.
        versions: The version of each package that the changed one will hold.
        hashes: The sha256 of the files of each.
        python: The Python of the changed one, ``X.Y``.
    """
    lock = existing.lock
    if lock is None or not (existing.made_here and existing.has_python and lock.python == python):
        return frozenset()
    locked = lock.hashes_by_package
    unchanged = frozenset(
        name
        for name, version in versions.items()
        # What comes from a folder or a repository has no hash, and may be another by now.
        if name not in lock.addresses
        and existing.packages.get(name) == version == lock.versions.get(name)
        and not locked[name].isdisjoint(hashes.get(name, ()))
    )
    return unchanged if _TORCH in unchanged else frozenset()


def link_packages(old: Path, new: Path, names: Collection[str]) -> frozenset[str]:
    """Give one environment the packages ``names`` of another; return those that it got, whole.

    Nothing writes through the links: installers and Python replace a file, and never write into it. Only what an
    installer recorded is linked, with its bytecode. What else lies there is the user's, and stays where it is.
    """
    old = old.resolve()
    # pip belongs to no lock, and every environment has one.
    wanted = {*names, "pip"}
    packages = [package for package in read_packages(packages_folders(old)) if package.name in wanted]
    counts = Counter(package.name for package in packages)
    linked = set[str]()
    placed = set[str]()
    for package in packages:
        is_single = counts[package.name] == 1
        if is_single and _link_package(package, old, new, placed):
            linked.add(package.name)
    return frozenset(linked)


def _link_package(package: InstalledPackage, old: Path, new: Path, placed: set[str]) -> bool:
    """Link the files of one package; if one of them is gone or cut, link none, and return False.

    ``placed`` are the paths that are there already: packages share files, as those of NVIDIA share their
    ``nvidia/__init__.py``.
    """
    links: list[str] = []
    try:
        for folder, names in _recorded_folders(package, old).items():
            compiled = list(_bytecode(f"{old}/{folder}", names))
            os.makedirs(f"{new}/{folder}/__pycache__" if compiled else f"{new}/{folder}", exist_ok=True)
            for name in (*names, *compiled):
                path = f"{folder}/{name}"
                if path not in placed:
                    _link(f"{old}/{path}", f"{new}/{path}")
                    links.append(path)
                    placed.add(path)
    except OSError:
        placed.difference_update(links)
        for path in links:
            with suppress(OSError):
                os.unlink(f"{new}/{path}")
        return False
    return True


def _recorded_folders(package: InstalledPackage, old: Path) -> dict[str, list[str]]:
    """Return the names of a package's files, by their folder; raise OSError if one of them is not whole."""
    site = package.record.parent.relative_to(old).as_posix()
    folders: dict[str, list[str]] = {}
    for row in package.recorded:
        path = f"{site}/{row.path}"
        if path.endswith(".pyc"):
            continue
        if ".." in row.path:
            path = os.path.normpath(path)
        if path.startswith(".."):
            raise OSError(f"{row.path} lies outside the environment")
        # RECORD has no size for itself.
        if row.size and file_size(f"{old}/{path}") != row.size:
            raise OSError(f"{row.path} is not as it was installed")
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    return folders


def _bytecode(folder: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the bytecode of modules in a folder, as paths from there."""
    modules = {name.removesuffix(".py") for name in names if name.endswith(".py")}
    if not modules:
        return
    with suppress(OSError):
        for name in os.listdir(f"{folder}/__pycache__"):
            if name.endswith(".pyc") and name.partition(".")[0] in modules:
                yield f"__pycache__/{name}"


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except FileExistsError:
        raise
    except OSError:  # the file system has no such links, or no more of this file
        shutil.copy2(source, destination)
