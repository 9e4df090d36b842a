"""Faults of an environment that its list of packages shows; torch is not imported."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.doctor.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.machine import Machine

REBUILD = "gpuinstall install"
NEWEST_FOR_NUMPY_1 = 2
NEWEST_PINNED_TORCHVISION = 13
NEWEST_PINNED_TORCHAUDIO = 10
FIRST_CUDNN_WITHOUT_PASCAL = 11
TURING = (7, 5)


@dataclass(frozen=True)
class Installed:
    """The packages of an environment, a name twice where it is so; ``conda`` are the names of conda's records."""

    packages: tuple[tuple[str, str], ...]
    conda: tuple[str, ...] = ()

    def versions(self, name: str) -> tuple[str, ...]:
        """Every version of a package that is there."""
        return tuple(version for package, version in self.packages if package == name)

    def version(self, name: str) -> str:
        """The version of a package; empty where it is not there."""
        return next(iter(self.versions(name)), "")


def read_installed(venv: Path) -> Installed:
    """List an environment's packages."""
    return Installed(tuple(_packages(venv)), tuple(path.stem for path in sorted(venv.glob("conda-meta/*.json"))))


def environment_findings(installed: Installed, machine: Machine) -> Iterator[Finding]:
    """Find what is wrong with an environment. Pure."""
    yield from _torch_twice(installed)
    yield from _torch_of_two_tools(installed)
    yield from _cpu_build_over_cuda(installed)
    yield from _two_majors(installed)
    yield from _companions(installed)
    yield from _numpy(installed)
    yield from _cudnn(installed, machine)


def _torch_twice(installed: Installed) -> Iterator[Finding]:
    versions = installed.versions("torch")
    if len(versions) > 1:
        title = f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}"
        yield _finding("torch-twice", title, "the files of both lie over each other", "F34")


def _torch_of_two_tools(installed: Installed) -> Iterator[Finding]:
    by_conda = [name for name in installed.conda if re.match(r"(pytorch|libtorch)-\d", name)]
    by_pip = installed.version("torch")
    if by_conda and by_pip and not any(f"-{by_pip.partition('+')[0]}-" in name for name in by_conda):
        title = f"conda put {by_conda[0]} and pip torch {by_pip} into the same environment"
        fix = "pip uninstall -y torch && conda install --force-reinstall pytorch"
        yield _finding("conda-and-pip", title, "the files of both lie over each other", "F34", fix)


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


def _numpy(installed: Installed) -> Iterator[Finding]:
    torch, numpy = map(installed.version, ("torch", "numpy"))
    minor = _minor(torch, 2)
    if minor is not None and minor <= NEWEST_FOR_NUMPY_1 and _minor(numpy, 2) is not None:
        title = f"numpy {numpy} beside torch {torch}"
        yield _finding(
            "numpy-too-new", title, "this torch was compiled with NumPy 1", "F66", "uv pip install 'numpy<2'"
        )


def _cudnn(installed: Installed, machine: Machine) -> Iterator[Finding]:
    version = installed.version("nvidia-cudnn-cu12")
    old = [gpu for gpu in machine.gpus if gpu.compute_capability and gpu.compute_capability < TURING]
    if (_minor(version, 9) or 0) >= FIRST_CUDNN_WITHOUT_PASCAL and old:
        title = f"cuDNN {version} has no code for {old[0].label}"
        fix = "uv pip install 'nvidia-cudnn-cu12<9.11'"
        yield _finding("cudnn-too-new", title, "cuDNN 9.11 dropped cards older than Turing", "F55", fix)


def _finding(code: str, title: str, why: str, identity: str, fix: str = REBUILD) -> Finding:
    return Finding("environment", code, title, why, fix, identity, blocking=True)


def _minor(version: str, major: int) -> int | None:
    found = re.match(rf"{major}\.(\d+)", version)
    return int(found[1]) if found else None


def _packages(venv: Path) -> Iterator[tuple[str, str]]:
    for folder in {
        path.resolve() for path in (*venv.glob("lib*/python*/site-packages"), *venv.glob("Lib/site-packages"))
    }:
        for entry in sorted(folder.glob("*.dist-info")):
            name, _, version = entry.stem.partition("-")
            yield re.sub(r"[-_.]+", "-", name).lower(), version
