"""A fast look at this machine and one of its environments: nothing is imported, no context is made on a GPU.

What is wrong here is told apart from what a text says: ``explain`` puts the two together.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from os.path import exists
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from gpuinstall.base.environment_paths import interpreter, packages_folders
from gpuinstall.base.files import open_regular, read_document, real_path
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import Value, field, replace
from gpuinstall.base.versions import CPU, Backend, torch_backend
from gpuinstall.catalog import Build, load_catalog
from gpuinstall.environments.packages import (
    InstalledPackage,
    read_packages,
    unmet_requirements,
)
from gpuinstall.machine.nvidia.toolchain import find_compiler
from gpuinstall.machine.probe import read_machine
from gpuinstall.machine.protocol import Code, Rules
from gpuinstall.machine.vendors import VENDORS, is_planned_for, rules_for, vendor_of
from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.torch_wheel import LISTING_LIBRARIES, parse_version

_MIB = 1 << 20
USUAL_SHARED_MEMORY = 64 * _MIB
"""What a container has if it was not told otherwise; NCCL and data loaders want more."""
LEAST_DISK = 200 * _MIB
_LOADER_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/cuda/lib64")
_FIRST_OF_NUMPY_2 = Version("2.3")
"""The first torch that was compiled with NumPy 2."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  nothing is written there
USUAL_FAULTS = {"F57", "F69", "F102", "F105", "F166"}
"""The entries of what machines that work have too: it decides between no causes."""
COMPANION_FAULTS = {"torchvision": "F47", "torchaudio": "F48"}


class LocalFault(NamedTuple):
    """What is wrong here."""

    id: str
    """Its entry in the table of failures."""
    message: str


class InstalledTorch(NamedTuple):
    """The torch of an environment, by its files."""

    version: str
    backend: Backend
    build: Build | None = None
    """With the architectures that it was compiled for; None: neither its files nor the catalogue tell them."""


class ThisMachine(Value):
    """What a look found."""

    machine: Machine
    venv: Path
    packages: tuple[InstalledPackage, ...] = ()
    torch: InstalledTorch | None = None
    environ: Mapping[str, str] = field(default_factory=os.environ.copy)

    @cached_property
    def rules(self) -> Rules:
        """The rules of the maker that torch is for."""
        kinds = (self.torch.backend.kind,) if self.torch else ()
        return rules_for(self.machine, load_catalog(), kinds)

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs that torch is for."""
        return [
            gpu
            for gpu in self.machine.gpus
            if vendor_of(gpu, self.machine) == self.rules.vendor
        ]

    def find_library(self, name: str) -> str | None:
        """Return where a library lies, in the environment or on the system.

        Args:
            name: Of its file, as the loader looks for it: ``libcudnn.so.9``.

        Returns:
            None: it is in none of the usual folders.
        """
        for folder in packages_folders(self.venv):
            # Where torch, NVIDIA's wheels, and auditwheel in any other put their libraries.
            for pattern in ("torch/lib", "nvidia/*/lib", "*.libs"):
                for path in folder.glob(f"{pattern}/{name}"):
                    return str(path)
        listed = self.environ.get("LD_LIBRARY_PATH", "").split(":")
        arch = f"{self.machine.arch}-linux-gnu"
        usual = [f"{folder}/{arch}" for folder in _LOADER_FOLDERS[:2]]
        places = (*filter(None, listed), *_LOADER_FOLDERS, *usual)
        return shutil.which(name, os.F_OK, os.pathsep.join(places))


def read_this_machine(
    venv: Path,
    machine: Machine | None = None,
) -> ThisMachine:
    """Look at this machine and at an environment.

    Args:
        venv: The environment, which need not be there.
        machine: The machine, if it was read already.
    """
    machine = machine or read_machine()
    packages = read_packages(packages_folders(venv))
    return ThisMachine(machine, venv, packages, _read_torch(venv, machine))


def _read_torch(
    venv: Path,
    machine: Machine,
) -> InstalledTorch | None:
    """Read the version and the build of an environment's torch from the text of its own files, which is not run.

    Args:
        venv: The environment.
        machine: Where it lies, for the catalogue's row of the build.

    Returns:
        None: it has no torch.
    """
    for folder in packages_folders(venv):
        text = ""
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", venv)
        version, toolkit, *_ = parse_version(text)
        if version:
            backend = torch_backend(version, toolkit)
            build = _build(version, backend, machine)
            code = _architectures(folder)
            # What torch itself lists counts before what the catalogue knows of its release.
            if build and code:
                build = replace(build, code=code)
            return InstalledTorch(version, backend, build)
    return None


def _architectures(folder: Path) -> tuple[str, ...]:
    """Return the architectures that torch's own library lists; empty if it has none."""
    for name in LISTING_LIBRARIES:
        with suppress(OSError, ValueError), open_regular(folder / name) as file:
            return read_flags(iter(lambda: file.read(_MIB), b""))
    return ()


