"""The packages that a change leaves as they are: given to the new environment as hard links, not installed again."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.files import remove_path
from gpuinstall.environments.ownership import enclosing_folders
from gpuinstall.environments.packages import bytecode_of, read_packages
from gpuinstall.environments.proof_record import file_stamp
from gpuinstall.install.disposal import discard
from gpuinstall.lock.declaration import PROJECT_FILES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.environments.packages import InstalledPackage, RecordedFile
    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.lock.lock import Lock

    _DeviceAndInode = tuple[int, int]
    Files = Mapping[str, _DeviceAndInode]


def unchanged_packages(
    existing: ExistingEnvironment,
    *,
    versions: Mapping[str, str],
    hashes: Mapping[str, Collection[str]],
    editable: Mapping[str, Path],
    python: str,
) -> frozenset[str]:
    """Return the packages that are to stay as they are; none if torch or Python changes, as all depend on them.

    Args:
        existing: The environment that is to be changed.
        versions: The version of each package that the changed one will hold.
        hashes: The sha256 of the files of each.
        editable: The folder of each that is editable.
        python: The Python of the changed one, ``X.Y``.
    """
    lock = existing.lock
    if lock is None or lock.python != python:
        return frozenset()
    if not existing.made_here or not existing.has_python:
        return frozenset()
    unchanged = set()
    for name, version in versions.items():
        if name in lock.addresses:
            # What comes from a folder or a repository has no hash, and may be another by now.
            continue
        is_same_version = existing.packages.get(name) == version == lock.versions.get(name)
        if is_same_version and not lock.hashes_by_package[name].isdisjoint(hashes.get(name, ())):
            unchanged.add(name)
    if "torch" not in unchanged:
        return frozenset()
    before = editable_folders(lock, existing.paths.folder)
    for name, folder in editable.items():
        if before.get(name) == folder and _is_built_since(folder, existing.built_ns):
            unchanged.add(name)
    return frozenset(unchanged)


def editable_folders(lock: Lock, folder: Path) -> dict[str, Path]:
    """Return the folder of each editable package of a lock that lies in ``folder``."""
    folders = {}
    for package in lock.pylock.packages:
        if package.directory and package.directory.editable:
            folders[str(package.name)] = (folder / package.directory.path).resolve()
    return folders


def _is_built_since(project: Path, built_ns: int) -> bool:
    """Whether a project was built after the last change of the files for which uv builds it anew."""
    files = [project / name for name in PROJECT_FILES]
    return all(file_stamp(str(file))[1] <= built_ns for file in files)


def link_packages(
    old: Path,
    new: Path,
    names: Collection[str],
    built_ns: int,
) -> frozenset[str]:
    """Give one environment the packages ``names`` of another; return those that it got, whole.

    Nothing writes through the links: installers and Python replace a file, and never write into it. Only what an
    installer recorded is linked, with its bytecode. What else lies there is the user's, and stays where it is.

    The folder ``new`` may hold an older environment that was made in the same way: what it has already stays, and
    everything else in it is deleted. Most of 17,000 links are there then.

    Args:
        old: The environment that has the packages.
        new: The environment that gets them.
        names: The packages.
        built_ns: When the old one was built, in nanoseconds: a package that was changed since, by an
            installer or an editor, is not linked.
    """
    old = old.resolve()
    # pip belongs to no lock, and every environment has one.
    staying = {*names, "pip"}
    packages = read_packages(packages_folders(old))
    counts = Counter(package.name for package in packages)
    shared = _shared_files(packages, staying)
    files: dict[str, Files] = {}
    all_files: dict[str, _DeviceAndInode] = {}
    for package in packages:
        if package.name in staying and counts[package.name] == 1:
            with suppress(OSError):
                own = dict(_installed_files(package, old, built_ns, shared))
                files[package.name] = own
                all_files |= own
    placed = _keep_links(new, all_files)
    return frozenset(name for name, paths in files.items() if _link_files(paths, old, new, placed))


def _shared_files(
    packages: Sequence[InstalledPackage],
    staying: Collection[str],
) -> dict[str, frozenset[int]]:
    """Return the files that several packages have recorded, by path, with the sizes that each may have as it was.

    The last that was installed has written it. If that may be one that does not stay, there is no such size.
    """
    counts = Counter(row.path for package in packages for row in package.recorded)
    recorded: dict[str, list[tuple[str, RecordedFile]]] = defaultdict(list)
    for package in packages:
        for row in package.recorded:
            if counts[row.path] > 1:
                recorded[row.path].append((package.name, row))
    sizes = {}
    for path, rows in recorded.items():
        contents = {(row.digest, row.size) for _, row in rows}
        names = {name for name, _ in rows}
        is_safe = len(contents) == 1 or names.issubset(staying)
        sizes[path] = frozenset(row.size for _, row in rows if is_safe)
    return sizes


def _installed_files(
    package: InstalledPackage,
    old: Path,
    built_ns: int,
    shared: Mapping[str, Collection[int]],
) -> Iterator[tuple[str, _DeviceAndInode]]:
    """Yield the files of a package, by their path in the environment; raise OSError if one of them is not as it was."""
    site = package.record.parent.relative_to(old).as_posix()
    for row in package.recorded:
        if row.path.endswith(".pyc"):
            continue
        path = f"{site}/{row.path}"
        if ".." in row.path:
            path = os.path.normpath(path)
        if path.startswith(".."):
            raise OSError(f"{row.path} lies outside the environment")
        status = os.stat(f"{old}/{path}")
        sizes = shared.get(row.path, (row.size,))
        # RECORD has no size for itself. Whoever installs the same version again writes another one.
        if status.st_mtime_ns > built_ns or (row.size and status.st_size not in sizes):
            raise OSError(f"{row.path} is not as it was installed")
        yield path, (status.st_dev, status.st_ino)
    for name in bytecode_of(package, package.record.parent):
        path = f"{site}/{name}"
        status = os.stat(f"{old}/{path}")
        yield path, (status.st_dev, status.st_ino)


def _keep_links(new: Path, files: Files) -> set[str]:
    """Delete all that a folder holds but the links to these files; return the paths that are there."""
    folders = enclosing_folders(files)
    placed = set[str]()
    waiting = [""]
    try:
        while waiting:
            below = waiting.pop()
            device = os.stat(f"{new}/{below}").st_dev
            for entry in list(os.scandir(f"{new}/{below}")):
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if path in folders:
                        waiting.append(f"{path}/")
                    else:
                        remove_path(Path(entry.path))
                # Its folder has its inode: another stat of each of 17,000 takes longer than all else here.
                elif files.get(path) == (device, entry.inode()):
                    placed.add(path)
                else:
                    os.unlink(entry.path)
    except OSError:
        discard(new)
        return set()
    return placed


def _link_files(
    paths: Iterable[str],
    old: Path,
    new: Path,
    placed: set[str],
) -> bool:
    """Link the files of one package; if one of them is gone, link none, and return False.

    Args:
        paths: The files.
        old: The environment that has them.
        new: The environment that gets them.
        placed: The paths that are there already: packages share files, as those of NVIDIA share their
            ``nvidia/__init__.py``.
    """
    links = [path for path in paths if path not in placed]
    try:
        for folder in {path.rpartition("/")[0] for path in links}:
            os.makedirs(f"{new}/{folder}", exist_ok=True)
        for path in links:
            _link(f"{old}/{path}", f"{new}/{path}")
            placed.add(path)
    except OSError:
        for path in placed.intersection(links):
            with suppress(OSError):
                os.unlink(f"{new}/{path}")
        placed.difference_update(links)
        return False
    return True


def _link(source: str, destination: str) -> None:
    try:
        os.link(source, destination)
    except FileExistsError:
        raise
    except OSError:
        # The file system has no such links, or no more of this file.
        shutil.copy2(source, destination)
