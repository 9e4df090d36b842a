"""Compatibility of a wheel with builds of torch and with GPUs, without I/O.

The rules compute one ``Compatibility`` from a wheel's row, the builds, and the GPUs,
for programs and extensions alike. Every rule returns the reason for a rejection as a
value. Messages append the reason to the package's name, as in ``vllm 0.33.0 has no code
for V100``. If only a part of the GPU code was read, missing code results in a warning,
not in a rejection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from packaging.version import Version

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Gpu
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, Backend, ComputeCapability
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.machine.protocol import Code, Rules, Toolkit
from gpuinstall.wheels.learned.row import Depth, WheelRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    RUNTIME,
    TorchNeeds,
    find_pinned_cuda,
    is_separate_library,
    library_stem,
    load_libraries,
    rename_for_cuda,
)

ServedGpus = tuple[tuple[Rules, Gpu], ...]
"""The GPUs that a package must run on, each with the rules of its machine."""

OTHER_TORCH = "other-torch"
"""The code of a rejection because of symbols that a torch does not export."""
OTHER_LIBRARY = "other-library"
"""The code of a rejection because of the cuDNN of a build of torch."""
SHARED_FILES = "shared-files"
"""The code of a rejection only because two packages write the same files."""

_UNREAD = "and the rest was not inspected"
TEST_IT = "; test it on this GPU"
"""The end of a message about code that may be missing."""
_PARTLY_READ = Reason(
    "not-inspected", "was inspected only in part, so its GPU code is unknown"
)
_ALTERNATIVE = re.compile(r"\.libs/[^/]+/|(^|/)sm_?\d{2,3}[af]?(-[^/]*)?/")
"""Folders of plugins, and of libraries for one GPU architecture."""

_OTHER_CXX_ABI = {("2.6", "cu126")}
"""Builds with the C++11 ABI, unlike other builds of the same torch release.

