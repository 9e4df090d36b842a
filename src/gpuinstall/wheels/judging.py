"""What a reading means for GPUs, their driver and the process: what METADATA leaves out. Pure.

A reading is of a file; a judgement is of a reading, for some GPUs. What is certain after a look at a name, a label and
METADATA is not asked of the bytes. What was read in part is unknown, and refuses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from packaging.version import Version

from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend, ComputeCapability, numbers
from gpuinstall.catalog import Build
from gpuinstall.machine.protocol import Code, Rules, Toolkit
from gpuinstall.wheels.learned.row import Depth, LearnedRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    TorchNeeds,
    comes_apart,
    cuda_of_isa,
    declared_cuda,
    is_of_a_package,
    load_libraries,
)

ServedGpus = tuple[tuple[Rules, Gpu], ...]
"""The GPUs that a package is to run on, each with the rules of its machine."""

_FIRST_CHIPS = {
    13: ComputeCapability(7, 5),
    12: ComputeCapability(5, 0),
    11: ComputeCapability(3, 5),
}
"""The oldest chip that the compilers of a CUDA write any code for, by its major.

NVIDIA, CUDA Toolkit, release notes of 11.0, 12.0 and 13.0: the architectures that each removed.
"""

_NUMBER = re.compile(r"\d+")

_CHIP_IN_NAME = re.compile(r"-sm(\d{2,3})(?=-|$)", re.ASCII)
"""``symmetrix-xl-cuda12-sm70``: its program takes it on such chips alone, whatever its code would run on."""

_OF_ANOTHER_ABI = {("2.6", "cu126")}
"""Builds with the strings of C++11, where the others of the same release have those before it: nobody measured them.

