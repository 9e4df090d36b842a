"""Predicates that confirm or refute failures on this machine.

In the failure catalog, the key ``here`` selects the predicate of a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from packaging.version import Version

from gpuinstall.base.machine import Gpu
from gpuinstall.base.request import Request
from gpuinstall.base.versions import CPU, find_labeled_backend
from gpuinstall.catalog.failures.classify import known_of
from gpuinstall.catalog.failures.table import Failure
from gpuinstall.diagnose.reading import LocalReading, read_version
from gpuinstall.environments.packages import find_unmet_requirements
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import (
    VENDORS,
    can_select_builds,
    find_vendor,
    load_rules,
)
from gpuinstall.plan import choose

_RECENT = Version("2.1")
COMPANION_FAULTS = {"torchvision": "F47", "torchaudio": "F48"}


class LocalFact(NamedTuple):
    """Fact about this machine that confirms or refutes a failure."""

    holds: bool
    message: str


class FoundCauses(NamedTuple):
    """Confirmed and refuted failures that a predicate returns."""

    causes: Mapping[str, str] = {}
    """The messages of confirmed failures."""
    refutation: str = ""
    """The fact that refutes all other failures. Empty if there is none."""
    possible: Collection[str] = ()
    """The failures that the fact neither confirms nor refutes."""


UNKNOWN = FoundCauses()
"""The facts of a machine that neither confirm nor refute a failure."""
Predicate = Callable[[LocalReading], FoundCauses]


def local_fact(failure: Failure, reading: LocalReading) -> LocalFact | None:
    """Find a fact about this machine that confirms or refutes a failure."""
    for problem in reading.machine.problems:
        if problem.id == failure.id:
            return LocalFact(True, problem.message)
    facts = _find_predicate(failure.here)(reading) if failure.here else UNKNOWN
    if failure.id in facts.causes:
        return LocalFact(True, facts.causes[failure.id])
    is_refuted = facts.refutation and failure.id not in facts.possible
    return LocalFact(False, facts.refutation) if is_refuted else None


def _names(gpus: list[Gpu]) -> str:
    return " and ".join(dict.fromkeys(gpu.label for gpu in gpus))


def driver_silent(reading: LocalReading) -> FoundCauses:
    """Refute driver faults if the driver lists every NVIDIA GPU."""
    machine = reading.machine
    driver = machine.driver
    gpus = reading.gpus_of("nvidia")
    is_partial = machine.blocking or any(gpu.found_via == "pci" for gpu in gpus)
    if not gpus or not driver or not driver.version or is_partial:
        return UNKNOWN
    return FoundCauses(
        refutation=f"driver {driver.version} works on this machine and lists {_names(gpus)}"
    )


def cuda_refuses(reading: LocalReading) -> FoundCauses:
    """Refute CUDA initialization errors if the probe found no such error."""
    problems = reading.machine.problems
    # The probe reports each error of cuInit as a problem.
    if any(one.blocking or one.code == "driver-not-asked" for one in problems):
        return UNKNOWN
    refutation = driver_silent(reading).refutation
    return FoundCauses(
        refutation=refutation and f"CUDA initializes on this machine: {refutation}"
    )


def gpu_in_container(reading: LocalReading) -> FoundCauses:
    """Refute a missing GPU in a container if this container has one."""
    if reading.machine.environment.container:
        return driver_silent(reading)
    return UNKNOWN


def driver_floor(reading: LocalReading) -> FoundCauses:
    """Compare the driver with the CUDA version that torch requires."""
    driver, torch, rules = reading.machine.driver, reading.torch, reading.rules
    if not reading.gpus or not driver or not (driver.version or driver.cuda):
        return UNKNOWN
    build = torch.build if torch and torch.backend != CPU else None
    if build is None:
        rows = rules.catalog.builds_for(reading.machine.os, reading.machine.arch)
        if any(map(rules.find_driver_rejection, rows)):
            return UNKNOWN
        return FoundCauses(
            refutation=f"{rules.driver} on this machine supports every build of PyTorch"
        )
    reason = rules.find_driver_rejection(build)
    if reason is None:
        return FoundCauses(
            refutation=f"{rules.driver} on this machine supports torch {build.name}"
        )
    version = driver.version
    is_570 = version is not None and version.branch in range(570, 580)
    is_blackwell = any(rules.rank(gpu) >= (10, 0) for gpu in reading.gpus)
    # F02 suggests an older build, but older builds have no code for Blackwell.
    entry = "F39" if is_570 and is_blackwell else "F02"
    message = f"torch {build.name}: {reason.message}; this machine has {rules.driver}"
    return FoundCauses({entry: message})


def find_gpus_without_code(reading: LocalReading) -> list[Gpu]:
    """Return the GPUs for which the installed build has no code."""
    build = reading.torch and reading.torch.build
    if not build or build.backend == CPU:
        return []
    rules = reading.rules
    return [
        gpu for gpu in reading.gpus if not isinstance(rules.find_code(build, gpu), Code)
    ]


def gpu_placeholders(reading: LocalReading) -> dict[str, str]:
    """Return placeholder values for a build and the GPUs that it supports."""
    words = {}
    choice = choose(reading.machine, Request(), reading.catalog).choice
    if choice and choice.build.backend != CPU:
        words["gpu-build"] = choice.build.backend.tag
    without = find_gpus_without_code(reading)
    others = [gpu for gpu in reading.gpus if gpu not in without]
    if without and others:
        words |= {
            "gpu-variable": next(iter(reading.rules.variables)),
            "supported-gpus": ",".join(str(gpu.index) for gpu in others),
            "other-gpus": ",".join(str(gpu.index) for gpu in without),
        }
    return words


def code(reading: LocalReading) -> FoundCauses:
    """Compare the architectures in torch's GPU code with the GPUs."""
    torch, gpus, rules = reading.torch, reading.gpus, reading.rules
    if not gpus:
        return UNKNOWN
    if torch is None:
        return _code_of_any_build(reading)
    if torch.backend == CPU:
        return FoundCauses(
            refutation=f"the installed torch {torch.version} is the CPU build: the error comes from another environment"
        )
    build = torch.build
    if build is None:
        return UNKNOWN
    without = find_gpus_without_code(reading)
    if not without:
        return FoundCauses(
            refutation=f"the installed torch {build.name} has code for this {_names(gpus)}: "
            "the error comes from an extension or from another environment"
        )
    causes = {}
    # torch works on the other GPUs until a program uses an unsupported one.
    if len(without) < len(gpus):
        causes["F40"] = f"torch {build.name} has no code for {_names(without)}"
    listed = " ".join(build.code)
    for gpu in without:
        entry = rules.find_no_code_cause(build.code, gpu)
        causes[entry] = (
            f"torch {build.name} has code for {listed}; {gpu.label} is {gpu.code_name}"
        )
    return FoundCauses(causes, next(reversed(causes.values())))