This was not verified with the wheels. Source:
https://github.com/pytorch/pytorch/releases/tag/v2.6.0
"""


class BuildVerdict(NamedTuple):
    """Compatibility of a wheel with one build of torch."""

    row: WheelRow
    """The facts that were read from the wheel."""
    rejection: Reason | None = None
    """The reason why the wheel does not run, if any."""
    warning: Reason | None = None
    """The reason why the wheel may not run, if this is uncertain."""


class Compatibility(Value):
    """Compatibility of a wheel with each build that can be selected."""

    wheel: Wheel
    verdicts: Mapping[str, BuildVerdict]
    """The compatibility with each torch build, best first."""
    allowed: frozenset[str]
    """The torch builds that satisfy the requirements in METADATA."""
    unusable: Reason | None = None
    """The reason why the wheel runs with no torch build, if any."""
    adds: tuple[str, ...] = ()
    """The packages that the wheel needs but that METADATA does not require."""
    why_adds: Reason | None = None
    is_settled: bool = True
    """Whether reading more of the wheel cannot change the result."""

    @property
    def row(self) -> WheelRow:
        """The facts about the wheel with the best torch build."""
        return next(iter(self.verdicts.values())).row

    @property
    def compatible_builds(self) -> frozenset[str]:
        """The torch builds that no rule rejects."""
        verdicts = self.verdicts.items()
        return frozenset(build for build, one in verdicts if one.rejection is None)

    def rejects(self, build: str) -> Reason | None:
        """Return why the wheel does not run with a torch build, or None."""
        return self.verdicts[build].rejection

    def runs_with(self, builds: Iterable[str]) -> bool:
        """Return whether the wheel runs with any of these torch builds."""
        usable = self.allowed & self.compatible_builds
        return not usable.isdisjoint(builds)

    def reason(self, torch: str) -> Reason | None:
        """Return the first reason why the wheel does not run.

        The reason for the build ``torch`` has priority. If the wheel runs with none of
        the torch builds that its METADATA allows, the reasons for these builds have
        priority.
        """
        builds = [torch, *self.verdicts]
        if self.allowed and self.compatible_builds.isdisjoint(self.allowed):
            builds = [*filter(self.allowed.__contains__, self.verdicts), *builds]
        known = filter(self.verdicts.__contains__, builds)
        return next(filter(None, map(self.rejects, known)), None)


def allow_other_library(found: Compatibility) -> Compatibility:
    """Accept a wheel with a library that no build of torch provides.

    The system may have the library.
    """
    verdicts = {
        build: one._replace(rejection=None)
        if one.rejection and one.rejection.code == OTHER_LIBRARY
        else one
        for build, one in found.verdicts.items()
    }
    return replace(found, verdicts=verdicts)


def allow_own_cuda(found: Compatibility, opened: Sequence[str]) -> Compatibility:
    """Accept a wheel that uses its own CUDA independently of torch."""
    verdicts = {}
    for build, one in found.verdicts.items():
        warning = one.warning
        # Linked libraries are already checked against the environment.
        if one.rejection and not opened and not _find_shared_cuda_majors(one.row):
            message = f"uses its own CUDA next to torch's: {format_toolkits(one.row)}"
            warning = warning or Reason("own-cuda", message)
        verdicts[build] = BuildVerdict(one.row, None, warning)
    why = next(filter(None, (one.rejection for one in found.verdicts.values())))
    return replace(found, verdicts=verdicts, adds=tuple(opened), why_adds=why)


class GpuVerdict(NamedTuple):
    """Compatibility of a wheel with the GPUs and their driver."""

    rejection: Reason | None = None
    warning: Reason | None = None
    is_settled: bool = True
    """Whether reading more of the wheel cannot change the result."""


def assess_gpus(row: WheelRow, gpus: ServedGpus) -> GpuVerdict:
    """Return whether a wheel runs on the GPUs with any build of torch."""
    for rule in _CERTAIN:
        why = rule(row, gpus)
        if why:
            return GpuVerdict(why)
    if row.backend == CPU.tag and row.depth >= Depth.TABLES:
        return GpuVerdict(is_settled=not row.torch.is_linked or row.torch.is_known)
    if row.depth < Depth.TABLES or (row.depth < Depth.PART and row.unread):
        return GpuVerdict(is_settled=False)
    why, is_certain = find_unsupported_gpus(row, gpus)
    if is_certain:
        return GpuVerdict(why)
    # The first part of a library may contain none of its GPU code.
    has_known_code = bool(row.codes) or row.is_whole
    if row.depth == Depth.WHOLE:
        return GpuVerdict(None, why if has_known_code else _PARTLY_READ)
    uses_no_torch = has_own_runtime(row) or not row.may_use_gpu
    is_known = has_known_code and (row.torch.is_known or uses_no_torch)
    return GpuVerdict(None, why, is_known and why is None)


def reject_other_platform(row: WheelRow, gpus: ServedGpus) -> Reason | None:  # noqa: ARG001  as all rules
    """Reject a wheel for any platform that has only libraries for another."""
    if row.system in {None, "any"} or row.platform.startswith(row.system):
        return None
    only = row.system.capitalize()
    message = f"has libraries only for {only}, although {row.file} is for any platform"
    return Reason("other-platform", message)


def reject_old_driver(row: WheelRow, gpus: ServedGpus) -> Reason | None:
    """Reject a wheel if the driver is too old for its CUDA.

    If the wheel has libraries for several CUDA major versions, the driver must support
    at least one of them.
    """
    toolkits: list[Toolkit] = [(major, 0) for major in row.cudas] or [row.toolkit]
    for rules, _ in gpus:
        refusals = [
            rules.find_driver_rejection(_as_build(row, toolkit=toolkit))
            for toolkit in toolkits
        ]
        # The reason for the oldest CUDA mentions the minimum driver.
        if refusals[0] and all(refusals):
            made = format_toolkits(row, *toolkits)
            message = (
                f"does not run on {rules.driver}: {made}, and {refusals[0].message}"
            )
            return Reason("driver-too-old", message)
    return None


def reject_old_chip(row: WheelRow, gpus: ServedGpus) -> Reason | None:
    """Reject a wheel if its CUDA or package family dropped a GPU."""
    limits = {}
    chips = load_drivers().oldest_chips
    oldest = chips.get(row.toolkit[0]) if row.toolkit else None
    if oldest:
        limits[oldest] = f"{format_toolkits(row)}, which supports {oldest.sm} and newer"
    lowest = load_members().lowest_chip(row.package, Version(row.version))
    if lowest:
        need = f"it requires compute capability {lowest} or newer"
        limits.setdefault(ComputeCapability.parse(lowest), need)
    for rules, gpu in gpus:
        chip = gpu.compute_capability
        for oldest, need in limits.items():
            if chip and chip < oldest and rules.kind == "cuda":
                return Reason(
                    "no-code", f"does not support {gpu.label} ({chip.sm}): {need}"
                )
    return None


_CERTAIN = (reject_other_platform, reject_old_chip, reject_old_driver)
"""Rules that use the name, label, or METADATA, but no libraries."""


class _Lack(NamedTuple):
    """The missing code of a library for a GPU."""

    text: str
    doubt: str = ""
    """The clause that explains why the library may support the GPU."""


def find_unsupported_gpus(
    row: WheelRow, gpus: ServedGpus
) -> tuple[Reason | None, bool]:
    """Return a reason if half of a wheel's libraries lack code for a GPU.

    Returns:
        The reason and whether it is certain, because the unread libraries cannot change
        the majority. The reason is None if most libraries with GPU code support every
        GPU.
    """
    certain: dict[str, str] = {}
    possible: dict[str, str] = {}
    is_unknown = False
    for rules, gpu in gpus:
        lacks = _find_lacks(row, rules, gpu)
        lacking = [*filter(None, lacks.values())]
        sure = [one for one in lacking if not one.doubt]
        supporting = len(lacks) - len(lacking)
        total = len({*lacks, *map(library_stem, row.unread)})
        name = f"{gpu.label} ({gpu.code_name})"
        if len(sure) * 2 > total:
            certain[name] = sure[0].text
        elif lacking and len(lacking) >= supporting:
            if supporting and all(one.doubt == _UNREAD for one in lacking):
                is_unknown = True
                continue
            other = "but its other libraries have code" if supporting else _UNREAD
            possible[name] = f"{lacking[0].text}, {lacking[0].doubt or other}"
    at_fault = certain or possible
    if not at_fault:
        return (_PARTLY_READ if is_unknown else None), False
    names = " and ".join(at_fault)
    compiled = next(iter(at_fault.values()))
    message = f"no code for {names}: {compiled}"
    message = f"has {message}" if certain else f"may have {message}{TEST_IT}"
    reason = Reason("no-code", message)
    return reason, bool(certain)


def _find_lacks(row: WheelRow, rules: Rules, gpu: Gpu) -> dict[str, _Lack | None]:
    """Return what each library with GPU code lacks for a GPU, if anything.

    Libraries whose paths differ only in numbers are variants for different CUDA
    versions or chips, and count as one. An optional library counts only if it supports
    the GPU.
    """
    lacks: dict[str, _Lack | None] = {}
    members = load_members()
    is_deciding = members.has_library(row.package)
    for code in row.codes:
        stem = library_stem(code.library)
        build = _as_build(row, code.architectures, code.ptx)
        code_or_reason = rules.find_code(build, gpu)
        if isinstance(code_or_reason, Code):
            lacks[stem] = None
        elif not members.is_optional(row.package, code.library):
            lack = _Lack(
                f"{code.library} is compiled for {' '.join(code.architectures)}"
            )
            if code_or_reason.code == "driver-too-old-for-ptx":
                # Only the CUDA major of PTX is certain.
                lack = lack._replace(doubt=f"and {code_or_reason.message}")
            elif code.library in row.unread:
                lack = _Lack(f"the inspected part of {lack.text}", _UNREAD)
            elif _ALTERNATIVE.search(code.library) and not is_deciding:
                lack = lack._replace(doubt="but it may work without this library")
            lacks.setdefault(stem, lack)
    return lacks


def find_missing_code(older: Compatibility, compiled: Version | None) -> Reason | None:
    """Return why an older release without libraries is no replacement.

    It omits the compiled code or must be built from source.

    Args:
        older: The older release.
        compiled: The newer release with compiled code, if any.
    """
    row = older.row
    if row.depth < Depth.TABLES or row.system is not None:
        return None
    if compiled:
        message = f"has no compiled code, unlike {compiled}"
        return Reason("no-compiled-code", message)
    # mslk-cuda 0.0.0 contains only METADATA.
    if not older.wheel.is_pure or not row.requires:
        return Reason("placeholder", "contains no library")
    return None


def find_required_cuda(row: WheelRow) -> int | None:
    """Return the CUDA major version that a wheel's process must load.

    The shared CUDA runtime of the code determines the version. Without a shared
    runtime, the name and the local version label determine it.

    Returns:
        The CUDA major. None if the wheel has its own runtime, needs no CUDA, or
        supports several majors.
    """
    majors = _find_shared_cuda_majors(row)
    if len(majors) > 1 or len(row.cudas) > 1:
        return None
    major = next(iter(majors), None)
    if not major and not has_own_runtime(row):
        major = row.declared_cuda
    return None if row.package in load_members().per_cuda else major


def has_own_runtime(row: WheelRow) -> bool:
    """Return whether a wheel bundles or statically links its own CUDA runtime.

    A wheel that uses torch has no runtime of its own. If a library was not read
    completely, METADATA determines whether the wheel uses torch. A wheel that must open
    other CUDA libraries depends on their CUDA version.
    """
    may_use_torch = row.torch.kind == "unknown" and row.requires_torch
    uses_torch = row.torch.is_linked or may_use_torch
    must_open = row.package in load_members().must_open
    return row.has_runtime and not uses_torch and not must_open


def may_have_own_runtime(row: WheelRow) -> bool:
    """Return whether unread parts of a wheel may contain a CUDA runtime."""
    is_named = find_required_cuda(row) and not _find_shared_cuda_majors(row)
    must_open = row.package in load_members().must_open
    return bool(is_named) and not must_open and not row.torch.is_linked


def _find_shared_cuda_majors(row: WheelRow) -> set[int]:
    """Return the CUDA majors of the shared CUDA runtimes that a wheel uses."""
    shared = load_libraries()
    opened = (
        name for name in row.opens if name.startswith(RUNTIME) or name.endswith(".dll")
    )
    return shared.cuda_majors(row.needs) or shared.cuda_majors(opened)


def needs_older_cuda(row: WheelRow, build: Build) -> bool:
    """Return whether a wheel is built with an older CUDA than torch."""
    cuda = find_required_cuda(row)
    return bool(cuda and build.toolkit and cuda < build.toolkit[0])


def reject_build(
    row: WheelRow,
    unusable: Reason | None,
    build: Build,
    *,
    versions: Mapping[str, str],
    environment: Mapping[str, str],
) -> Reason | None:
    """Return why a wheel does not run with a build of torch.

    Args:
        row: The row of the wheel.
        unusable: The reason why it runs with no build, if any.
        build: The build of torch.
        versions: The resolved packages of the environment, if known.
        environment: The marker values of the target.
    """
    begin = f"is incompatible with torch {build.name}"
    cuda, torch_cuda = find_required_cuda(row), build.toolkit and build.toolkit[0]
    if cuda and torch_cuda and cuda != torch_cuda:
        # A program that requires a package for each CUDA loads the one for torch's CUDA,
        # but torch itself requires its own cuDNN.
        lacks_code = unusable is not None and unusable.code == "no-code"
        is_of_torch = load_members().with_torch.fullmatch(row.package)
        has_twin = rename_for_cuda(row.package, torch_cuda) in versions
        if has_twin and not (lacks_code and is_of_torch):
            return None
        is_apart = _has_own_packages(row, versions, environment)
        is_sharing = is_apart and _has_file_conflict(cuda, torch_cuda, versions)
        if is_sharing or not is_apart:
            code = SHARED_FILES if is_sharing else "other-cuda"
            return unusable or Reason(code, f"{begin}: {format_toolkits(row)}")
    if not _has_library_for(build, row):
        message = f"{begin}: it has no library for CUDA {build.backend.version}"
        unusable = unusable or Reason("other-cuda", message)
    if unusable:
        return unusable
    if can_load_with(row.torch, build) is False:
        works = f"its code is compatible with {row.torch.torches}"
        return Reason(OTHER_TORCH, f"{begin}: {works}")
    for name in row.needs:
        # The libraries of CUDA were compared by CUDA version.
        cudnn = dict(build.libraries).get("cudnn")
        is_cudnn = name.startswith("libcudnn")
        if is_cudnn and cudnn and not load_libraries().is_provided(name, cudnn):
            return Reason(OTHER_LIBRARY, f"{begin}: it is linked to {name}")
    return None


def _has_library_for(build: Build, row: WheelRow) -> bool:
    """Return whether a wheel with a library for each CUDA has a build's."""
    members = load_members()
    nearest = members.per_cuda.get(row.package)
    if nearest is None or row.system is None or build.backend.kind != "cuda":
        return True
    names = [*row.unread, *(code.library for code in row.codes)]
    libraries = members.match_libraries(row.package, names)
    own = build.backend.tag.removeprefix("cu")
    if row.version in nearest:
        own = own[:-1]
    return any(library["cuda"].startswith(own) for library in libraries)


