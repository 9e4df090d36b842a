"""Faults of an environment that its records show. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.advice import quoted
from gpuinstall.failures.problems import finding_for
from gpuinstall.failures.table import load_failures
from gpuinstall.verify.coverage import uncovered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.doctor.check import DoctorEvidence
    from gpuinstall.doctor.contents import InstalledPackages
    from gpuinstall.finding import Finding

COMPANIONS = ("torchvision", "torchaudio")


def torch_twice(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Two versions of torch in one folder."""
    versions = evidence.installed.versions("torch")
    if len(versions) > 1:
        title = f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}"
        yield _fault(evidence, "torch-twice", title, "the files of both lie over each other", "F34")


def conda_build(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A build of conda below one of pip, or one for the CPU."""
    build = _record(evidence.installed, r"(pytorch|libtorch)-\d")
    torch = evidence.torch
    if build and torch and not _record(evidence.installed, rf".*-{re.escape(torch.partition('+')[0])}-"):
        title = f"conda put {build} and pip torch {torch} into the same environment"
        yield _fault(evidence, "conda-and-pip", title, "the files of both lie over each other", "F34")
    elif build and evidence.machine.gpus and re.search(r"[-_]cpu", build):
        title = f"conda took the CPU build {build} on a machine with {evidence.machine.gpus[0].label}"
        why = "its solver did not see the driver (__cuda), or another package held the CUDA build back"
        yield _fault(evidence, "conda-cpu-build", title, why, "F45")


def mkl_too_new(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Builds of the channel pytorch before torch 2.4 take any MKL."""
    build, mkl = _record(evidence.installed, r"pytorch-[\d.]+-py"), _record(evidence.installed, r"mkl-\d")
    if build and mkl and _numbers(build) < _bound("F60", "torch") and _numbers(mkl) >= _bound("F60", "mkl"):
        why = "MKL 2024.1 no longer has a symbol (iJIT_NotifyEvent) that this build looks for"
        yield _fault(evidence, "mkl-too-new", f"{mkl} beside {build}", why, "F60")


def cpu_build_over_cuda(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A CPU build of torch beside the libraries of the CUDA build that it replaced."""
    names = (name for name, _ in evidence.installed.packages)
    runtime = next((name for name in names if re.match(r"nvidia-(cudnn|cublas|nccl)", name)), None)
    if evidence.torch.endswith("+cpu") and runtime:
        title = f"the CPU build torch {evidence.torch} lies over a CUDA build: {runtime} is still there"
        why = "another package's requirements replaced the CUDA build"
        yield _fault(evidence, "cpu-build-over-cuda", title, why, "F34")


def no_code(evidence: DoctorEvidence) -> Iterator[Finding]:
    """GPUs that this build of torch has no code for, by the catalogue: no kernel has to fail to know it."""
    for each in uncovered(evidence.machine, evidence.catalog, evidence.torch, evidence.words.get("cuda")):
        title = f"torch {evidence.torch} has no code for {each.gpu.label}: {each.message}"
        yield _fault(evidence, "no-code", title, "no kernel of this build can run on it", each.cause)


def two_cuda_majors(evidence: DoctorEvidence) -> Iterator[Finding]:
    """The CUDA libraries of two majors."""
    found = (re.match(r"nvidia-.*-(cu1[1-9])$", name) for name, _ in evidence.installed.packages)
    majors = {match[1]: match[0] for match in found if match}
    if len(majors) > 1:
        title = f"CUDA libraries of two majors: {' and '.join(majors[major] for major in sorted(majors))}"
        yield _fault(evidence, "two-cuda-majors", title, "both write into the same nvidia folder", "F54")


def companions_differ(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Check torchvision, 0.(minor + 15) for torch 2.x, and torchaudio, of torch's own minor, while they are bound."""
    torch, vision, audio = map(evidence.installed.version, ("torch", "torchvision", "torchaudio"))
    minor, label = _minor(torch, 2), torch.partition("+")[2]
    if minor is None:
        return
    for name, version, entry in (("torchvision", vision, "F47"), ("torchaudio", audio, "F48")):
        if label and version.partition("+")[2] not in ("", label):
            title = f"{name} {version} does not belong to torch {torch}, which is for {label}"
            yield _fault(evidence, f"{name}-mismatch", title, "both have to be of one index", entry)
    why = "it is compiled for one minor of torch"
    if _numbers(torch) < _bound("F47", "torch") and vision and _minor(vision, 0) != minor + 15:
        title = f"torchvision {vision} does not belong to torch {torch}, which needs 0.{minor + 15}"
        yield _fault(evidence, "torchvision-mismatch", title, why, "F47")
    if _numbers(torch) < _bound("F48", "torch") and audio and _minor(audio, 2) != minor:
        title = f"torchaudio {audio} does not belong to torch {torch}, which needs 2.{minor}"
        yield _fault(evidence, "torchaudio-mismatch", title, why, "F48")


def numpy_too_new(evidence: DoctorEvidence) -> Iterator[Finding]:
    """NumPy 2 beside a torch that was compiled with NumPy 1."""
    torch, numpy = map(evidence.installed.version, ("torch", "numpy"))
    first = _bound("F66", "torch-windows" if evidence.machine.os == "windows" else "torch")
    if torch and _numbers(torch) < first and _numbers(numpy) >= _bound("F66", "numpy"):
        title = f"numpy {numpy} beside torch {torch}"
        yield _fault(evidence, "numpy-too-new", title, "this torch was compiled with NumPy 1", "F66")


def cudnn_too_new(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A cuDNN without code for a GPU of this machine."""
    version, needed = evidence.installed.version("nvidia-cudnn-cu12"), _bound("F55", "capability")
    old = [gpu for gpu in evidence.machine.gpus if gpu.compute_capability and tuple(gpu.compute_capability) < needed]
    if _numbers(version) >= _bound("F55", "cudnn") and old:
        title = f"cuDNN {version} has no code for {old[0].label}"
        yield _fault(evidence, "cudnn-too-new", title, "cuDNN 9.11 dropped cards older than Turing", "F55")


def libraries_apart(evidence: DoctorEvidence) -> Iterator[Finding]:
    """CUDA libraries in another folder than torch."""
    if evidence.installed.apart:
        title = f"{evidence.installed.apart[0]} lies in another folder (lib, lib64) than torch"
        yield _fault(evidence, "libraries-apart", title, "torch looks for its CUDA libraries beside itself", "F52")


def executable_stack(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A library of torch that this glibc does not load."""
    glibc = evidence.machine.glibc
    if evidence.installed.executable_stack and glibc and _numbers(glibc) >= _bound("F61", "glibc"):
        title = f"torch {evidence.torch} asks for an executable stack"
        yield _fault(evidence, "executable-stack", title, f"glibc {glibc} loads no such library (from 2.41 on)", "F61")


def extensions_differ(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Other packages with compiled code: one that fails stops only what uses it."""
    minor = _minor(evidence.torch, 2)
    for name, demanded in evidence.installed.demands:
        if minor is not None and demanded != f"2.{minor}" and name not in COMPANIONS:
            version = evidence.installed.version(name)
            title = f"{name} {version} was built for torch {demanded}, not {evidence.torch}"
            why, context = "compiled code fits one minor of torch", evidence.context.knowing(extension=quoted(name))
            yield finding_for(
                "extension-mismatch", title, context, why=why, entry="F56", where="environment", blocking=False
            )


def _fault(evidence: DoctorEvidence, code: str, title: str, why: str, entry: str) -> Finding:
    return finding_for(code, title, evidence.context, why=why, entry=entry, where="environment")


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
