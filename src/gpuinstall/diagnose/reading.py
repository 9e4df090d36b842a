"""Read facts about this machine and the packages in an environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from packaging.version import InvalidVersion

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.files import open_regular, read_document
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import Value, field, replace
from gpuinstall.base.versions import (
    Backend,
    find_torch_backend,
    parse_public_version,
)
from gpuinstall.catalog import Build, Catalog
from gpuinstall.environments.environment import read_markers
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.machine.protocol import Rules
from gpuinstall.machine.vendors import create_rules, find_vendor
from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.learned.store import load_extended_catalog
from gpuinstall.wheels.torch_wheel import LISTING_LIBRARIES, parse_version

_MIB = 1 << 20


class InstalledTorch(Value):
    """Torch package that is installed in an environment."""

    version: str
    backend: Backend
    build: Build | None = None
    """The torch build, with architectures from its files. None if unknown."""


class LocalReading(Value):
    """Facts about a machine, an environment, and environment variables."""

    machine: Machine
    venv: Path
    markers: Mapping[str, str]
    """The marker values of the environment."""
    packages: tuple[InstalledPackage, ...] = ()
    torch: InstalledTorch | None = None
    environ: Mapping[str, str] = field(default_factory=os.environ.copy)
    catalog: Catalog = field(default_factory=load_extended_catalog)

    @property
    def by_name(self) -> Mapping[str, InstalledPackage]:
        """The installed packages by name."""
        return {package.name: package for package in self.packages}

    @cached_property
    def rules(self) -> Rules:
        """The rules for the GPU vendor that torch was built for."""
        kinds = (self.torch.backend.kind,) if self.torch else ()
        return create_rules(self.machine, self.catalog, kinds)

    @property
    def gpus(self) -> list[Gpu]:
        """The machine's GPUs of the vendor that torch was built for."""
        return self.gpus_of(self.rules.vendor)

    def gpus_of(self, vendor: str) -> list[Gpu]:
        """Return the machine's GPUs of one vendor."""
        machine = self.machine
        return [gpu for gpu in machine.gpus if find_vendor(gpu, machine) == vendor]

    def find_torch(self, version: str, backend: Backend) -> InstalledTorch:
        """Find an installed torch, and its build if the catalog lists it."""
        serving = self.catalog.with_kind(backend.kind)
        with suppress(InvalidVersion):
            public = parse_public_version(version)
            for build in serving.builds_for(self.machine.os, self.machine.arch):
                if build.torch == public and build.backend == backend:
                    return InstalledTorch(version, backend, build)
        return InstalledTorch(version, backend)


def read_environment(venv: Path, machine: Machine) -> LocalReading:
    """Read the files of an environment, which may be missing."""
    packages = read_packages(packages_folders(venv))
    reading = LocalReading(machine, venv, read_markers(venv, machine), packages)
    return replace(reading, torch=_read_torch(reading))


def read_version(package: InstalledPackage) -> str:
    """Return a package's version with its label, which METADATA may omit."""
    folder = package.record.parent
    with suppress(OSError, ValueError):
        text = read_document(folder / package.name / "version.py", folder)
        return parse_version(text).version or package.version
    return package.version


def _read_torch(reading: LocalReading) -> InstalledTorch | None:
    """Read the version and architectures of torch from files or metadata."""
    for folder in packages_folders(reading.venv):
        text = ""
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", reading.venv)
        version, toolkit, *_ = parse_version(text)
        if version:
            torch = reading.find_torch(version, find_torch_backend(version, toolkit))
            code = _architectures(folder)
            # The list in torch's own library is more precise than the catalog.
            if torch.build and code:
                return replace(torch, build=replace(torch.build, code=code))
            return torch
    package = reading.by_name.get("torch")
    # Without a local version label, the backend is unknown.
    if package is None or "+" not in package.version:
        return None
    return reading.find_torch(
        package.version, find_torch_backend(package.version, None)
    )


def _architectures(folder: Path) -> tuple[str, ...]:
    """Return the GPU architectures that torch's library lists, if any."""
    for name in LISTING_LIBRARIES:
        with suppress(OSError, ValueError), open_regular(folder / name) as file:
            return read_flags(iter(lambda: file.read(_MIB), b""))
    return ()
