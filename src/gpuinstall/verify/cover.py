"""What a proof covers: torch, the programs that are tested beside it, and the packages that these load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.environments.stamp import (
    TORCH,
    FileStamp,
    Stamp,
    file_stamp,
    loading_variables,
    stamped_python,
    startup_files,
)
from gpuinstall.machine.source import Source
from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_ROOTS = (TORCH, "numpy")
"""A check of torch's own uses numpy, which torch does not require."""

_MODULE = re.compile(r"(\w+)/__init__\.py")
_LIBRARY = re.compile(r"\.(so|dll|pyd|dylib)[.,]")
_PLUGINS = "[torch.backends]"
"""The entry points that ``import torch`` loads, whatever package they lie in."""


def take_stamp(venv: Path) -> Stamp:
    """Return the stamp of an environment as it is now; nothing of it is proven yet.

    Args:
        venv: The environment.
    """
    root = venv.resolve()
    folders = packages_folders(root)
    packages = {package.name: package for package in read_packages(folders)}
    sites = [folder.relative_to(root).as_posix() for folder in folders]
    own = list(startup_files(str(root), sites))
    roots = [*_ROOTS, *_loaded_with_torch(packages.values(), own)]
    core = _with_requirements(roots, packages)
    for name in sorted(core):
        own.append(_record_of(packages[name], root))
        own += _libraries_of(packages[name], root)
    files = {TORCH: _stamps(own, root)}
    for module, package in program_packages(folders).items():
        beside = _with_requirements([package.name], packages) - core
        files[module] = _stamps(
            [_record_of(packages[name], root) for name in sorted(beside)], root
        )
    return Stamp(
        python=stamped_python(str(root)),
        variables=loading_variables(),
        files=files,
        verdict={},
    )


def _loaded_with_torch(
    packages: Iterable[InstalledPackage], startup: Iterable[str]
) -> Iterator[str]:
    """Yield the names of packages that torch, or Python before it, loads although torch does not require them.

    Args:
        packages: Those of the environment.
        startup: What Python runs at its start: a .pth file may import a module of its package.
    """
    names = {path.rpartition("-packages/")[2] for path in startup}
    for package in packages:
        if _PLUGINS in package.entry_points or (
            package.name not in _ROOTS
            and any(file.path in names for file in package.files)
        ):
            yield package.name


def _with_requirements(
    names: Sequence[str], packages: Mapping[str, InstalledPackage]
) -> set[str]:
    """Return the installed packages among ``names``, and all that these require."""
    installed = set[str]()
    remaining = list(names)
    while remaining:
        name = remaining.pop()
        if name in packages and name not in installed:
            installed.add(name)
            remaining.extend(_requirements(packages[name]))
    return installed


def _requirements(package: InstalledPackage) -> Iterator[str]:
    """Yield the names of the packages that one requires."""
    for requirement in package.requires:
        yield canonicalize_name(requirement.name)


def _record_of(package: InstalledPackage, root: Path) -> str:
    return (package.record / "RECORD").relative_to(root).as_posix()


def _libraries_of(package: InstalledPackage, root: Path) -> Iterator[str]:
    """Yield the native libraries of a package, by their paths below ``root``: nothing else of it is loaded."""
    site = package.record.parent.relative_to(root).as_posix()
    # Searched as text: a value for each of torch's 12,000 files takes longer than all else here.
    for line in (Source().text(f"{package.record}/RECORD") or "").splitlines():
        if _LIBRARY.search(line):
            path, _, _ = line.partition(",")
            yield f"{site}/{path}"


def _stamps(paths: Iterable[str], root: Path) -> dict[str, FileStamp]:
    return {path: file_stamp(f"{root}/{path}") for path in paths}


def program_packages(folders: Iterable[Path]) -> dict[str, InstalledPackage]:
    """Return the package of each module that a proof tests beside torch, in the order of the modules.

    They are of torch's family, known programs, or compiled beside a torch. Nothing is imported: the records of the
    installations are read.

    Args:
        folders: Those of the packages, as on an interpreter's path.
    """
    known = load_catalog().family - {TORCH}
    programs: dict[str, InstalledPackage] = {}
    for package in read_packages(folders):
        for module in _tested_modules(package, known):
            programs.setdefault(module, package)
    return dict(sorted(programs.items()))


def _tested_modules(package: InstalledPackage, known: Collection[str]) -> list[str]:
    """Return the modules of a package that a proof tests: those of its row, else the one it is imported by."""
    modules = [
        row.module for row in PROGRAMS if re.fullmatch(row.package, package.name)
    ]
    is_extension = TORCH in _requirements(package) and package.is_native
    if not modules and (package.name in known or is_extension):
        modules.append(_main_module(package))
    return modules


def _main_module(package: InstalledPackage) -> str:
    """Return the module that is named after the package, else the first that it has."""
    matches = (_MODULE.fullmatch(file.path) for file in package.files)
    modules = [match[1] for match in matches if match]
    modules.sort(key=lambda module: canonicalize_name(module) != package.name)
    # One file: its .dist-info has the name as it is written.
    name, _, _ = package.record.name.partition("-")
    return modules[0] if modules else name
