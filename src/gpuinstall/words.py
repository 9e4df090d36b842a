"""A machine in words: ``--gpu "RTX 5090" --driver 570.86 --os windows``."""

from __future__ import annotations

import re
from itertools import chain

from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpu_names import counted_names, find_gpu
from gpuinstall.errors import UsageError
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.support import condensed, known_drivers, served, support_of
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

_CUDA = re.compile(
    r"cu(?:da)?(?: version)?[\s:-]*(\d{2})\.?(\d)?.*|(\d{1,2})(?:\.(\d{1,2}))?(?:\.\d+)?"
)
_COMPAT = re.compile(r"(\S+)(?: with|,| \+)? cuda[ -]compat[ -](\d{2})[.-](\d)")
_VGPU = re.compile(
    r"(?:nvidia )?(?:grid|vgpu)(?: software)?[ -]?(\d{2})(?:\.\d{1,2})?|(1[4-9]|2\d)\.\d{1,2}"
)
"""A release of vGPU software: named so, or a number that no CUDA has (13 is the newest)."""
_DRIVER = re.compile(
    r"(?:nvidia[- ])?(?:driver[- ](?:version:? )?)?[rv]?(\d[\d.]*\d)(?:\.x+)?(?:-[\w.~+-]+)?"
)
_ARCHITECTURE = re.compile(r"sm_?(\d{2,3})[af]?")


def machine_in_words(
    gpus: tuple[str, ...],
    driver: str | None = None,
    os: str | None = None,
    arch: str | None = None,
    glibc: str | None = None,
) -> Machine:
    """Make a machine of the names of its GPUs and its driver; raise UsageError for a name that nothing has.

    Nothing else is known of it: not its memory, its Pythons or, unless it is given, its glibc. Neither macOS nor the
    GPUs of makers whose builds ask for no driver need one. ``550.54 with cuda-compat 13.0`` is a driver whose libcuda
    NVIDIA's forward-compatibility package replaces.
    """
    system, processor = platform_in_words(gpus, driver, os, arch)
    gpus = tuple(chain.from_iterable(map(counted_names, gpus)))
    cards = tuple(gpu_in_words(name, index) for index, name in enumerate(gpus))
    if driver is None and system != "macos" and not all(card.architecture for card in cards):
        raise _driver_missing(Machine(system, processor, gpus=cards))
    if glibc and (system != "linux" or not re.fullmatch(r"2\.\d{1,2}", glibc)):
        raise UsageError(
            "glibc-malformed",
            f"{glibc!r} is no glibc of {system}",
            hint="the same with --glibc 2.35",
        )
    libc = "glibc" if glibc else None
    return Machine(
        system, processor, libc, glibc, driver=_driver(driver) if driver else None, gpus=cards
    )


def _driver(text: str) -> Driver:
    """Read a driver, and the forward-compatibility package above it where that is named."""
    compat = _COMPAT.fullmatch(text.strip().lower())
    if compat is None:
        return Driver(driver_in_words(text), found_via="words")
    return Driver(
        driver_in_words(compat[1]),
        CudaVersion(int(compat[2]), int(compat[3])),
        "words",
        compat=True,
    )


def platform_in_words(
    gpus: tuple[str, ...], driver: str | None, os: str | None, arch: str | None
) -> tuple[str, str]:
    """Say which system and processor are meant: Windows by the form of its driver's number, ARM by the GPUs."""
    named = [find_gpu(name) for name in gpus if not _ARCHITECTURE.fullmatch(name.lower())]
    system = os or next((gpu.os for gpu in named if gpu.os), None)
    system = system or (
        "windows" if driver and DriverVersion.of_windows(driver.strip()) else "linux"
    )
    if arch or system == "macos":
        return system, arch or "arm64"
    return system, "aarch64" if named and all(gpu.arm for gpu in named) else "x86_64"


def driver_in_words(text: str) -> DriverVersion:
    """Read a driver's version, as packages and Windows write it too; raise UsageError where it is none."""
    words = text.strip().lower()
    if (release := _VGPU.fullmatch(words)) and (
        branch := load_catalog().drivers.vgpu.get(int(release[1] or release[2]))
    ):
        message = f"{text!r} is a release of NVIDIA's vGPU software, not a driver version"
        hint = f"Its driver is branch {branch}: --driver {branch}, or the number that nvidia-smi prints in the guest"
        raise UsageError("driver-malformed", message, hint=hint)
    words = re.sub(r"\s*\((?:grid|vgpu)[^()]*\)$", "", words)
    if cuda := _CUDA.fullmatch(words):
        raise _cuda_for_a_driver(
            text, CudaVersion(int(cuda[1] or cuda[3]), int(cuda[2] or cuda[4] or 0))
        )
    plain = _DRIVER.fullmatch(words)
    try:
        return DriverVersion.parse(plain[1] if plain else text)
    except ValueError as error:
        hint = 'Give the "Driver Version" shown by nvidia-smi, or the branch alone: --driver 580'
        raise UsageError("driver-malformed", str(error), hint=hint) from None


def gpu_in_words(name: str, index: int = 0) -> Gpu:
    """Make a GPU of its name, or of ``sm_89``; raise UsageError for a name that nothing has."""
    if exact := _ARCHITECTURE.fullmatch(name.lower()):
        return Gpu(
            index,
            name,
            compute_capability=ComputeCapability.from_sm(int(exact[1])),
            found_via="words",
        )
    named = find_gpu(name)
    return Gpu(
        index,
        f"{named.brand} {named.name}",
        compute_capability=named.capability,
        found_via="words",
        vendor=None if named.capability else named.maker,
        architecture=named.architecture,
    )


def _cuda_for_a_driver(text: str, cuda: CudaVersion) -> UsageError:
    branch = next(
        (str(branch) for branch, served in load_catalog().drivers.branches if served >= cuda), None
    )
    brings = f"; a driver for CUDA {cuda} is --driver {branch} or newer" if branch else ""
    hint = f'Give the "Driver Version" shown by nvidia-smi{brings}'
    return UsageError(
        "driver-malformed", f"{text!r} is a CUDA version, not a driver version", hint=hint
    )


def _driver_missing(machine: Machine) -> UsageError:
    """Say which drivers run what on the GPUs named, and which driver to get."""
    catalog = load_catalog()
    table = condensed(served(support_of(catalog, machine, known_drivers(catalog))))
    message = f"--gpu requires --driver: what runs on {', '.join(gpu.label for gpu in machine.gpus)} depends on it"
    if not table.rows:
        return UsageError("driver-missing", message, hint="No known build of torch runs on it")
    builds = zip(table.drivers, table.rows[0].builds, strict=True)
    rows = [f"Driver {drivers:<9} torch {build}" for drivers, build in builds]
    # The recommended branch where it runs a build, else the newest that does.
    spans = [[int(branch) for branch in drivers.split("–")] for drivers in table.drivers]
    recommended = catalog.drivers.recommended_branch
    to_get = (
        recommended if any(span[0] <= recommended <= span[-1] for span in spans) else spans[-1][-1]
    )
    ask = (
        f"Add --driver with the version that nvidia-smi shows; for a new installation, get {to_get}"
    )
    return UsageError("driver-missing", message, hint="\n".join((ask, *rows)))
