"""Faults of an environment that its records show; nothing of it is imported or run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import unpack_from
from typing import TYPE_CHECKING

from gpuinstall.doctor.finding import Finding, finding
from gpuinstall.failures.problems import FixContext
from gpuinstall.failures.table import load_failures
from gpuinstall.files import DOCUMENT_BYTES, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.machine import Machine

# The code of a fault, its title, why, and its entry in the table of failures.
EnvironmentFault = tuple[str, str, str, str]

COMPANIONS = ("torchvision", "torchaudio")
CUDA_LIBRARY = r"nvidia-(cu|nccl|nvjitlink|nvshmem|nvtx)"
ELF_64 = b"\x7fELF\x02"
SEGMENT = 56
GNU_STACK = 0x6474E551
EXECUTABLE = 1


@dataclass(frozen=True)
class InstalledPackages:
    """The packages of an environment, a name twice where it is so; ``conda`` are the names of conda's records.

    ``demands`` are the torch that a package was built for, ``apart`` the CUDA libraries in another folder than torch,
    ``executable_stack`` says that torch's library asks for one.
    """

    packages: tuple[tuple[str, str], ...]
    conda: tuple[str, ...] = ()
    demands: tuple[tuple[str, str], ...] = ()
    apart: tuple[str, ...] = ()
    executable_stack: bool = False

    def versions(self, name: str) -> tuple[str, ...]:
        """Every version of a package that is there."""
        return tuple(version for package, version in self.packages if package == name)

    def version(self, name: str) -> str:
        """The version of a package; empty where it is not there."""
        return next(iter(self.versions(name)), "")


def read_installed(venv: Path) -> InstalledPackages:
    """List an environment's packages, with what their records say of torch."""
    sites = {path.resolve() for path in (*venv.glob("lib*/python*/site-packages"), *venv.glob("Lib/site-packages"))}
    records = [record for site in sorted(sites) for record in sorted(site.glob("*.dist-info"))]
    return InstalledPackages(
        packages=tuple(map(_package, records)),
        conda=tuple(path.stem for path in sorted(venv.glob("conda-meta/*.json"))),
        demands=tuple(_demands(records)),
        apart=tuple(_lying_apart(records)),
        executable_stack=any(asks_for_executable_stack(site / "torch" / "lib" / "libtorch_cpu.so") for site in sites),
    )


def asks_for_executable_stack(library: Path) -> bool:
    """Say whether a 64-bit ELF library has an executable PT_GNU_STACK (elf(5)); False where there is none."""
    try:
        with open_regular(library) as file:
            header = file.read(64)
            if not header.startswith(ELF_64) or len(header) < 64:
                return False
            (start,), (size, count) = unpack_from("<Q", header, 32), unpack_from("<HH", header, 54)
            file.seek(start)
            segments = [unpack_from("<II", file.read(min(size, SEGMENT)).ljust(8, b"\0")) for _ in range(count)]
    except OSError:
        return False
    return any(kind == GNU_STACK and flags & EXECUTABLE for kind, flags in segments)


def _package(record: Path) -> tuple[str, str]:
    name, _, version = record.stem.partition("-")
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _demands(records: list[Path]) -> Iterator[tuple[str, str]]:
    """Find the packages that demand one minor of torch, by a pin or by the local version of their build."""
    for record in records:
        name, version = _package(record)
        built = re.search(r"(?:pt|torch)2\.?(\d|1\d)(?!\d)", version.partition("+")[2])
        pinned = re.search(r"^Requires-Dist: torch ?\(?==2\.(\d+)", _metadata(record), re.MULTILINE)
        if found := built or pinned:
            yield name, f"2.{found[1]}"


def _metadata(record: Path) -> str:
    try:
        with open_regular(record / "METADATA") as file:
            return file.read(DOCUMENT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _lying_apart(records: list[Path]) -> Iterator[str]:
    homes = {record.parent for record in records if _package(record)[0] == "torch"}
    for record in records:
        name, _ = _package(record)
        if homes and re.match(CUDA_LIBRARY, name) and record.parent not in homes:
            yield name


def environment_findings(installed: InstalledPackages, machine: Machine) -> Iterator[Finding]:
    """Find what is wrong with an environment. Pure."""
    context = FixContext.of_machine(machine)
    for check in _CHECKS:
        for code, title, why, identity in check(installed, machine):
            yield finding("environment", code, title, why, context, entry=identity, blocking=True)
    yield from _extensions(installed, context)


def _torch_twice(installed: InstalledPackages, _machine: Machine) -> Iterator[EnvironmentFault]:
    versions = installed.versions("torch")
    if len(versions) > 1:
        title = f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}"
        yield "torch-twice", title, "the files of both lie over each other", "F34"


def _of_conda(installed: InstalledPackages, machine: Machine) -> Iterator[EnvironmentFault]:
    build = _record(installed, r"(pytorch|libtorch)-\d")
    torch = installed.version("torch")
    if build and torch and not _record(installed, rf".*-{re.escape(torch.partition('+')[0])}-"):
        title = f"conda put {build} and pip torch {torch} into the same environment"
        yield "conda-and-pip", title, "the files of both lie over each other", "F34"
    elif build and machine.gpus and re.search(r"[-_]cpu", build):
        title = f"conda took the CPU build {build} on a machine with {machine.gpus[0].label}"
        why = "its solver did not see the driver (__cuda), or another package held the CUDA build back"
        yield "conda-cpu-build", title, why, "F45"


