"""What a proof covers: torch, the programs that are tested beside it, and the packages that these load."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli
from packaging.utils import canonicalize_name

from gpuinstall.catalog import load_catalog
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.environments.paths import packages_folders
from gpuinstall.proof_record import (
    ProofRecord,
    Stamp,
    file_stamp,
    is_startup_file,
    stamped_python,
    startup_files,
)
from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_TORCH = "torch"
_ROOTS = (_TORCH, "numpy")  # a check of torch's own uses numpy, which torch does not require
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
        as copies where a file system has no links: their inodes do not count.
        """
        if record.python != stamped_python(str(self.venv)):
            return False
        if dict(self.packages) != record.packages or dict(self.startup) != record.startup:
            return False
        unchanged = self.files.keys() - set(self.new_programs(record))
        return all(
            _same_contents(self.files[owner], record.files.get(owner, {})) for owner in unchanged
        )

    def new_programs(self, record: ProofRecord) -> tuple[str, ...]:
        """Return the modules to be tested that a record does not cover as they are now."""
        return tuple(
            module
            for module, identity in self.programs.items()
            if record.programs.get(module) != identity
        )


def read_cover(venv: Path, hashes: Mapping[str, Collection[str]]) -> ProofCover:
    """Read what a proof of an environment covers; ``hashes`` are the locked ones of each package."""
    root = venv.resolve()
    folders = packages_folders(root)
    packages = {package.name: package for package in read_packages(folders)}
    identities = {
        name: _identity(package, hashes.get(name, ())) for name, package in packages.items()
    }
    plugins = [name for name, package in packages.items() if _PLUGINS in package.entry_points]
    # A .pth file may import a module of its package, which Python then runs before torch.
    starting = [name for name, package in packages.items() if _runs_at_start(package)]
    core = _required((*_ROOTS, *plugins, *starting), packages)
    programs = program_packages(folders)
    files = {_TORCH: _stamps([packages[name] for name in sorted(core)], root)}
    for module, package in programs.items():
        files[module] = _stamps([package], root)
    return ProofCover(
        venv=venv,
        packages={name: identities[name] for name in sorted(core)},
        programs={
            module: _digest(
                identities[name] for name in sorted(_required((package.name,), packages) - core)
            )
            for module, package in programs.items()
        },
        files=files,
        startup=startup_files(
            str(root), [folder.relative_to(root).as_posix() for folder in folders]
        ),
    )


def installed_programs(folders: Sequence[str]) -> tuple[str, ...]:
    """Name the modules of torch's family, of the programs that are known, and of what was compiled beside a torch.

    ``folders`` are those on an interpreter's path. Nothing is imported: the records of the installations are read.
    """
    return tuple(program_packages(map(Path, folders)))


def program_packages(folders: Iterable[Path]) -> dict[str, InstalledPackage]:
    """Return the package of each module that a proof tests beside torch, in the order of the modules."""
    known = (load_catalog().family | {row.package for row in PROGRAMS}) - {_TORCH}
    found: dict[str, InstalledPackage] = {}
    for package in read_packages(folders):
        by_row = {
            module
            for module, row in load_rows().items()
            if re.fullmatch(row["packages"], package.name)
        }
        modules = by_row or (
            {_module(package)} if package.name in known or _is_extension(package) else set()
        )
        for module in modules:
            found.setdefault(module, package)
    return dict(sorted(found.items()))


@cache
def load_rows() -> dict[str, dict[str, Any]]:
    """The rows of ``libraries.toml``, by module: libraries and extensions that are not torch's."""
    text = Path(__file__).with_name("data").joinpath("libraries.toml").read_text("utf-8")
    return {row["module"]: row for row in tomli.loads(text)["libraries"]}


def _is_extension(package: InstalledPackage) -> bool:
    """Say whether a package has compiled code and requires torch, extras left aside."""
    return package.is_native and any(
        canonicalize_name(requirement.name) == _TORCH and "extra" not in str(requirement.marker)
        for requirement in package.requires
    )


def _module(package: InstalledPackage) -> str:
    modules = [match[1] for file in package.files if (match := _MODULE.fullmatch(file.path))]
    modules = modules or [package.record.name.partition("-")[0]]
    return next(
        (module for module in modules if canonicalize_name(module) == package.name), modules[0]
    )


def _required(names: Iterable[str], packages: Mapping[str, InstalledPackage]) -> set[str]:
    """Return the installed packages among ``names``, and all that these require, extras left aside."""
    found = set[str]()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        package = packages.get(name)
        if package is None or name in found:
            continue
        found.add(name)
        unconditional = [one for one in package.requires if "extra" not in str(one.marker)]
        waiting.extend(canonicalize_name(requirement.name) for requirement in unconditional)
    return found


def _identity(package: InstalledPackage, hashes: Collection[str]) -> str:
    return f"{package.version} {_digest([package.record_text])} {_digest(sorted(hashes))}"


def _runs_at_start(package: InstalledPackage) -> bool:
    return any(is_startup_file(file.path) for file in package.files if "/" not in file.path)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _stamps(packages: Iterable[InstalledPackage], root: Path) -> dict[str, Stamp]:
    """Return the stamps of the files of packages, but headers, and the bytecode that Python makes again."""
    stamps = {}
    for package in packages:
        site = package.record.parent.relative_to(root).as_posix()
        for file in package.files:
            if "/include/" not in file.path and not file.path.endswith(".pyc"):
                path = f"{site}/{file.path}"
                stamps[path] = file_stamp(f"{root}/{path}")
    return stamps


def _same_contents(stamps: Mapping[str, Stamp], recorded: Mapping[str, Stamp]) -> bool:
    """Whether both have the same files, of the same sizes and times."""
    if stamps.keys() != recorded.keys():
        return False
    return all(stamp[:2] == recorded[path][:2] for path, stamp in stamps.items())
