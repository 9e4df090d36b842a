"""The files that a verification covers: torch, programs, dependencies."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.damage import Damage, find_damage
from gpuinstall.environments.packages import (
    InstalledPackage,
    compute_record_digest,
    read_packages,
)
from gpuinstall.environments.stamp import (
    TORCH,
    FileStamp,
    Stamp,
    find_startup_files,
    read_file_stamp,
    read_loading_variables,
    stamp_python,
)
from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_ROOTS = (TORCH, "numpy")
"""The packages that torch's checks import. torch does not require NumPy."""

_MODULE = re.compile(r"(\w+)/__init__\.py")
_PLUGINS = "[torch.backends]"
"""The entry points that ``import torch`` loads from any package."""


def create_stamp(venv: Path) -> Stamp:
    """Create a stamp of an environment's current files without a verdict.

    Args:
        venv: The environment.
    """
    root = venv.resolve()
    folders = packages_folders(root)
    packages = {package.name: package for package in read_packages(folders)}
    sites = [folder.relative_to(root).as_posix() for folder in folders]
    own = list(find_startup_files(str(root), sites))
    roots = [*_ROOTS, *_find_implicit_packages(packages.values(), own)]
    core = _add_requirements(roots, packages)
    for name in sorted(core):
        own.append(_record_path(packages[name], root))
        site = packages[name].record.parent.relative_to(root).as_posix()
        own += [f"{site}/{path}" for path in packages[name].find_native_files()]
    files = {TORCH: _create_stamps(own, root)}
    for module, package in find_program_packages(folders).items():
        own_packages = _add_requirements([package.name], packages) - core
        records = [_record_path(packages[name], root) for name in sorted(own_packages)]
        files[module] = _create_stamps(records, root)
    return Stamp(
        python=stamp_python(str(root)),
        variables=read_loading_variables(),
        files=files,
        verdict={},
    )


def _find_implicit_packages(
    packages: Iterable[InstalledPackage], startup: Iterable[str]
) -> Iterator[str]:
    """Yield packages that torch or Python loads without requiring them.

    Args:
        packages: The packages of the environment.
        startup: The files that Python runs at startup. A .pth file may import a module of its package.
    """
    names = {path.rpartition("-packages/")[2] for path in startup}
    for package in packages:
        if _PLUGINS in package.read_entry_points() or (
            package.name not in _ROOTS
            and any(file.path in names for file in package.read_record())
        ):
            yield package.name


def _add_requirements(
    names: Sequence[str], packages: Mapping[str, InstalledPackage]
) -> set[str]:
    """Return the installed packages among ``names`` and their dependencies.

    Unlike ``find_required_names``, this ignores the requirements of extras.
    """
    installed = set[str]()
    remaining = list(names)
    while remaining:
        name = remaining.pop()
        if name in packages and name not in installed:
            installed.add(name)
            remaining.extend(_list_requirements(packages[name]))
    return installed


def _list_requirements(package: InstalledPackage) -> Iterator[str]:
    """Yield the names of required packages."""
    for requirement in package.read_requirements():
        yield canonicalize_name(requirement.name)


def _record_path(package: InstalledPackage, root: Path) -> str:
    return (package.record / "RECORD").relative_to(root).as_posix()


def _create_stamps(paths: Iterable[str], root: Path) -> dict[str, FileStamp]:
    return {path: read_file_stamp(f"{root}/{path}") for path in paths}


def find_program_packages(folders: Iterable[Path]) -> dict[str, InstalledPackage]:
    """Return the modules to verify with torch, and their packages.

    These packages belong to the torch family, have their own check, or are native and
    require torch. Only installed metadata is read, and nothing is imported.

    Args:
        folders: The folders of packages on an interpreter's path.
    """
    known = load_catalog().family - {TORCH}
    programs: dict[str, InstalledPackage] = {}
    for package in read_packages(folders):
        for module in _select_modules(package, known):
            programs.setdefault(module, package)
    return dict(sorted(programs.items()))


def _select_modules(package: InstalledPackage, known: Collection[str]) -> list[str]:
    """Return the modules of a package that have a check, or its main one."""
    modules = [
        row.module for row in PROGRAMS if re.fullmatch(row.package, package.name)
    ]
    is_extension = TORCH in _list_requirements(package) and package.find_native_files()
    if not modules and (package.name in known or is_extension):
        modules += list_modules(package)[:1]
    return modules


def list_modules(package: InstalledPackage) -> list[str]:
    """Return a package's modules, starting with the one named after it."""
    matches = (_MODULE.fullmatch(file.path) for file in package.read_record())
    modules = [match[1] for match in matches if match]
    modules.sort(key=lambda module: canonicalize_name(module) != package.name)
    # A package without a folder is a single module, whose exact name is in the name of the .dist-info folder.
    name, _, _ = package.record.name.partition("-")
    return modules or [name]


def find_damaged_packages(torch: str | None) -> tuple[Damage, ...]:
    """Return the packages with missing or truncated files.

    Args:
        torch: The file of torch in the same site-packages folder, if installed.
    """
    found = find_damage(read_packages([Path(torch).parent.parent])) if torch else ()
    return tuple(one for one in found if one.kind != "modified")


def find_modified_files(torch: str | None, names: Collection[str]) -> Iterator[str]:
    """Yield the missing and modified files of packages.

    Args:
        torch: The file of torch in the same site-packages folder, if installed.
        names: The names of the packages.
    """
    if torch is None:
        return
    site = Path(torch).parent.parent
    for package in read_packages([site]):
        if package.name not in names:
            continue
        # Files that the installer generated have no digest.
        digests = {
            file.path: file.digest for file in package.read_record() if file.digest
        }
        for path, digest in digests.items():
            found = ""
            with suppress(OSError):
                found = compute_record_digest(site / path)
            if found != digest:
                yield path
