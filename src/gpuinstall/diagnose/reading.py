"""Files and facts of this machine and an environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from packaging.version import InvalidVersion, Version

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.files import open_regular, read_document
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import Value, field, replace
from gpuinstall.base.versions import Backend, torch_backend
from gpuinstall.catalog import Build, load_catalog
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.machine.protocol import Rules
from gpuinstall.machine.vendors import rules_for, vendor_of
from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.torch_wheel import LISTING_LIBRARIES, parse_version

_MIB = 1 << 20
_LOADER_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/cuda/lib64")


class InstalledTorch(Value):
    """The torch of an environment."""

    version: str
    backend: Backend
    build: Build | None = None
    """The build, with the architectures in its files; None if unknown."""


class LocalReading(Value):
    """A machine, an environment, and the variables of this process."""

    machine: Machine
    venv: Path
    packages: tuple[InstalledPackage, ...] = ()
    torch: InstalledTorch | None = None
    environ: Mapping[str, str] = field(default_factory=os.environ.copy)
    libraries: Mapping[str, str | None] = {}
    """The libraries in question, with their paths; None if not found."""

    @cached_property
    def rules(self) -> Rules:
        """The rules of the vendor that torch is for."""
        kinds = (self.torch.backend.kind,) if self.torch else ()
        return rules_for(self.machine, load_catalog(), kinds)

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs that torch is for."""
        return self.gpus_of(self.rules.vendor)

    def gpus_of(self, vendor: str) -> list[Gpu]:
        """Return the GPUs of a vendor."""
        machine = self.machine
        return [gpu for gpu in machine.gpus if vendor_of(gpu, machine) == vendor]

    def find_library(self, name: str) -> str | None:
        """Return the path of a library in the environment or system."""
        for folder in packages_folders(self.venv):
            # The folders of torch, of NVIDIA's wheels, and of auditwheel.
            for pattern in ("torch/lib", "nvidia/*/lib", "*.libs"):
                for path in folder.glob(f"{pattern}/{name}"):
                    return str(path)
        listed = self.environ.get("LD_LIBRARY_PATH", "").split(":")
        arch = f"{self.machine.arch}-linux-gnu"
        usual = [f"{folder}/{arch}" for folder in _LOADER_FOLDERS[:2]]
        places = (*filter(None, listed), *_LOADER_FOLDERS, *usual)
        return shutil.which(name, os.F_OK, os.pathsep.join(places))


def read_environment(venv: Path, machine: Machine) -> LocalReading:
    """Read the files of an environment, which may be missing."""
    packages = read_packages(packages_folders(venv))
    torch = _read_torch(venv, machine) or _listed_torch(packages, machine)
    return LocalReading(machine, venv, packages, torch)


def _read_torch(venv: Path, machine: Machine) -> InstalledTorch | None:
    """Read the version and architectures from the files of torch."""
    for folder in packages_folders(venv):
        text = ""
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", venv)
        version, toolkit, *_ = parse_version(text)
        if version:
            torch = _torch_of(version, torch_backend(version, toolkit), machine)
            code = _architectures(folder)
            # The list in torch's own library is more exact than the catalog.
            if torch.build and code:
                return replace(torch, build=replace(torch.build, code=code))
            return torch
    return None


def _listed_torch(
    packages: tuple[InstalledPackage, ...], machine: Machine
) -> InstalledTorch | None:
    """Return the torch in an environment's metadata, if it has a label."""
    for package in packages:
        label = package.version.partition("+")[2]
        if package.name == "torch" and label:
            return _torch_of(
                package.version, torch_backend(package.version, None), machine
            )
    return None


def _torch_of(version: str, backend: Backend, machine: Machine) -> InstalledTorch:
    with suppress(InvalidVersion):
        public = Version(Version(version).public)
        serving = load_catalog().serving(backend.kind)
        for build in serving.builds_for(machine.os, machine.arch):
            if build.torch == public and build.backend == backend:
                return InstalledTorch(version, backend, build)
    return InstalledTorch(version, backend)


def _architectures(folder: Path) -> tuple[str, ...]:
    """Return the architectures in torch's own library, if it has any."""
    for name in LISTING_LIBRARIES:
        with suppress(OSError, ValueError), open_regular(folder / name) as file:
            return read_flags(iter(lambda: file.read(_MIB), b""))
    return ()