def _code_of_any_build(reading: LocalReading) -> FoundCauses:
    """Refute failures that no recent build of torch has with these GPUs."""
    machine, gpus, rules = reading.machine, reading.gpus, reading.rules
    possible = {
        rules.find_no_code_cause(build.code, gpu)
        for build in rules.catalog.builds_for(machine.os, machine.arch)
        for gpu in gpus
        if build.torch >= _RECENT
        and build.backend != CPU
        and not isinstance(rules.find_code(build, gpu), Code)
    }
    if possible and len(gpus) > 1:
        possible.add("F40")
    message = f"every build since torch {_RECENT} has code for {_names(gpus)}"
    if possible:
        message = " and ".join(f"{gpu.label} is {gpu.code_name}" for gpu in gpus)
    return FoundCauses(refutation=message, possible=possible)


def _since(first: tuple[int, int], entry: str = "") -> Predicate:
    """Return a predicate that refutes faults specific to older GPUs.

    Args:
        first: The lowest compute capability without the faults.
        entry: The failure that every older GPU has.
    """

    def predicate(reading: LocalReading) -> FoundCauses:
        gpus = reading.gpus_of("nvidia")
        chips = [gpu.compute_capability for gpu in gpus if gpu.compute_capability]
        if not gpus or len(chips) < len(gpus):
            return UNKNOWN
        oldest = gpus[chips.index(min(chips))]
        message = f"{oldest.label} on this machine is {oldest.code_name}"
        if min(chips) >= first:
            return FoundCauses(refutation=message)
        return FoundCauses({entry: message})

    return predicate


