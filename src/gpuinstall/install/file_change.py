"""Which files of an environment a change touches, and none besides: by the RECORDs of what goes and of what comes."""

from __future__ import annotations

import filecmp
import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from os.path import islink
from pathlib import Path

from gpuinstall.base.environment_paths import EnvironmentPaths, below
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import read_document
from gpuinstall.base.removal import is_folder, is_link, mounts_in
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import Value
from gpuinstall.environments.damage import edited_paths
from gpuinstall.environments.environment import NAME, versions_of
from gpuinstall.environments.kept_files import dated_name
from gpuinstall.environments.ownership import recorded_paths
from gpuinstall.environments.packages import (
    InstalledPackage,
    file_size,
    read_packages,
    written_files,
)
from gpuinstall.install.journal import Journal, Owner


class Change(Value):
    """What changes in an environment. All names are paths below its root."""

    place: EnvironmentPaths
    comes: Mapping[str, Path]
    """Each file that comes, and where it waits."""
    goes: frozenset[str]
    """The files that go, and nothing comes in their place."""
    journal: Journal
    """What is written of it before a file changes."""

    @property
    def names(self) -> set[str]:
        """All files that are touched."""
        return {*self.comes, *self.goes}


def plan_change(
    place: EnvironmentPaths,
    *,
    comes: Mapping[str, Path],
    after: Mapping[str, str],
    leaving: Collection[InstalledPackage],
    own: Collection[str],
) -> Change:
    """Return the change of an environment's files.

    Args:
        place: The environment.
        comes: The files that come, and where each waits.
        after: The versions of the packages that come, by name.
        leaving: Packages of the environment that go, or are replaced.
        own: The files that gpuinstall itself writes; those of them that do not come go.

    Raises:
        UsageError: a file lies behind a link or a mount.
    """
    real_name = _real_names(place)
    comes = {real_name(name): source for name, source in comes.items()}
    recorded = set[str]()
    for package in leaving:
        # What a RECORD names elsewhere is not the environment's to remove.
        names = filter(_is_below, written_files(package, place.root))
        recorded.update(map(real_name, names))
    edited = set(map(real_name, edited_paths(leaving, place.root)))
    present = {
        name for name in {*comes, *recorded, *own} if os.path.lexists(place.root / name)
    }
    shared = shared_with_others(place, leaving, (present & recorded) - comes.keys())
    present = present.difference(*shared.values())
    check_inside(place, {*comes, *present})
    recorded_by_all = cache(partial(recorded_paths, place.root, place.packages_folders))

    def is_users(name: str) -> bool:
        """Whether what lies there, and goes or is replaced, is the user's own."""
        if name in recorded:
            return name in edited
        path = place.root / name
        # What else than files of the change lies in a folder keeps it there, and the change is put back.
        if name in own or is_folder(path) or is_same_file(path, comes[name]):
            return False
        return name not in recorded_by_all()

    before = versions_of(leaving)
    packages = sorted({*before, *after})
    journal = Journal(
        Owner.this_run(),
        comes={name: size_and_time(source) for name, source in comes.items()},
        own=tuple(sorted({*own, *({NAME} if place.is_ours else ())})),
        packages={
            name: (before.get(name, ""), after.get(name, "")) for name in packages
        },
        users=tuple(sorted(filter(is_users, present))),
        kept=dated_name(),
    )
    return Change(place, comes, frozenset(present - comes.keys()), journal)


def size_and_time(path: Path) -> tuple[int, ...]:
    """Return that by which a file that has come is known again."""
    status = path.lstat()
    return (status.st_size, status.st_mtime_ns)


def placed_files(
    packages: Iterable[InstalledPackage], folder: Path, place: EnvironmentPaths
) -> dict[str, Path]:
    """Return the files of packages that were unpacked into a folder, by where they come to lie in an environment.

    Args:
        packages: The packages.
        folder: Where they were unpacked, laid out as a virtual environment is.
        place: The environment, which others may have laid out in another way.
    """
    files = {}
    for package in packages:
        for name in written_files(package, folder):
            source = folder / name
            if _is_below(name) and os.path.lexists(source):
                files[place.path_below_root(name)] = source
    return files


def _real_names(place: EnvironmentPaths) -> Callable[[str], str]:
    """Return a function that gives each file one name: a folder may be reached by a link too, as lib is by lib64.

    One that a link leads outside keeps its name.
    """
    real_root = place.root.resolve()

    @cache
    def prefix(folder: str) -> str:
        path = (place.root / folder).resolve()
        is_inside = path.is_relative_to(real_root)
        return below(path, real_root) if is_inside else f"{folder}/"

    def real_name(name: str) -> str:
        folder, _, file = name.rpartition("/")
        return f"{prefix(folder)}{file}"

    return real_name


_LARGE = 300_000
"""The bytes of a RECORD from which on it is only read if it may matter: torch's has 1,300,000."""


def shared_with_others(
    place: EnvironmentPaths,
    leaving: Collection[InstalledPackage],
    names: Collection[str],
) -> dict[str, set[str]]:
    """Return which of some files of packages that go are also files of packages that stay, by the names of these.

    Args:
        place: The environment.
        leaving: The packages that go.
        names: The files, by their paths below the environment.
    """
    if not names:
        return {}
    shared: dict[str, set[str]] = {}
    tops = {path.partition("-packages/")[2].partition("/")[0] for path in names}
    going = {package.record for package in leaving}
    for package in read_packages(place.packages_folders):
        if package.record in going:
            continue
        is_large = file_size(package.record / "RECORD") > _LARGE
        modules: list[str] = []
        with suppress(OSError, ValueError):
            modules = read_document(package.record / "top_level.txt").split()
        if is_large and modules and tops.isdisjoint(modules):
            continue
        files = written_files(package, place.root).keys() & set(names)
        if files:
            shared[package.name] = files
    return shared


def _is_below(name: str) -> bool:
    return not (name.startswith(("../", "/")) or name == "..")


def recorded_names(packages: Iterable[InstalledPackage], root: Path) -> set[str]:
    """Return the files of packages by their RECORDs, by their paths below the environment."""
    return {name for package in packages for name in written_files(package, root)}


def check_inside(place: EnvironmentPaths, names: Iterable[str]) -> None:
    """Check that no file of a change is reached through a link out of the environment, or a mount.

    Raises:
        UsageError: one is.
    """
    mounts = mounts_in(place.root)
    real_root = place.root.resolve()
    seen = set[str]()
    for name in sorted(names):
        part = name
        while part and part not in seen:
            seen.add(part)
            path = place.root / part
            message = ""
            # A link that lies at the name itself is replaced, and not followed. Most folders are plain ones, of which
            # one call tells enough.
            is_on_the_way = part != name and is_link(path)
            if str(path) in mounts:
                message = f"something is mounted at {path}"
                hint = f"umount {quoted(path)}   # then run it again"
            elif is_on_the_way and not path.resolve().is_relative_to(real_root):
                message = f"{path} is a link to {path.resolve()}"
                hint = f"rm {quoted(path)}   # the link alone; then run it again"
            if message:
                raise UsageError(
                    "leads-outside",
                    message,
                    why="the change would remove or write files there, which are not the environment's",
                    hint=hint,
                )
            part = posixpath.dirname(part)


def is_same_file(path: Path, other: Path) -> bool:
    """Whether two paths are names of one file, or of files of the same bytes: not every file system has links."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), other.lstat()):
            return True
        if islink(path) or islink(other):
            return False
        return filecmp.cmp(path, other, shallow=False)
    return False
