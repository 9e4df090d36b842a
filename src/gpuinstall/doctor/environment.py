"""Faults of an environment that its list of packages shows; torch is not imported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.doctor.installed import Installed
    from gpuinstall.machine import Machine

REBUILD = "gpuinstall install"
MKL_WITHOUT_SYMBOL = r"mkl-(2024\.[1-9]|202[5-9])"
FIRST_FOR_NUMPY_2 = (2, 3)
FIRST_FOR_NUMPY_2_ON_WINDOWS = (2, 4, 1)
FIRST_GLIBC_AGAINST_EXECUTABLE_STACKS = (2, 41)
NEWEST_PINNED_TORCHVISION = 13
NEWEST_PINNED_TORCHAUDIO = 10
FIRST_CUDNN_WITHOUT_PASCAL = 11
TURING = (7, 5)
COMPANIONS = ("torchvision", "torchaudio")


def environment_findings(installed: Installed, machine: Machine) -> Iterator[Finding]:
    """Find what is wrong with an environment. Pure."""
    yield from _torch_twice(installed)
    yield from _of_conda(installed, machine)
    yield from _mkl(installed)
    yield from _cpu_build_over_cuda(installed)
    yield from _two_majors(installed)
    yield from _companions(installed)
    yield from _extensions(installed)
    yield from _numpy(installed, machine)
    yield from _cudnn(installed, machine)
    yield from _apart(installed)
    yield from _executable_stack(installed, machine)


def _torch_twice(installed: Installed) -> Iterator[Finding]:
    versions = installed.versions("torch")
    if len(versions) > 1:
        title = f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}"
        yield _finding("torch-twice", title, "the files of both lie over each other", "F34")


def _of_conda(installed: Installed, machine: Machine) -> Iterator[Finding]:
    build = _record(installed, r"(pytorch|libtorch)-\d")
    torch = installed.version("torch")
    if build and torch and not _record(installed, rf".*-{re.escape(torch.partition('+')[0])}-"):
        title = f"conda put {build} and pip torch {torch} into the same environment"
        fix = "pip uninstall -y torch && conda install --force-reinstall pytorch"
        yield _finding("conda-and-pip", title, "the files of both lie over each other", "F34", fix)
    elif build and machine.gpus and re.search(r"[-_]cpu", build):
        title = f"conda took the CPU build {build} on a machine with {machine.gpus[0].label}"
        why = "its solver did not see the driver (__cuda), or another package held the CUDA build back"
        yield _finding("conda-cpu-build", title, why, "F45", "conda install 'pytorch=*=*cuda*'")


def _mkl(installed: Installed) -> Iterator[Finding]:
    """Builds of the channel pytorch up to 2.3 take any MKL (pytorch/pytorch#123097)."""
    build, mkl = _record(installed, r"pytorch-(1\.\d+|2\.[0-3])\.\d+-py"), _record(installed, MKL_WITHOUT_SYMBOL)
    if build and mkl:
        why = "MKL 2024.1 no longer has a symbol (iJIT_NotifyEvent) that this build looks for"
        yield _finding("mkl-too-new", f"{mkl} beside {build}", why, "F60", "conda install 'mkl<2024.1'")


def _cpu_build_over_cuda(installed: Installed) -> Iterator[Finding]:
    torch = installed.version("torch")
    runtime = next((name for name, _ in installed.packages if re.match(r"nvidia-(cudnn|cublas|nccl)", name)), None)
    if torch.endswith("+cpu") and runtime:
        title = f"the CPU build torch {torch} lies over a CUDA build: {runtime} is still there"
        yield _finding("cpu-build-over-cuda", title, "another package's requirements replaced the CUDA build", "F34")


def _two_majors(installed: Installed) -> Iterator[Finding]:
    found = (re.match(r"nvidia-.*-(cu1[1-9])$", name) for name, _ in installed.packages)
    majors = {match[1]: match[0] for match in found if match}
    if len(majors) > 1:
        title = f"CUDA libraries of two majors: {' and '.join(majors[major] for major in sorted(majors))}"
        yield _finding("two-cuda-majors", title, "both write into the same nvidia folder", "F54")


def _companions(installed: Installed) -> Iterator[Finding]:
    """Check that torchvision is 0.(minor + 15) for torch 2.0 to 2.13, and torchaudio torch's own minor up to 2.10."""
    torch, vision, audio = map(installed.version, ("torch", "torchvision", "torchaudio"))
    minor = _minor(torch, 2)
    if minor is None:
        return
    why = "it is compiled for one minor of torch"
    if minor <= NEWEST_PINNED_TORCHVISION and vision and _minor(vision, 0) != minor + 15:
        title = f"torchvision {vision} does not belong to torch {torch}, which needs 0.{minor + 15}"
        yield _finding("torchvision-mismatch", title, why, "F47", "gpuinstall install torch torchvision")
    if minor <= NEWEST_PINNED_TORCHAUDIO and audio and _minor(audio, 2) != minor:
        title = f"torchaudio {audio} does not belong to torch {torch}, which needs 2.{minor}"
        yield _finding("torchaudio-mismatch", title, why, "F48", "gpuinstall install torch torchaudio")


def _extensions(installed: Installed) -> Iterator[Finding]:
    minor = _minor(installed.version("torch"), 2)
    for name, demanded in installed.demands:
        if minor is not None and demanded != f"2.{minor}" and name not in COMPANIONS:
            title = f"{name} {installed.version(name)} was built for torch {demanded}, not {installed.version('torch')}"
            why = "compiled code fits one minor of torch"
            yield _finding("extension-mismatch", title, why, "F56", f"gpuinstall install torch {name}", blocking=False)


def _numpy(installed: Installed, machine: Machine) -> Iterator[Finding]:
    torch, numpy = map(installed.version, ("torch", "numpy"))
    first = FIRST_FOR_NUMPY_2_ON_WINDOWS if machine.os == "windows" else FIRST_FOR_NUMPY_2
    if torch and _numbers(torch) < first and _minor(numpy, 2) is not None:
        title = f"numpy {numpy} beside torch {torch}"
        why = "this torch was compiled with NumPy 1"
        yield _finding("numpy-too-new", title, why, "F66", "uv pip install 'numpy<2'")


def _cudnn(installed: Installed, machine: Machine) -> Iterator[Finding]:
    version = installed.version("nvidia-cudnn-cu12")
    old = [gpu for gpu in machine.gpus if gpu.compute_capability and gpu.compute_capability < TURING]
    if (_minor(version, 9) or 0) >= FIRST_CUDNN_WITHOUT_PASCAL and old:
        title = f"cuDNN {version} has no code for {old[0].label}"
        fix = "uv pip install 'nvidia-cudnn-cu12<9.11'"
        yield _finding("cudnn-too-new", title, "cuDNN 9.11 dropped cards older than Turing", "F55", fix)


def _apart(installed: Installed) -> Iterator[Finding]:
    if installed.apart:
        title = f"{installed.apart[0]} lies in another folder (lib, lib64) than torch"
        yield _finding("libraries-apart", title, "torch looks for its CUDA libraries beside itself", "F52")


def _executable_stack(installed: Installed, machine: Machine) -> Iterator[Finding]:
    glibc = machine.glibc
    if installed.executable_stack and glibc and _numbers(glibc) >= FIRST_GLIBC_AGAINST_EXECUTABLE_STACKS:
        title = f"torch {installed.version('torch')} asks for an executable stack"
        why = f"glibc {glibc} loads no such library (from 2.41 on)"
        yield _finding("executable-stack", title, why, "F61", "gpuinstall install --upgrade")


def _finding(code: str, title: str, why: str, identity: str, fix: str = REBUILD, *, blocking: bool = True) -> Finding:
    return Finding("environment", code, title, why, fix, identity, blocking)


def _record(installed: Installed, pattern: str) -> str | None:
    return next((name for name in installed.conda if re.match(pattern, name)), None)


def _minor(version: str, major: int) -> int | None:
    found = re.match(rf"{major}\.(\d+)", version)
    return int(found[1]) if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))