https://github.com/pytorch/pytorch/releases/tag/v2.6.0
"""


class Judgement(Value):
    """What one file needs, and whether it runs on the GPUs beside any torch at all."""

    excluded: str = ""
    """Why it runs beside no torch, as what follows its name; empty if nothing is certain."""
    doubt: str = ""
    """Why it may not run, which the part that was read does not settle."""
    cuda: int | None = None
    """The CUDA major that the process has to have for it; None if it brings its own, needs none, or that is unknown."""
    torch: TorchNeeds = TorchNeeds()
    """The torch that has its symbols."""
    is_settled: bool = True
    """Whether to read more of the file changes nothing."""


def judge_file(
    read: Callable[[Depth], LearnedRow],
    gpus: ServedGpus,
    depths: Sequence[Depth] = tuple(Depth),
) -> tuple[LearnedRow, Judgement]:
    """Read no more of a file than it takes to judge it; return the last reading, and what it means.

    Args:
        read: Reads the file to a depth.
        gpus: What it is to run on.
        depths: How much to read, one after the other.

    Raises:
        InstallationError: if it cannot be read.
    """
    for depth in depths:
        reading = read(depth)
        judgement = judge_reading(reading, gpus)
        if judgement.is_settled:
            break
    return reading, judgement


def judge_reading(reading: LearnedRow, gpus: ServedGpus) -> Judgement:
    """Return what a reading means for some GPUs."""
    judgement = Judgement(
        cuda=process_cuda(reading),
        torch=reading.torch,
    )
    for rule in _CERTAIN:
        why = rule(reading, gpus)
        if why:
            return replace(judgement, excluded=why)
    if reading.depth < Depth.PART:
        return replace(judgement, is_settled=False)
    lack, is_certain = lacking_code(reading, gpus)
    if is_certain:
        return replace(judgement, excluded=lack)
    is_settled = reading.depth == Depth.WHOLE
    if not lack:
        is_known = reading.torch.is_known or not reading.links_count
        # The beginnings of libraries may show none of their code.
        is_known &= bool(reading.codes) or reading.is_whole
        is_settled |= is_known
    doubt = lack or _not_meant_for(reading, gpus)
    return replace(judgement, doubt=doubt, is_settled=is_settled)


def _not_meant_for(reading: LearnedRow, gpus: ServedGpus) -> str:
    """Return that a file is not meant for a GPU: by its name, or by its description where no code tells more; else empty."""
    named = _CHIP_IN_NAME.search(reading.package)
    for _, gpu in gpus:
        chip = gpu.compute_capability
        if chip is None:
            continue
        doubt = f"may not run on {gpu.label}: its"
        if named:
            meant = ComputeCapability.from_sm(int(named[1]))
            if chip < meant or chip.major != meant.major:
                return f"{doubt} name says {meant.sm}"
        lowest = reading.lowest
        if lowest and not reading.codes and chip < ComputeCapability.parse(lowest):
            return f"{doubt} description asks for compute capability {lowest} or newer"
    return ""


def _is_fast_way(reading: LearnedRow) -> bool:
    """Whether all code is for single chips, beside the code of another package that it is linked to
    (cuequivariance-ops-torch-cu13 0.13.0).
    """
    is_for_single = all(name.endswith("a") for name in reading.architectures)
    return is_for_single and any(map(is_of_a_package, reading.needs))


def for_windows_alone(reading: LearnedRow, gpus: ServedGpus) -> str | None:  # noqa: ARG001  as all rules
    """Return that a file has libraries for Windows alone, and is to run elsewhere."""
    if reading.system != "windows" or reading.platform.startswith("windows"):
        return None
    return f"has libraries for Windows alone, although its file {reading.file} is for any platform"


def refused_by_driver(reading: LearnedRow, gpus: ServedGpus) -> str | None:
    """Return that a driver does not run the CUDA that a file is made with; of libraries for several, none of them."""
    majors = load_libraries().cuda_majors(reading.needs)
    toolkits: list[Toolkit] = [(major, 0) for major in sorted(majors)]
    if reading.toolkit or not toolkits:
        toolkits = [reading.toolkit]
    for rules, _ in gpus:
        refusals = [
            rules.against_driver(_as_build(reading, toolkit=toolkit))
            for toolkit in toolkits
        ]
        # One library that runs is enough; the reason of the oldest says which driver would do.
        if refusals[0] and all(refusals):
            made = made_with(reading, *toolkits)
            return f"does not run on {rules.driver}: {made}, and {refusals[0].message}"
    return None


def too_old_for_cuda(reading: LearnedRow, gpus: ServedGpus) -> str | None:
    """Return that the CUDA that a file is made with writes no code for a GPU, whatever of it is unread."""
    if reading.toolkit is None:
        return None
    major, _ = reading.toolkit
    first = _FIRST_CHIPS.get(major)
    for rules, gpu in gpus:
        chip = gpu.compute_capability
        if first and chip and chip < first and rules.kind == "cuda":
            return (
                f"has no code for {gpu.label}: {made_with(reading)}, "
                f"which has none below {first.sm}"
            )
    return None


_CERTAIN = (for_windows_alone, refused_by_driver, too_old_for_cuda)
"""Each may refuse a file by its name, its label or METADATA, before a byte of it is read."""


def lacking_code(reading: LearnedRow, gpus: ServedGpus) -> tuple[str, bool]:
    """Return that most libraries with GPU code have none for some GPUs, and whether that is certain.

    Else that half of them have none; empty if no such GPU is known, or no GPU code.
    """
    by_most: dict[str, str] = {}
    by_half: dict[str, str] = {}
    for rules, gpu in gpus:
        answers = _code_of_libraries(reading, rules, gpu).values()
        lacking = [*filter(None, answers)]
        has_code = len(answers) - len(lacking)
        if len(lacking) > has_code:
            by_most[gpu.label] = lacking[0]
        elif lacking and len(lacking) == has_code:
            by_half[gpu.label] = lacking[0]
    at_fault = by_most or by_half
    if not at_fault:
        return "", False
    names = " and ".join(at_fault)
    compiled = next(iter(at_fault.values()))
    if not reading.is_whole:
        part = f"the part of {compiled}"
        return f"may have no code for {names}: {part}, the rest was not read", False
    if not by_most:
        others = "and its other libraries have code"
        return f"may have no code for {names}: {compiled}, {others}", False
    return f"has no code for {names}: {compiled}", not _is_fast_way(reading)


def _code_of_libraries(
    reading: LearnedRow,
    rules: Rules,
    gpu: Gpu,
) -> dict[str, str]:
    """Return of each library what it is compiled for if it has no code for a GPU; empty if it has.

    Those whose paths differ in numbers alone are one, for a CUDA or a chip each. A library that the package does without
    speaks for a GPU, and never against one.
    """
    answers: dict[str, str] = {}
    members = load_members()
    for code in reading.codes:
        stem = _NUMBER.sub("", code.library)
        # A driver compiles the PTX of its own CUDA and of older ones alone, also within a major.
        toolkit = cuda_of_isa(numbers(code.ptx)) if code.ptx else None
        made = _as_build(reading, code.architectures, toolkit)
        answer = rules.code(made, gpu)
        if isinstance(answer, Code):
            answers[stem] = ""
        elif not members.is_optional(reading.package, code.library):
            was_read = "" if reading.is_whole else " that was read"
            compiled = f"{code.library}{was_read} is compiled for {' '.join(code.architectures)}"
            if answer.code == "driver-too-old-for-ptx":
                compiled += f", and {answer.message}"
            answers.setdefault(stem, compiled)
    return answers


def unreadable_ptx(
    reading: LearnedRow,
    build: Build,
    gpus: ServedGpus,
    versions: Mapping[str, str],
) -> str:
    """Return that a driver does not read the PTX that a file has written while it runs; empty if nothing says so.

    Args:
        reading: What the file said.
        build: The torch beside it, whose NVRTC counts where the environment names none.
        gpus: What it is to run on.
        versions: The packages of the same environment.
    """
    if not reading.writes_ptx or not reading.toolkit:
        return ""
    nvrtc = load_libraries().rows["libnvrtc"].package_for(reading.toolkit[0])
    version = versions.get(nvrtc or "")
    compiler = build.toolkit
    if version:
        compiler = Version(version).major, Version(version).minor
    for rules, gpu in gpus:
        # Any chip would run what is written for the oldest.
        answer = rules.code(_as_build(reading, ("compute_50",), compiler), gpu)
        if not isinstance(answer, Code) and answer.code == "driver-too-old-for-ptx":
            cuda = ".".join(map(str, compiler or ()))
            return (
                f"may not run on {rules.driver}: NVRTC {cuda} compiles its kernels to PTX "
                f"while it runs, which needs a driver for CUDA {cuda}"
            )
    return ""


def process_cuda(reading: LearnedRow) -> int | None:
    """Return the CUDA major that the process has to have for a file: that of the runtime which its code shares, else the
    one that the file declares.

    None for a runtime that is linked in or lies in the wheel, which is its own; and for a file with a library for each
    CUDA, of which the one for the torch beside it was read.
    """
    majors = _shared_majors(reading)
    if len(majors) > 1:
        return None
    major = next(iter(majors), None)
    if not major and not _has_linked_in_runtime(reading):
        # Only the name of the file has the label of its version.
        label = reading.file.partition("+")[2].partition("-")[0]
        major = declared_cuda(reading.package, Version(reading.version), label)
    beside = Backend.parse(reading.backend).version or ""
    is_for_each = load_members().has_runtimes_apart(reading.package)
    return None if is_for_each and beside.startswith(f"{major}.") else major


def is_tied_by_name_alone(reading: LearnedRow) -> bool:
    """Whether a file may turn out to have a runtime of its own once more of it is read, whatever CUDA its name carries."""
    is_tied = process_cuda(reading) and not _shared_majors(reading)
    return bool(is_tied) and reading.torch.kind in {"none", "unknown"}


def _has_linked_in_runtime(reading: LearnedRow) -> bool:
    """Whether the code of a file shares no runtime: what was read is linked to none and opens no library of a CUDA by name,
    and if not all could be read, METADATA requires nothing that brings one.
    """
    opens = load_libraries().cuda_majors(reading.opens)
    if not reading.codes or opens or reading.torch.is_linked:
        return False
    is_alone = not load_members().is_compiled_beside(reading.requires)
    return reading.torch.kind == "none" or (is_alone and reading.depth == Depth.WHOLE)


def _shared_majors(reading: LearnedRow) -> set[int]:
    """Return the CUDA majors of the runtimes that the code of a file shares with the process."""
    shared = load_libraries()
    windows = [name for name in reading.opens if name.endswith(".dll")]
    runtimes = [name for name in reading.opens if name.startswith("libcudart.so")]
    linked = shared.cuda_majors(reading.needs)
    return linked or shared.cuda_majors([*windows, *runtimes])


def misfit_beside(
    reading: LearnedRow,
    judgement: Judgement,
    build: Build,
    versions: Mapping[str, str],
) -> str | None:
    """Return why a file does not run beside a build of torch, as far as that is certain; None if nothing is.

    Args:
        reading: What the file said.
        judgement: What that means.
        build: The build of torch.
        versions: The packages of the same environment, as far as they are known.
    """
    beside = f"is incompatible with torch {build.name}"
    cuda, of_torch = judgement.cuda, build.toolkit and build.toolkit[0]
    if cuda and of_torch and cuda != of_torch:
        if _comes_for(of_torch, reading.package, versions):
            return None
        is_apart = _has_own_runtime(reading, versions)
        is_apart &= not _share_files(cuda, of_torch, versions)
        if not is_apart:
            return judgement.excluded or f"{beside}: {made_with(reading)}"
    if judgement.excluded:
        return judgement.excluded
    if loads_beside(judgement.torch, build) is False:
        return f"{beside}: its code works with {judgement.torch.torches}"
    return None


def loads_beside(torch: TorchNeeds, build: Build) -> bool | None:
    """Whether a build of torch has the symbols that a file uses; None if that is not known."""
    is_other_abi = (build.minor, build.backend.tag) in _OF_ANOTHER_ABI
    if torch.kind == "ordinary" and is_other_abi:
        return False if torch.is_older_abi else None
    return torch.verdict(build.minor)


def _has_own_runtime(
    reading: LearnedRow,
    versions: Mapping[str, str],
) -> bool:
    """Whether another package brings the runtime of its CUDA, which is not torch's."""
    members = load_members()
    if reading.package in members.must_open:
        return not missing_libraries(reading, versions)
    # What links torch meets its CUDA in the process: torch's libraries are loaded before it.
    if reading.torch.is_linked:
        return False
    runtimes = filter(members.runtime.fullmatch, versions)
    majors = {Version(versions[name]).major for name in runtimes}
    return process_cuda(reading) in majors