def can_load_with(torch: TorchNeeds, build: Build) -> bool | None:
    """Return whether a torch build exports a wheel's symbols, if known."""
    is_other_abi = (build.minor, build.backend.tag) in _OTHER_CXX_ABI
    if torch.fits and not torch.judged:
        return str(build.torch) in torch.fits
    if torch.kind == "ordinary" and is_other_abi:
        return False if torch.is_older_abi else None
    return torch.verdict(build.minor)


def _has_own_packages(
    row: WheelRow, versions: Mapping[str, str], environment: Mapping[str, str]
) -> bool:
    """Return whether other packages than torch's have the CUDA of a wheel."""
    members = load_members()
    if row.package in members.must_open:
        return not find_missing_packages(row, versions)
    # torch loads its own CUDA libraries before any other package.
    if row.torch.is_linked:
        return False
    runtimes = filter(members.runtime.fullmatch, versions)
    majors = {Version(versions[name]).major for name in runtimes}
    linked = {*_map_library_packages(row.needs, row).values()}
    if linked <= versions.keys() and not row.requires_torch:
        majors.add(find_pinned_cuda(row.requirements(), environment) or 0)
    return find_required_cuda(row) in majors


def _has_file_conflict(cuda: int, other: int, versions: Mapping[str, str]) -> bool:
    """Return whether packages of two CUDA majors share files."""
    own = {name: one for name, one in versions.items() if name.endswith(f"-cu{cuda}")}
    twins = {rename_for_cuda(name, other) or "": one for name, one in own.items()}
    return any(load_members().find_conflicts(own | twins))