def _build(version: str, backend: Backend, machine: Machine) -> Build | None:
    """Return the build as the catalogue has it."""
    with suppress(InvalidVersion):
        public = Version(Version(version).public)
        serving = load_catalog().serving(backend.kind)
        for build in serving.builds_for(machine.os, machine.arch):
            if build.torch == public and build.backend == backend:
                return build
    return None


def machine_problems(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield what the probe found, as far as the table of failures has it."""
    for problem in here.machine.problems:
        if problem.id:
            yield LocalFault(problem.id, problem.message)


def build_without_code(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield that the installed build has no code for a GPU."""
    build = here.torch and here.torch.build
    if not build or build.backend == CPU:
        return
    reasons = {gpu: here.rules.code(build, gpu) for gpu in here.gpus}
    without = [gpu for gpu, code in reasons.items() if not isinstance(code, Code)]
    # One of several cards is a case of its own: torch runs, until something is put onto that card.
    if without and len(without) < len(reasons):
        names = " and ".join(gpu.label for gpu in without)
        yield LocalFault("F40", f"torch {build.name} has no code for {names}")
    for gpu in without:
        code = " ".join(build.code)
        message = (
            f"torch {build.name} has code for {code}; {gpu.label} is {gpu.code_name}"
        )
        yield LocalFault(here.rules.no_code_cause(build.code, gpu), message)


def old_driver(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield that the driver does not run the installed build."""
    build = here.torch and here.torch.build
    if not build or not here.gpus:
        return
    reason = here.rules.against_driver(build)
    if reason:
        driver = here.machine.driver
        version = driver.version if driver else None
        is_570 = version is not None and version.branch in range(570, 580)
        is_blackwell = any(here.rules.rank(gpu) >= (10, 0) for gpu in here.gpus)
        # An older build, which is F02's way out, has no code for Blackwell.
        entry = "F39" if is_570 and is_blackwell else "F02"
        message = f"torch {build.name}: {reason.message}; here is {here.rules.driver}"
        yield LocalFault(entry, message)


def idle_gpus(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield that torch uses no GPU: its build is for the CPU, or for makers that have none here."""
    torch = here.torch
    if torch is None or (torch.backend != CPU and here.gpus):
        return
    for gpu in here.machine.gpus:
        if not is_planned_for(gpu, here.machine):
            continue
        vendor = VENDORS[vendor_of(gpu, here.machine) or ""]
        if torch.backend != CPU:
            message = f"torch {torch.version} is the {torch.backend} build, and the GPU is {gpu.label}"
            yield LocalFault(vendor.idle_causes[1], message)
        elif vendor.kind != CPU.kind:
            message = (
                f"torch {torch.version} is the CPU's build: {gpu.label} is not used"
            )
            yield LocalFault(vendor.idle_causes[0], message)


BUILD_CHECKS = (build_without_code, old_driver, idle_gpus)
"""What the files of torch tell of its build and this machine."""


def absent_torch(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield that an environment has no torch."""
    # Without a Python nothing lies there that could have one.
    if here.torch is None and exists(interpreter(here.venv)):
        yield LocalFault("F105", f"there is no torch in {here.venv}")


def other_companions(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield a torchvision or a torchaudio of another torch."""
    torch = here.torch
    if torch is None:
        return
    companions = [one for one in here.packages if one.name in COMPANION_FAULTS]
    versions = {"torch": torch.version}
    for package, requirement, version in unmet_requirements(companions, versions):
        # Of what else it requires nothing was looked up.
        if version:
            message = f"{package.name} {package.version} requires torch{requirement.specifier}, and {version} is installed"
            yield LocalFault(COMPANION_FAULTS[package.name], message)
    own = torch.version.partition("+")[2]
    for package in companions:
        label = package.version.partition("+")[2]
        if label and own and label != own:
            message = (
                f"{package.name} {package.version} is beside torch {torch.version}"
            )
            yield LocalFault(COMPANION_FAULTS[package.name], message)


def newer_numpy(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield a NumPy that torch was not compiled with."""
    versions = {package.name: package.version for package in here.packages}
    numpy = versions.get("numpy")
    with suppress(InvalidVersion):
        is_newer = numpy is not None and Version(numpy).major > 1
        if is_newer and here.torch and Version(here.torch.version) < _FIRST_OF_NUMPY_2:
            message = f"NumPy {numpy} is beside torch {here.torch.version}, which was compiled with NumPy 1"
            yield LocalFault("F66", message)


def lost_files(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield a torch whose files are gone."""
    for package in here.packages:
        if package.name == "torch" and package.lost:
            yield LocalFault("F167", f"{package.lost[0]} of torch is missing or cut")


def hidden_gpus(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield a variable that hides every GPU."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        devices = here.environ.get(name)
        if devices is not None and devices.strip() in {"", "-1", "NoDevFiles"}:
            yield LocalFault("F15", f"{name} is {devices!r}: no GPU is visible")


def compiler_of_another_cuda(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield that there is no nvcc, or one of another CUDA than torch's."""
    toolkit = here.torch and here.torch.backend.version
    compiler = find_compiler(here.environ)
    if compiler is None:
        message = "there is no nvcc: neither CUDA_HOME nor PATH leads to one"
        yield LocalFault("F57", message)
    elif toolkit and not compiler.serves(toolkit):
        message = f"{compiler.path} is of CUDA {compiler.version}, torch of {toolkit}"
        yield LocalFault("F57", message)


def full_places(_here: ThisMachine) -> Iterator[LocalFault]:
    """Yield a shared memory that is small, and a disk that is full."""
    with suppress(OSError):
        shared = shutil.disk_usage(_SHARED_MEMORY)
        if shared.total <= USUAL_SHARED_MEMORY:
            message = f"{_SHARED_MEMORY} has {shared.total // _MIB} MiB"
            yield LocalFault("F69", message)
    for place in (Path.home(), Path.cwd()):
        with suppress(OSError):
            free = shutil.disk_usage(place).free
            if free < LEAST_DISK:
                yield LocalFault("F70", f"{place} has {free // _MIB} MiB free")


def other_libraries(here: ThisMachine) -> Iterator[LocalFault]:
    """Yield folders of LD_LIBRARY_PATH with libraries that torch brings itself, but for the environment's own."""
    own = real_path(here.venv)
    for folder in filter(None, here.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if real_path(folder).is_relative_to(own):
            continue
        with suppress(OSError):
            names = os.listdir(folder)  # noqa: PTH208  as the loader takes it
            for library, entry in (("libcudnn", "F51"), ("libnvJitLink", "F49")):
                if any(name.startswith(library) for name in names):
                    message = (
                        f"LD_LIBRARY_PATH has {folder}, where another {library} lies"
                    )
                    yield LocalFault(entry, message)


_Checks = tuple[Callable[[ThisMachine], Iterator[LocalFault]], ...]
MACHINE_CHECKS: _Checks = (machine_problems, hidden_gpus, full_places)
"""What every program meets."""
LOCAL_CHECKS: _Checks = (
    *MACHINE_CHECKS,
    *BUILD_CHECKS,
    absent_torch,
    other_companions,
    newer_numpy,
    lost_files,
    compiler_of_another_cuda,
    other_libraries,
)