def _share_files(cuda: int, other: int, versions: Mapping[str, str]) -> bool:
    """Whether packages for two CUDAs write the same files, of which one of the two would load the other's."""
    endings = (f"-cu{cuda}", f"-cu{other}")
    both = {name: versions[name] for name in versions if name.endswith(endings)}
    return any(load_members().clashes(both))


def _comes_for(
    cuda: int,
    package: str,
    versions: Mapping[str, str],
) -> bool:
    """Whether what a package is named after comes for a CUDA too: what requires both takes the one of the process.

    Args:
        cuda: The CUDA major of torch, and so of the process.
        package: A package whose name carries another CUDA.
        versions: The packages of the environment.
    """
    stem, _, label = package.rpartition("-cu")
    return label.isdigit() and f"{stem}-cu{cuda}" in versions


def missing_libraries(
    reading: LearnedRow,
    versions: Mapping[str, str],
) -> list[str]:
    """Return the packages, none of them in ``versions``, with what a package opens by name and does nothing without."""
    must_open = load_members().must_open.get(reading.package)
    if must_open is None or reading.toolkit is None:
        return []
    packages = _packages_of(filter(must_open.fullmatch, reading.opens), reading)
    # Each once, in their order.
    missing = dict.fromkeys(packages.values())
    return [package for package in missing if package not in versions]