def find_missing_packages(row: WheelRow, versions: Mapping[str, str]) -> list[str]:
    """Return the missing packages whose libraries a wheel opens by name."""
    must_open = load_members().must_open.get(row.package)
    if must_open is None or row.toolkit is None:
        return []
    packages = _map_library_packages(filter(must_open.fullmatch, row.opens), row)
    # Remove duplicates but keep the order.
    missing = dict.fromkeys(packages.values())
    return [package for package in missing if package not in versions]


def find_missing_libraries(row: WheelRow, versions: Mapping[str, str]) -> list[str]:
    """Return the linked libraries that no package of an environment provides.

    If no package has a CUDA runtime, torch may bundle the libraries of absent packages.
    """
    are_packaged = any(map(load_members().runtime.fullmatch, versions))
    shared = load_libraries()
    missing = []
    for name, package in _map_library_packages(row.needs, row).items():
        is_missing = are_packaged
        if package in versions:
            is_missing = not shared.is_provided(name, versions[package])
        if is_missing:
            missing.append(f"{name} ({package})")
    return missing


def find_undeclared_packages(row: WheelRow, linked: Iterable[str]) -> tuple[str, ...]:
    """Return the linked packages that METADATA does not require.

    Args:
        row: The row of the wheel.
        linked: The packages that other wheels or versions both require and link to.
    """
    names = {rename_for_cuda(one, 0) for one in linked}
    apart = _map_library_packages(filter(is_separate_library, row.needs), row).values()
    packages = {one for one in apart if rename_for_cuda(one, 0) in names}
    if packages:
        packages -= requirement_names(row.requirements())
    return tuple(sorted(packages))