def _mkl(installed: InstalledPackages, _machine: Machine) -> Iterator[EnvironmentFault]:
    """Builds of the channel pytorch before torch 2.4 take any MKL."""
    build, mkl = _record(installed, r"pytorch-[\d.]+-py"), _record(installed, r"mkl-\d")
    if build and mkl and _numbers(build) < _bound("F60", "torch") and _numbers(mkl) >= _bound("F60", "mkl"):
        why = "MKL 2024.1 no longer has a symbol (iJIT_NotifyEvent) that this build looks for"
        yield "mkl-too-new", f"{mkl} beside {build}", why, "F60"


def _cpu_build_over_cuda(installed: InstalledPackages, _machine: Machine) -> Iterator[EnvironmentFault]:
    torch = installed.version("torch")
    runtime = next((name for name, _ in installed.packages if re.match(r"nvidia-(cudnn|cublas|nccl)", name)), None)
    if torch.endswith("+cpu") and runtime:
        title = f"the CPU build torch {torch} lies over a CUDA build: {runtime} is still there"
        yield "cpu-build-over-cuda", title, "another package's requirements replaced the CUDA build", "F34"


def _two_majors(installed: InstalledPackages, _machine: Machine) -> Iterator[EnvironmentFault]:
    found = (re.match(r"nvidia-.*-(cu1[1-9])$", name) for name, _ in installed.packages)
    majors = {match[1]: match[0] for match in found if match}
    if len(majors) > 1:
        title = f"CUDA libraries of two majors: {' and '.join(majors[major] for major in sorted(majors))}"
        yield "two-cuda-majors", title, "both write into the same nvidia folder", "F54"


def _companions(installed: InstalledPackages, _machine: Machine) -> Iterator[EnvironmentFault]:
    """Check torchvision, 0.(minor + 15) for torch 2.x, and torchaudio, of torch's own minor, while they are bound."""
    torch, vision, audio = map(installed.version, ("torch", "torchvision", "torchaudio"))
    minor = _minor(torch, 2)
    if minor is None:
        return
    why = "it is compiled for one minor of torch"
    if _numbers(torch) < _bound("F47", "torch") and vision and _minor(vision, 0) != minor + 15:
        title = f"torchvision {vision} does not belong to torch {torch}, which needs 0.{minor + 15}"
        yield "torchvision-mismatch", title, why, "F47"
    if _numbers(torch) < _bound("F48", "torch") and audio and _minor(audio, 2) != minor:
        title = f"torchaudio {audio} does not belong to torch {torch}, which needs 2.{minor}"
        yield "torchaudio-mismatch", title, why, "F48"


def _numpy(installed: InstalledPackages, machine: Machine) -> Iterator[EnvironmentFault]:
    torch, numpy = map(installed.version, ("torch", "numpy"))
    first = _bound("F66", "torch-windows" if machine.os == "windows" else "torch")
    if torch and _numbers(torch) < first and _numbers(numpy) >= _bound("F66", "numpy"):
        yield "numpy-too-new", f"numpy {numpy} beside torch {torch}", "this torch was compiled with NumPy 1", "F66"


def _cudnn(installed: InstalledPackages, machine: Machine) -> Iterator[EnvironmentFault]:
    version, needed = installed.version("nvidia-cudnn-cu12"), _bound("F55", "capability")
    old = [gpu for gpu in machine.gpus if gpu.compute_capability and tuple(gpu.compute_capability) < needed]
    if _numbers(version) >= _bound("F55", "cudnn") and old:
        title = f"cuDNN {version} has no code for {old[0].label}"
        yield "cudnn-too-new", title, "cuDNN 9.11 dropped cards older than Turing", "F55"


def _apart(installed: InstalledPackages, _machine: Machine) -> Iterator[EnvironmentFault]:
    if installed.apart:
        title = f"{installed.apart[0]} lies in another folder (lib, lib64) than torch"
        yield "libraries-apart", title, "torch looks for its CUDA libraries beside itself", "F52"


def _executable_stack(installed: InstalledPackages, machine: Machine) -> Iterator[EnvironmentFault]:
    glibc = machine.glibc
    if installed.executable_stack and glibc and _numbers(glibc) >= _bound("F61", "glibc"):
        title = f"torch {installed.version('torch')} asks for an executable stack"
        yield "executable-stack", title, f"glibc {glibc} loads no such library (from 2.41 on)", "F61"


_CHECKS = (
    _torch_twice,
    _of_conda,
    _mkl,
    _cpu_build_over_cuda,
    _two_majors,
    _companions,
    _numpy,
    _cudnn,
    _apart,
    _executable_stack,
)


def _extensions(installed: InstalledPackages, context: FixContext) -> Iterator[Finding]:
    torch = installed.version("torch")
    for name, demanded in installed.demands:
        if _minor(torch, 2) is not None and demanded != f"2.{_minor(torch, 2)}" and name not in COMPANIONS:
            title = f"{name} {installed.version(name)} was built for torch {demanded}, not {torch}"
            why, words = "compiled code fits one minor of torch", context.knowing(extension=name)
            yield finding("environment", "extension-mismatch", title, why, words, entry="F56")


def _bound(identity: str, name: str) -> tuple[int, ...]:
    return _numbers(load_failures()[identity].bounds[name])


def _record(installed: InstalledPackages, pattern: str) -> str | None:
    return next((name for name in installed.conda if re.match(pattern, name)), None)


def _minor(version: str, major: int) -> int | None:
    found = re.match(rf"{major}\.(\d+)", version)
    return int(found[1]) if found else None


def _numbers(version: str) -> tuple[int, ...]:
    """Read a version, or the one in the name of conda's record."""
    plain = re.sub(r"^[a-z]+-", "", version).partition("+")[0].partition("-")[0]
    return tuple(map(int, re.findall(r"\d+", plain)[:3]))