def unbrought_libraries(
    reading: LearnedRow,
    versions: Mapping[str, str],
) -> list[str]:
    """Return the libraries, each with its package, that a file is linked to and ``versions`` do not have.

    Nothing is known of them where torch has them in its own wheel.
    """
    if not any(map(load_members().runtime.fullmatch, versions)):
        return []
    return [
        f"{name} ({package})"
        for name, package in _packages_of(reading.needs, reading).items()
        if package not in versions
    ]


def packages_apart(reading: LearnedRow) -> list[str]:
    """Return the packages with what a file is linked to and does not come with torch, as far as they are known."""
    return [*_packages_of(filter(comes_apart, reading.needs), reading).values()]


def _packages_of(libraries: Iterable[str], reading: LearnedRow) -> dict[str, str]:
    """Return the packages that have libraries for the CUDA of a file, by library, as far as they are known."""
    cuda = reading.toolkit[0] if reading.toolkit else None
    packages = {}
    for name in libraries:
        row = load_libraries().row(name)
        package = row.package_for(cuda) if row else None
        if package:
            packages[name] = package
    return packages


def made_with(reading: LearnedRow, *toolkits: Toolkit) -> str:
    """Return the CUDA that a file was made with, as a statement: its METADATA may tell it, and no library.

    Args:
        reading: What the file said.
        toolkits: The releases of CUDA; none: the one that it said.
    """
    known = filter(None, toolkits or (reading.toolkit,))
    majors = " and ".join(str(major) for major, _ in known)
    if reading.witness and len(toolkits) < 2:
        return f"{reading.witness} is built with CUDA {majors}"
    return f"it is for CUDA {majors}"


def _as_build(
    reading: LearnedRow,
    architectures: tuple[str, ...] = (),
    toolkit: Toolkit = None,
) -> Build:
    """Return what the makers' rules are asked about: a build with the code of a library and its CUDA."""
    os, _, arch = reading.platform.partition("-")
    return Build(
        torch=Version("0"),
        backend=Backend.parse(reading.backend),
        os=os,
        arch=arch,
        code=architectures,
        toolkit=toolkit or reading.toolkit,
    )
