"""Facts of a machine that confirm or refute failures.

The key ``here`` of a failure names a predicate.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.files import real_path
from gpuinstall.base.machine import Gpu
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.failures.table import Failure
from gpuinstall.diagnose.reading import LocalReading
from gpuinstall.environments.packages import unmet_requirements
from gpuinstall.machine.nvidia.toolchain import find_compiler
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import VENDORS, is_planned_for, vendor_of

_MIB = 1 << 20
USUAL_SHARED_MEMORY = 64 * _MIB
"""The default of a container. NCCL and data loaders require more."""
LEAST_DISK = 200 * _MIB
_FIRST_OF_NUMPY_2 = Version("2.3")
"""The first torch that was compiled with NumPy 2."""
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  nothing is written there
COMPANION_FAULTS = {"torchvision": "F47", "torchaudio": "F48"}
_FIRST_OF_TURING = (7, 5)
_FIRST_OF_AMPERE = (8, 0)


class LocalFact(NamedTuple):
    """A fact that confirms or refutes a failure."""

    holds: bool
    message: str


class Facts(NamedTuple):
    """The result of a predicate."""

    causes: Mapping[str, str] = {}
    """The messages of confirmed failures."""
    refutation: str = ""
    """The fact that refutes all other failures; empty if unknown."""


Predicate = Callable[[LocalReading], Facts]


def local_fact(failure: Failure, reading: LocalReading) -> LocalFact | None:
    """Return the fact that confirms or refutes a failure; None if unknown."""
    for problem in reading.machine.problems:
        if problem.id == failure.id:
            return LocalFact(True, problem.message)
    facts = PREDICATES[failure.here](reading) if failure.here else Facts()
    if failure.id in facts.causes:
        return LocalFact(True, facts.causes[failure.id])
    return LocalFact(False, facts.refutation) if facts.refutation else None


def _names(gpus: list[Gpu]) -> str:
    return " and ".join(dict.fromkeys(gpu.label for gpu in gpus))


def driver_silent(reading: LocalReading) -> Facts:
    """Refute faults of a driver that lists every NVIDIA GPU."""
    machine = reading.machine
    driver = machine.driver
    gpus = reading.gpus_of("nvidia")
    is_partial = machine.blocking or any(gpu.found_via == "pci" for gpu in gpus)
    if not gpus or not driver or not driver.version or is_partial:
        return Facts()
    return Facts(
        refutation=f"driver {driver.version} answers here and lists {_names(gpus)}"
    )


def cuda_refuses(reading: LocalReading) -> Facts:
    """Refute errors of CUDA's start if the probe found none."""
    problems = reading.machine.problems
    # Each error of cuInit is a problem.
    if any(one.blocking or one.code == "driver-not-asked" for one in problems):
        return Facts()
    refutation = driver_silent(reading).refutation
    return Facts(refutation=refutation and f"CUDA starts here: {refutation}")


def gpu_in_container(reading: LocalReading) -> Facts:
    """Refute a container without a GPU if this container has one."""
    if reading.machine.environment.container:
        return driver_silent(reading)
    return Facts()


def driver_floor(reading: LocalReading) -> Facts:
    """Compare the driver with the CUDA of torch, or of every build."""
    driver, torch, rules = reading.machine.driver, reading.torch, reading.rules
    if not reading.gpus or not driver or not (driver.version or driver.cuda):
        return Facts()
    build = torch.build if torch and torch.backend != CPU else None
    if build is None:
        rows = rules.catalog.builds_for(reading.machine.os, reading.machine.arch)
        if any(rules.against_driver(row) for row in rows):
            return Facts()
        return Facts(refutation=f"{rules.driver} here runs every build of PyTorch")
    reason = rules.against_driver(build)
    if reason is None:
        return Facts(refutation=f"{rules.driver} here runs torch {build.name}")
    version = driver.version
    is_570 = version is not None and version.branch in range(570, 580)
    is_blackwell = any(rules.rank(gpu) >= (10, 0) for gpu in reading.gpus)
    # F02 suggests an older build, which has no code for Blackwell.
    entry = "F39" if is_570 and is_blackwell else "F02"
    message = f"torch {build.name}: {reason.message}; here is {rules.driver}"
    return Facts({entry: message})


def driver_525(reading: LocalReading) -> Facts:
    """Refute the faults of driver 525 with another driver."""
    driver = reading.machine.driver
    if driver and driver.version and driver.version.branch not in range(525, 530):
        return Facts(refutation=f"driver {driver.version} is installed here")
    return Facts()


