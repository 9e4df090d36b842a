"""A machine in words: ``--gpu "RTX 5090" --driver 570.86 --os windows``."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.shell import quoted
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.gpus import find_gpu

_OLDEST_BRANCH = 100
"""No branch of drivers has a number below it, and no CUDA nor release of vGPU software one above."""
_ARCHITECTURE = re.compile(r"sm_?(\d{2,3})[af]?")


def machine_in_words(
    gpus: tuple[str, ...],
    driver: str | None = None,
    os: str | None = None,
    arch: str | None = None,
    glibc: str | None = None,
) -> Machine:
    """Return a machine of the names of its GPUs and its driver.

    Nothing else is known of it: not its memory, its Pythons or, unless it is given, its glibc. Neither macOS nor the
    GPUs of makers whose builds ask for no driver need one.

    Raises:
        UsageError: Nothing has one of the names, or the driver is missing.
    """
    machine = described_machine(gpus, driver, os, arch, glibc)
    if driver is None and requires_driver(machine):
        raise driver_missing(
            machine, "--gpu requires --driver: what runs on {} depends on it"
        )
    return machine


def driver_missing(machine: Machine, message: str) -> UsageError:
    """Return an error about the driver of a machine's GPUs, whose names are put into the message."""
    labels = [gpu.label for gpu in machine.gpus]
    hint = "Add --driver with the version that nvidia-smi shows"
    for label in labels:
        hint += f"\ngpuinstall plan --gpu {quoted(label)}"
    return UsageError("driver-missing", message.format(", ".join(labels)), hint=hint)


def described_machine(
    gpus: tuple[str, ...],
    driver: str | None = None,
    os: str | None = None,
    arch: str | None = None,
    glibc: str | None = None,
) -> Machine:
    """Return a machine as ``machine_in_words`` does, without a driver if none is given."""
    system, processor = _platform_in_words(gpus, driver, os, arch)
    cards = [gpu_in_words(name, index) for index, name in enumerate(gpus)]
    machine = Machine(system, processor, gpus=tuple(cards))
    if glibc:
        if system != "linux" or not re.fullmatch(r"2\.\d{1,2}", glibc):
            raise UsageError(
                "glibc-malformed",
                f"{glibc!r} is no glibc of {system}",
                hint="Run it again with --glibc 2.35",
            )
        machine = replace(
            machine,
            libc="glibc",
            glibc=glibc,
        )
    if driver is None:
        return machine
    return replace(machine, driver=Driver(driver_in_words(driver), found_via="words"))


def requires_driver(machine: Machine) -> bool:
    """Whether what runs on the GPUs depends on the driver."""
    return machine.os != "macos" and not all(gpu.architecture for gpu in machine.gpus)


def _platform_in_words(
    gpus: tuple[str, ...],
    driver: str | None,
    os: str | None,
    arch: str | None,
) -> tuple[str, str]:
    """Return the system and the processor that are meant: Windows by the form of its driver's number, ARM by the GPUs."""
    names = [
        find_gpu(name) for name in gpus if not _ARCHITECTURE.fullmatch(name.lower())
    ]
    systems = [os, *(gpu.os for gpu in names)]
    if driver and DriverVersion.of_windows(driver.strip()):
        systems.append("windows")
    system = next(filter(None, systems), "linux")
    if arch is None:
        if system == "macos":
            arch = "arm64"
        elif names and all(gpu.arm for gpu in names):
            arch = "aarch64"
        else:
            arch = "x86_64"
    return system, arch


def driver_in_words(text: str) -> DriverVersion:
    """Return a driver's version, as Windows writes it too.

    Raises:
        UsageError: It is none, such as a version of CUDA.
    """
    reason = f"{text!r} is not a driver version; CUDA and vGPU software have numbers of their own"
    try:
        version = DriverVersion.parse(text.strip())
    except ValueError as error:
        reason = str(error)
    else:
        if version.branch >= _OLDEST_BRANCH:
            return version
    raise UsageError(
        "driver-malformed",
        reason,
        hint='Give the "Driver Version" shown by nvidia-smi, or the branch alone: --driver 580',
    )


def gpu_in_words(name: str, index: int = 0) -> Gpu:
    """Return a GPU of its name, or of ``sm_89``.

    Raises:
        UsageError: Nothing has the name.
    """
    exact = _ARCHITECTURE.fullmatch(name.lower())
    if exact:
        return Gpu(
            index,
            name,
            compute_capability=ComputeCapability.from_sm(int(exact[1])),
            found_via="words",
        )
    product = find_gpu(name)
    return Gpu(
        index,
        f"{product.brand} {product.name}",
        compute_capability=product.capability,
        found_via="words",
        vendor=None if product.capability else product.maker,
        architecture=product.architecture,
    )