def idle(reading: LocalReading) -> FoundCauses:
    """Report GPUs that a torch for the CPU or another vendor cannot use."""
    torch = reading.torch
    if torch is None:
        return UNKNOWN
    if torch.backend != CPU and reading.gpus:
        return FoundCauses(
            refutation=f"the installed torch {torch.version} is a build for {_names(reading.gpus)}: "
            "the error comes from another environment"
        )
    causes = {}
    refutation = ""
    if torch.backend != CPU:
        refutation = f"the installed torch {torch.version} is not the CPU build: the error comes from another environment"
    for gpu in reading.machine.gpus:
        if not can_select_builds(gpu, reading.machine):
            continue
        vendor = load_rules(find_vendor(gpu, reading.machine) or "")
        if torch.backend != CPU:
            causes[vendor.idle_causes[1]] = (
                f"torch {torch.version} is the {torch.backend} build, and the GPU is {gpu.label}"
            )
        elif vendor.kind != CPU.kind:
            causes[vendor.idle_causes[0]] = (
                f"torch {torch.version} is the CPU build, which does not use {gpu.label}"
            )
    others = {rules.idle_causes[1] for rules in map(load_rules, VENDORS)}
    return FoundCauses(causes, refutation, possible=others)


def companions(reading: LocalReading) -> FoundCauses:
    """Compare the builds of torchvision and torchaudio with torch."""
    installed = [one for one in reading.packages if one.name in COMPANION_FAULTS]
    torch = reading.torch or reading.by_name.get("torch")
    if torch is None or not installed:
        return UNKNOWN
    causes = {}
    own = find_labeled_backend(torch.version)
    for package in installed:
        labeled = read_version(package)
        backend = find_labeled_backend(labeled)
        if own and backend not in (None, own):
            causes[COMPANION_FAULTS[package.name]] = (
                f"{package.name} {labeled} is a {backend} build, and torch {torch.version} is a {own} build"
            )
    unmet = find_unmet_requirements(
        installed, {"torch": torch.version}, reading.markers
    )
    for package, requirement, version in unmet:
        # Compare only the required version of torch.
        if version:
            causes[COMPANION_FAULTS[package.name]] = (
                f"{package.name} {package.version} requires torch{requirement.specifier}, but {version} is installed"
            )
    if causes or len(installed) < len(COMPANION_FAULTS):
        return FoundCauses(causes)
    return FoundCauses(
        refutation=f"the installed torchvision and torchaudio fit torch {torch.version}"
    )


def mig(reading: LocalReading) -> FoundCauses:
    """Refute MIG faults if no GPU is in MIG mode."""
    gpus = reading.gpus_of("nvidia")
    if not gpus or any(gpu.mig for gpu in gpus):
        return UNKNOWN
    return FoundCauses(refutation="no GPU on this machine is in MIG mode")


def _of_vendor(vendor: str) -> Predicate:
    """Return a predicate that refutes GPU faults of an absent vendor."""

    def predicate(reading: LocalReading) -> FoundCauses:
        gpus = reading.machine.gpus
        if not gpus or reading.gpus_of(vendor):
            return UNKNOWN
        return FoundCauses(refutation=f"the GPU of this machine is {_names([*gpus])}")

    return predicate


def _of_platform(name: str) -> Predicate:
    """Return a predicate that refutes faults specific to another platform."""

    def predicate(reading: LocalReading) -> FoundCauses:
        machine = reading.machine
        if name in known_of(machine):
            return UNKNOWN
        return FoundCauses(
            refutation=f"this machine runs {machine.distribution or machine.os}"
        )

    return predicate


PREDICATES: Mapping[str, Predicate] = {
    "before-ampere": _since((8, 0), "F80"),
    "code": code,
    "companions": companions,
    "cuda-refuses": cuda_refuses,
    "driver-floor": driver_floor,
    "driver-silent": driver_silent,
    "idle": idle,
    "in-container": gpu_in_container,
    "mig": mig,
    "old-gpu": _since((7, 5)),
}


def _find_predicate(name: str) -> Predicate:
    """Return a predicate by its name, vendor, or platform."""
    if name in PREDICATES:
        return PREDICATES[name]
    return _of_vendor(name) if name in VENDORS else _of_platform(name)