def _map_library_packages(libraries: Iterable[str], row: WheelRow) -> dict[str, str]:
    """Map libraries to their packages for a wheel's CUDA."""
    cuda = row.toolkit[0] if row.toolkit else None
    shared = load_libraries()
    packages = {}
    for name in libraries:
        library = shared.row(name)
        package = library.package_for(shared.cuda(name) or cuda) if library else None
        if package:
            packages[name] = package
    return packages


def format_toolkits(row: WheelRow, *toolkits: Toolkit) -> str:
    """Return a clause with the CUDA that a wheel was built with.

    Args:
        row: The row of the wheel.
        toolkits: The CUDA versions, by default the CUDA of the row.
    """
    majors = [major for major, _ in filter(None, toolkits or (row.toolkit,))]
    names = f"CUDA {' and '.join(map(str, majors))}"
    if not row.witness or len(toolkits) > 1:
        is_stated = row.package in load_members().stated
        return f"{'its documentation requires' if is_stated else 'it is for'} {names}"
    runtimes = [name for name in row.needs if name.startswith(RUNTIME)]
    # Another library than the witness may need the other libraries.
    if runtimes and load_libraries().cuda(runtimes[0]) in majors:
        names += f" ({runtimes[0]})"
    return f"{row.witness} is built with {names}"


def _as_build(
    row: WheelRow,
    architectures: tuple[str, ...] = (),
    toolkit: Toolkit = None,
) -> Build:
    """Represent a library as a build, so that a vendor's rules apply to it."""
    os, _, arch = row.platform.partition("-")
    return Build(
        torch=Version("0"),
        backend=Backend.parse(row.backend),
        os=os,
        arch=arch,
        code=architectures,
        toolkit=toolkit or row.toolkit,
    )