def code(reading: LocalReading) -> Facts:
    """Compare the code of torch with the GPUs."""
    torch, gpus, rules = reading.torch, reading.gpus, reading.rules
    if not gpus or torch is None:
        return Facts()
    if torch.backend == CPU:
        return Facts(
            refutation=f"torch {torch.version} here is the CPU build: the error comes from another environment"
        )
    build = torch.build
    if build is None:
        return Facts()
    without = [gpu for gpu in gpus if not isinstance(rules.code(build, gpu), Code)]
    if not without:
        return Facts(
            refutation=f"torch {build.name} here has code for this {_names(gpus)}: "
            "the error comes from an extension, or from another environment"
        )
    causes = {}
    # torch runs on the others until a program uses one of these.
    if len(without) < len(gpus):
        causes["F40"] = f"torch {build.name} has no code for {_names(without)}"
    listed = " ".join(build.code)
    for gpu in without:
        entry = rules.no_code_cause(build.code, gpu)
        causes[entry] = (
            f"torch {build.name} has code for {listed}; {gpu.label} is {gpu.code_name}"
        )
    return Facts(causes, next(reversed(causes.values())))


def old_gpu(reading: LocalReading) -> Facts:
    """Refute the faults of GPUs before Turing."""
    return _at_least(reading, _FIRST_OF_TURING)


def before_ampere(reading: LocalReading) -> Facts:
    """Compare the GPUs with the minimum of FlashAttention 2 and bfloat16."""
    old = _below(reading, _FIRST_OF_AMPERE)
    if old:
        return Facts({"F80": f"{_names(old)} is {old[0].code_name}"})
    return _at_least(reading, _FIRST_OF_AMPERE)


def _below(reading: LocalReading, capability: tuple[int, int]) -> list[Gpu]:
    gpus = reading.gpus_of("nvidia")
    return [
        gpu
        for gpu in gpus
        if gpu.compute_capability and gpu.compute_capability < capability
    ]


def _at_least(reading: LocalReading, capability: tuple[int, int]) -> Facts:
    gpus = reading.gpus_of("nvidia")
    if not gpus or _below(reading, capability):
        return Facts()
    if any(gpu.compute_capability is None for gpu in gpus):
        return Facts()
    return Facts(refutation=f"{_names(gpus)} here is {gpus[0].code_name}")


def idle(reading: LocalReading) -> Facts:
    """Report GPUs that torch cannot use: a CPU build, or another vendor's."""
    torch = reading.torch
    if torch is None:
        return Facts()
    if torch.backend != CPU and reading.gpus:
        message = f"torch {torch.version} here is a build for {_names(reading.gpus)}: the error comes from another environment"
        return Facts(refutation=message)
    causes = {}
    for gpu in reading.machine.gpus:
        if not is_planned_for(gpu, reading.machine):
            continue
        vendor = VENDORS[vendor_of(gpu, reading.machine) or ""]
        if torch.backend != CPU:
            causes[vendor.idle_causes[1]] = (
                f"torch {torch.version} is the {torch.backend} build, and the GPU is {gpu.label}"
            )
        elif vendor.kind != CPU.kind:
            causes[vendor.idle_causes[0]] = (
                f"torch {torch.version} is the CPU build, which does not use {gpu.label}"
            )
    return Facts(causes)


def absent_torch(reading: LocalReading) -> Facts:
    """Report an environment without torch."""
    # An environment without Python cannot have torch.
    if reading.torch is None and exists(interpreter(reading.venv)):
        return Facts({"F105": f"torch is not installed in {reading.venv}"})
    return Facts()


def companions(reading: LocalReading) -> Facts:
    """Compare torchvision and torchaudio with torch."""
    torch = reading.torch
    if torch is None:
        return Facts()
    installed = [one for one in reading.packages if one.name in COMPANION_FAULTS]
    causes = {}
    own = torch.version.partition("+")[2]
    for package in installed:
        label = package.version.partition("+")[2]
        if label and own and label != own:
            causes[COMPANION_FAULTS[package.name]] = (
                f"{package.name} {package.version} is next to torch {torch.version}"
            )
    versions = {"torch": torch.version}
    for package, requirement, version in unmet_requirements(installed, versions):
        # Only torch's version was read.
        if version:
            causes[COMPANION_FAULTS[package.name]] = (
                f"{package.name} {package.version} requires torch{requirement.specifier}, and {version} is installed"
            )
    if {one.name for one in installed} < COMPANION_FAULTS.keys():
        return Facts(causes)
    return Facts(causes, f"torchvision and torchaudio here match torch {torch.version}")


def numpy(reading: LocalReading) -> Facts:
    """Compare NumPy with the one that torch was compiled with."""
    versions = {package.name: package.version for package in reading.packages}
    installed = versions.get("numpy")
    with suppress(InvalidVersion):
        if installed is None or reading.torch is None:
            return Facts()
        if (
            Version(installed).major > 1
            and Version(reading.torch.version) < _FIRST_OF_NUMPY_2
        ):
            message = f"NumPy {installed} is next to torch {reading.torch.version}, which was compiled with NumPy 1"
            return Facts({"F66": message})
        if Version(installed).major == 1:
            return Facts(refutation=f"NumPy {installed} is installed here")
    return Facts()


def lost_files(reading: LocalReading) -> Facts:
    """Report missing files of torch."""
    for package in reading.packages:
        if package.name == "torch" and package.lost:
            return Facts(
                {"F167": f"{package.lost[0]} of torch is missing or truncated"}
            )
    return Facts()


