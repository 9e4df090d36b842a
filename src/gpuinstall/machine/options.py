"""Create a machine from options such as ``--gpu "RTX 5090" --driver 570``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuinstall.base.advice import make_change, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.catalog.gpus import Product, find_gpu

_OLDEST_BRANCH = 100
"""The lowest driver branch. CUDA and vGPU versions are lower."""


def machine_from_options(
    gpus: tuple[str, ...],
    driver: str | None = None,
    os: str | None = None,
    arch: str | None = None,
    glibc: str | None = None,
    *,
    assumes_driver: bool = False,
) -> Machine:
    """Return a machine with these GPUs and this driver.

    The machine's memory and Python versions are unknown. The driver is optional on macOS and for GPUs of vendors
    without driver requirements.

    Args:
        gpus: The names of the GPUs, or architectures such as ``sm_89``.
        driver: The version of the driver, or its branch.
        os: The operating system. None selects the system of the GPUs or driver, or Linux.
        arch: The architecture. None selects the architecture of the GPUs' hosts, or x86_64.
        glibc: The version of glibc.
        assumes_driver: Whether to assume the latest driver for the GPUs without ``driver``.

    Raises:
        UsageError: A name is unknown, or the driver is missing.
    """
    products = [_find_product(name) for name in gpus]
    cards = [_create_gpu(*numbered) for numbered in enumerate(products)]
    systems = [os, *(product.os for product in products)]
    if driver and DriverVersion.from_windows(driver.strip()):
        systems.append("windows")
    system = next(filter(None, systems), "linux")
    if arch is None:
        has_only_arm = products and all(product.arm for product in products)
        is_arm = system == "macos" or has_only_arm
        arm = "aarch64" if system == "linux" else "arm64"
        arch = arm if is_arm else "x86_64"
    machine = Machine(system, arch, gpus=tuple(cards))
    if glibc:
        if system != "linux" or not re.fullmatch(r"2\.\d{1,2}", glibc):
            raise UsageError(
                "glibc-malformed",
                f"{glibc!r} is not a glibc version for {system}",
                hint=make_change("--glibc", "2.35"),
            )
        machine = replace(machine, libc="glibc", glibc=glibc)
    if driver is not None:
        version = parse_driver(driver)
        return replace(machine, driver=Driver(version, found_via="words"))
    if system == "macos" or all(gpu.architecture for gpu in cards):
        return machine
    labels = [gpu.label for gpu in cards]
    hint = tuple(make_command("plan", "--gpu", label) for label in labels)
    branch = _find_newest_branch(cards)
    if branch is None:
        message = f"no driver supports {' and '.join(labels)}"
        raise UsageError("no-common-driver", message, hint=hint)
    if assumes_driver:
        version = DriverVersion.parse(str(branch))
        return replace(machine, driver=Driver(version, found_via="assumed"))
    raise UsageError(
        "driver-missing",
        f"--gpu requires --driver: the builds for {', '.join(labels)} depend on it",
        hint=make_change(
            "--driver", str(branch), note="or the version that nvidia-smi shows"
        ),
    )


def _find_newest_branch(gpus: Iterable[Gpu]) -> int | None:
    """Return the latest driver branch that supports all GPUs, if any."""
    drivers = load_drivers()
    newest, oldest = drivers.branches[-1].branch, 0
    for capability in filter(None, [gpu.compute_capability for gpu in gpus]):
        generation = drivers.generation(capability)
        if generation and generation.last_branch:
            newest = min(newest, generation.last_branch)
        if capability in drivers.first_drivers:
            first = drivers.first_drivers[capability].linux.branch
            oldest = max(oldest, first)
    return newest if newest >= oldest else None


def parse_driver(text: str) -> DriverVersion:
    """Parse a driver version in the format of Linux or Windows.

    Raises:
        UsageError: The text is not a driver version, but, for example, a CUDA version.
    """
    reason = f"{text!r} is not a driver version; CUDA and vGPU software have different version numbers"
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
        hint='Pass the "Driver Version" that nvidia-smi shows, or only its branch: --driver 580',
    )


def _find_product(name: str) -> Product:
    """Find a GPU by its name, or an architecture such as ``sm_89``.

    Raises:
        UsageError: The name is unknown.
    """
    exact = re.fullmatch(r"sm_?(\d{2,3})[af]?", name.lower())
    if exact is None:
        return find_gpu(name)
    capability = ComputeCapability.from_sm(int(exact[1]))
    return Product(name, name, brand="", capability=capability)


def _create_gpu(index: int, found: Product) -> Gpu:
    return Gpu(
        index,
        f"{found.brand} {found.name}".strip(),
        compute_capability=found.capability,
        found_via="words",
        vendor=None if found.capability else found.maker,
        architecture=found.architecture,
    )
