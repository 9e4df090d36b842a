"""What a proof covers: torch, the programs that are tested beside it, and the packages that these load."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.environments.proof_record import (
    ProofRecord,
    Stamp,
    file_stamp,
    is_startup_file,
    stamped_python,
    startup_files,
)
from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_TORCH = "torch"
_ROOTS = (_TORCH, "numpy")
"""A check of torch's own uses numpy, which torch does not require."""

_MODULE = re.compile(r"(\w+)/__init__\.py")
_PLUGINS = "[torch.backends]"
"""The entry points that ``import torch`` loads, whatever package they lie in."""


@dataclass(frozen=True)
class ProofCover:
    """What a proof of an environment, as it is now, loads.

    A package is told from another by its identity: its version, its RECORD and its locked hashes.
    """

    venv: Path
    packages: Mapping[str, str]
    """The identity of torch, and of each package that torch loads, by name."""
    programs: Mapping[str, str]
    """The identities of a program and of what it requires beside torch, digested, by module."""
    files: Mapping[str, Mapping[str, Stamp]]
    """The stamp of each file that may be loaded, by path below the environment: torch's, and each program's."""
    startup: Mapping[str, int]
    """The check sums of what Python runs at its start, by path."""

    def record(self, machine: str, verdict: Mapping[str, Any]) -> ProofRecord:
        """Return the record of a proof that came to ``verdict`` on the machine of this fingerprint."""
        return ProofRecord(
            machine=machine,
            python=stamped_python(str(self.venv)),
            packages=self.packages,
            programs=self.programs,
            files=self.files,
            startup=self.startup,
            verdict=verdict,
        )

    def keeps(self, record: ProofRecord) -> bool:
        """Whether torch, and all that it loads, is what a record covers.

        The record is that of another environment, whose files are as it says and were given to this one as links, or
        as copies if a file system has no links: their inodes do not count.
        """
        if record.python != stamped_python(str(self.venv)):
            return False
        if self.packages != record.packages or self.startup != record.startup:
            return False
        # The programs that are new are tested again; whatever else the proof loads has to be the same.
        for owner in self.files.keys() - self.new_programs(record):
            recorded = record.files.get(owner, {})
            if _sizes_and_times(self.files[owner]) != _sizes_and_times(recorded):
                return False
        return True

    def new_programs(self, record: ProofRecord) -> tuple[str, ...]:
        """Return the modules to be tested that a record does not cover as they are now."""
        programs = self.programs.items()
        recorded = record.programs
        return tuple(module for module, identity in programs if recorded.get(module) != identity)


def read_cover(venv: Path, hashes: Mapping[str, Collection[str]]) -> ProofCover:
    """Read what a proof of an environment covers.

    Args:
        venv: The environment.
        hashes: The locked ones of each package.
    """
    root = venv.resolve()
    folders = packages_folders(root)
    packages: dict[str, InstalledPackage] = {}
    identities: dict[str, str] = {}
    roots = list(_ROOTS)
    for package in read_packages(folders):
        name = package.name
        packages[name] = package
        identities[name] = _identity(package, hashes.get(name, ()))
        if _is_loaded_with_torch(package):
            roots.append(name)
    core = _with_requirements(roots, packages)
    core_names = sorted(core)
    files = {_TORCH: _stamps([packages[name] for name in core_names], root)}
    programs = {}
    for module, package in program_packages(folders).items():
        beside = _with_requirements([package.name], packages) - core
        programs[module] = _digest(identities[name] for name in sorted(beside))
        files[module] = _stamps([package], root)
    relative_folders = [folder.relative_to(root).as_posix() for folder in folders]
    return ProofCover(
        venv=venv,
        packages={name: identities[name] for name in core_names},
        programs=programs,
        files=files,
        startup=startup_files(str(root), relative_folders),
    )


def _is_loaded_with_torch(package: InstalledPackage) -> bool:
    """Whether torch, or Python before it, loads a package that torch does not require."""
    if _PLUGINS in package.entry_points:
        return True
    # A .pth file may import a module of its package, which Python then runs before torch.
    return any(is_startup_file(file.path) for file in package.files if "/" not in file.path)


def _with_requirements(names: Sequence[str], packages: Mapping[str, InstalledPackage]) -> set[str]:
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
    """Yield the names of the packages that one requires, extras left aside."""
    for requirement in package.requires:
        if "extra" not in str(requirement.marker):
            yield canonicalize_name(requirement.name)


def _identity(package: InstalledPackage, hashes: Collection[str]) -> str:
    record = _digest([package.record_text])
    locked = _digest(sorted(hashes))
    return f"{package.version} {record} {locked}"


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _stamps(packages: Iterable[InstalledPackage], root: Path) -> dict[str, Stamp]:
    """Return the stamps of the files of packages, but headers, and the bytecode that Python makes again."""
    stamps = {}
    for package in packages:
        site = package.record.parent.relative_to(root).as_posix()
        for file in package.files:
            if "/include/" in file.path or file.path.endswith(".pyc"):
                continue
            path = f"{site}/{file.path}"
            stamps[path] = file_stamp(f"{root}/{path}")
    return stamps


def _sizes_and_times(stamps: Mapping[str, Stamp]) -> dict[str, tuple[int, int]]:
    return {path: stamp[:2] for path, stamp in stamps.items()}


def installed_programs(folders: Sequence[str]) -> tuple[str, ...]:
    """Return the modules of torch's family, of known programs, and of what was compiled beside a torch.

    Nothing is imported: the records of the installations are read.

    Args:
        folders: Those on an interpreter's path.
    """
    return tuple(program_packages(map(Path, folders)))


def program_packages(folders: Iterable[Path]) -> dict[str, InstalledPackage]:
    """Return the package of each module that a proof tests beside torch, in the order of the modules."""
    known = load_catalog().family - {_TORCH}
    programs: dict[str, InstalledPackage] = {}
    for package in read_packages(folders):
        for module in _tested_modules(package, known):
            programs.setdefault(module, package)
    return dict(sorted(programs.items()))


def _tested_modules(package: InstalledPackage, known: Collection[str]) -> list[str]:
    """Return the modules of a package that a proof tests: those of its row, else the one it is imported by."""
    modules = [row.module for row in PROGRAMS if re.fullmatch(row.package, package.name)]
    is_extension = package.is_native and _TORCH in _requirements(package)
    if not modules and (package.name in known or is_extension):
        modules.append(_main_module(package))
    return modules


def _main_module(package: InstalledPackage) -> str:
    """Return the module that is named after the package, else the first that it has."""
    modules = []
    for file in package.files:
        match = _MODULE.fullmatch(file.path)
        if match:
            modules.append(match[1])
    for module in modules:
        if canonicalize_name(module) == package.name:
            return module
    if modules:
        return modules[0]
    # One file: its .dist-info has the name as it is written.
    name, _, _ = package.record.name.partition("-")
    return name