def hidden_gpus(reading: LocalReading) -> Facts:
    """Report a variable that hides every GPU."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        devices = reading.environ.get(name)
        if devices is not None and devices.strip() in {"", "-1", "NoDevFiles"}:
            return Facts({"F15": f"{name} is {devices!r}: no GPU is visible"})
    return Facts()


def mig(reading: LocalReading) -> Facts:
    """Refute the faults of MIG without a GPU in MIG mode."""
    gpus = reading.gpus_of("nvidia")
    if not gpus or any(gpu.mig for gpu in gpus):
        return Facts()
    return Facts(refutation="no GPU here is in MIG mode")


def compiler(reading: LocalReading) -> Facts:
    """Compare nvcc with the CUDA of torch."""
    toolkit = reading.torch and reading.torch.backend.version
    found = find_compiler(reading.environ)
    if found is None:
        return Facts({"F57": "neither CUDA_HOME nor PATH has an nvcc"})
    message = f"{found.path} is of CUDA {found.version}"
    if not toolkit:
        return Facts()
    if found.serves(toolkit):
        return Facts(refutation=f"{message}, and torch of {toolkit}")
    return Facts({"F57": f"{message}, torch of {toolkit}"})


def shared_memory(_reading: LocalReading) -> Facts:
    """Report a small shared memory."""
    with suppress(OSError):
        total = shutil.disk_usage(_SHARED_MEMORY).total
        if total <= USUAL_SHARED_MEMORY:
            return Facts({"F69": f"{_SHARED_MEMORY} has {total // _MIB} MiB"})
    return Facts()


def disk(_reading: LocalReading) -> Facts:
    """Report a full disk."""
    for place in (Path.home(), Path.cwd()):
        with suppress(OSError):
            free = shutil.disk_usage(place).free
            if free < LEAST_DISK:
                return Facts({"F70": f"{place} has {free // _MIB} MiB free"})
    return Facts()


def other_libraries(reading: LocalReading) -> Facts:
    """Report folders of LD_LIBRARY_PATH with copies of torch's libraries."""
    own = real_path(reading.venv)
    causes = {}
    for folder in filter(None, reading.environ.get("LD_LIBRARY_PATH", "").split(":")):
        if real_path(folder).is_relative_to(own):
            continue
        with suppress(OSError):
            names = os.listdir(folder)  # noqa: PTH208  the loader reads this path
            for library, entry in (("libcudnn", "F51"), ("libnvJitLink", "F49")):
                if any(name.startswith(library) for name in names):
                    causes[entry] = (
                        f"LD_LIBRARY_PATH has {folder}, which contains another {library}"
                    )
    return Facts(causes)


def libraries(reading: LocalReading) -> Facts:
    """Report libraries of a text that are not on this machine."""
    # Without torch, nothing was installed that could have them.
    if reading.torch is None:
        return Facts()
    for name, path in reading.libraries.items():
        if path is None:
            message = f"{name} is neither in {reading.venv} nor on the system"
            return Facts({"F102": message, "F166": message})
    return Facts()


def _of_vendor(vendor: str) -> Predicate:
    """Return a predicate that refutes the faults of a vendor without a GPU."""

    def predicate(reading: LocalReading) -> Facts:
        gpus = reading.machine.gpus
        if not gpus or reading.gpus_of(vendor):
            return Facts()
        return Facts(refutation=f"the GPU here is {_names([*gpus])}")

    return predicate


def _of_platform(*keys: str) -> Predicate:
    """Return a predicate that refutes the faults of other platforms."""

    def predicate(reading: LocalReading) -> Facts:
        machine = reading.machine
        environment = machine.environment
        places = {machine.os, "wsl" if environment.wsl else ""}
        places.add("jetson" if environment.jetson else "")
        if places.isdisjoint(keys):
            return Facts(
                refutation=f"this machine runs {machine.distribution or machine.os}"
            )
        return Facts()

    return predicate


PREDICATES: Mapping[str, Predicate] = {
    "absent-torch": absent_torch,
    "amd": _of_vendor("amd"),
    "before-ampere": before_ampere,
    "code": code,
    "companions": companions,
    "compiler": compiler,
    "cuda-refuses": cuda_refuses,
    "disk": disk,
    "driver-525": driver_525,
    "driver-floor": driver_floor,
    "driver-silent": driver_silent,
    "hidden-gpus": hidden_gpus,
    "idle": idle,
    "in-container": gpu_in_container,
    "intel": _of_vendor("intel"),
    "jetson": _of_platform("jetson"),
    "libraries": libraries,
    "lost-files": lost_files,
    "macos": _of_platform("macos"),
    "mig": mig,
    "numpy": numpy,
    "old-gpu": old_gpu,
    "other-libraries": other_libraries,
    "shared-memory": shared_memory,
    "windows": _of_platform("windows"),
    "wsl": _of_platform("wsl"),
}
