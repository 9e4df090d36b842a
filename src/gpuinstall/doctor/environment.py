"""Faults of an environment that the versions of its packages show, and the variables of the shell it is used from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuinstall.backend import known_backend
from gpuinstall.doctor.evidence import (
    CUDA_LIBRARY,
    DECIDES_OVER_BUILDS,
    ROCM_LIBRARY,
    DoctorEvidence,
)
from gpuinstall.environments.packages import InstalledPackage
from gpuinstall.failures.problems import FixContext, finding_for
from gpuinstall.failures.table import load_failures
from gpuinstall.finding import Finding
from gpuinstall.shell import quoted
from gpuinstall.vendors import VENDORS, rules_for, vendor_of
from gpuinstall.vendors.protocol import Code
from gpuinstall.verify.diagnosis import find_build, no_code_cause

_COMPANIONS = ("torchvision", "torchaudio")
CUDA_PACKAGE = r"nvidia-(cu|nccl|nvjitlink|nvshmem|nvtx)"


def torch_twice(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Two versions of torch in one folder."""
    versions = [
        package.version for package in evidence.contents.packages if package.name == "torch"
    ]
    if len(versions) > 1:
        message = (
            f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}"
        )
        yield _fault(evidence, "torch-twice", message, "the files of both are mixed", "F34")


def conda_build(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A build of conda below one of pip, or one for the CPU."""
    build = _record(evidence, r"(pytorch|libtorch)-\d")
    torch = evidence.torch
    if build and torch and not _record(evidence, rf".*-{re.escape(torch.partition('+')[0])}-"):
        message = f"conda put {build} and pip torch {torch} into the same environment"
        yield _fault(evidence, "conda-and-pip", message, "the files of both are mixed", "F34")
    elif build and evidence.machine.gpus and re.search(r"[-_]cpu", build):
        message = (
            f"conda took the CPU build {build} on a machine with {evidence.machine.gpus[0].label}"
        )
        why = (
            "its solver did not see the driver (__cuda), or another package excluded the CUDA build"
        )
        yield _fault(evidence, "conda-cpu-build", message, why, "F45")


def mkl_too_new(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Builds of the channel pytorch before torch 2.4 take any MKL."""
    build, mkl = _record(evidence, r"pytorch-[\d.]+-py"), _record(evidence, r"mkl-\d")
    if (
        build
        and mkl
        and _numbers(build) < _bound("F60", "torch")
        and _numbers(mkl) >= _bound("F60", "mkl")
    ):
        why = "MKL 2024.1 dropped a symbol (iJIT_NotifyEvent) that this build requires"
        yield _fault(evidence, "mkl-too-new", f"{mkl} beside {build}", why, "F60")


def cpu_build_over_cuda(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A CPU build of torch beside the libraries of the CUDA build that it replaced."""
    runtime = next(
        (
            name
            for name in evidence.contents.by_name
            if re.match(r"nvidia-(cudnn|cublas|nccl)", name)
        ),
        None,
    )
    if evidence.torch.endswith("+cpu") and runtime:
        message = f"the CPU build torch {evidence.torch} was installed over a CUDA build: {runtime} is still there"
        why = "the requirements of another package replaced the CUDA build"
        yield _fault(evidence, "cpu-build-over-cuda", message, why, "F34")


def no_code(evidence: DoctorEvidence) -> Iterator[Finding]:
    """GPUs that this build of torch has no code for, by the catalogue: no kernel has to fail to know it."""
    machine, catalog, label = evidence.machine, evidence.catalog, evidence.torch.partition("+")[2]
    # A version without a label names the CUDA that it is for in its own files.
    tag = label or f"cu{evidence.words.get('cuda', '').replace('.', '')}"
    backend = known_backend(tag) or known_backend(label.partition(".")[0])
    build = find_build(catalog, machine, evidence.torch, backend) if backend else None
    if not (build and build.code and backend):
        return
    rules = rules_for(machine, catalog, (backend.kind,))
    for gpu in machine.gpus:
        if (
            VENDORS[vendor_of(gpu, machine) or rules.vendor].kind != backend.kind
            or rules.architecture(gpu) is None
        ):
            continue
        code = rules.code(build, gpu)
        if not isinstance(code, Code):
            message = f"torch {evidence.torch} has no code for {gpu.label}: {code.message}"
            cause = no_code_cause(rules, gpu, build.code)
            yield _fault(
                evidence, "no-code", message, "no kernel of this build can run on it", cause
            )


def two_cuda_majors(evidence: DoctorEvidence) -> Iterator[Finding]:
    """The CUDA libraries of two majors."""
    matches = (re.match(r"nvidia-.*-(cu1[1-9])$", name) for name in evidence.contents.by_name)
    majors = {match[1]: match[0] for match in matches if match}
    if len(majors) > 1:
        message = f"CUDA libraries of two majors: {' and '.join(majors[major] for major in sorted(majors))}"
        yield _fault(
            evidence, "two-cuda-majors", message, "both write into the same nvidia folder", "F54"
        )


def companions_differ(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Check torchvision, 0.(minor + 15) for torch 2.x, and torchaudio, of torch's own minor, while they are bound."""
    torch, vision, audio = map(evidence.contents.version, ("torch", "torchvision", "torchaudio"))
    minor, label = _minor(torch, 2), torch.partition("+")[2]
    if minor is None:
        return
    for name, version, entry in (("torchvision", vision, "F47"), ("torchaudio", audio, "F48")):
        if label and version.partition("+")[2] not in ("", label):
            message = f"{name} {version} does not match torch {torch}, which is for {label}"
            yield _fault(
                evidence, f"{name}-mismatch", message, "both must come from the same index", entry
            )
    why = "it is compiled for one minor version of torch"
    if _numbers(torch) < _bound("F47", "torch") and vision and _minor(vision, 0) != minor + 15:
        message = (
            f"torchvision {vision} does not match torch {torch}, which requires 0.{minor + 15}"
        )
        yield _fault(evidence, "torchvision-mismatch", message, why, "F47")
    if _numbers(torch) < _bound("F48", "torch") and audio and _minor(audio, 2) != minor:
        message = f"torchaudio {audio} does not match torch {torch}, which requires 2.{minor}"
        yield _fault(evidence, "torchaudio-mismatch", message, why, "F48")


def numpy_too_new(evidence: DoctorEvidence) -> Iterator[Finding]:
    """NumPy 2 beside a torch that was compiled with NumPy 1."""
    torch, numpy = map(evidence.contents.version, ("torch", "numpy"))
    first = _bound("F66", "torch-windows" if evidence.machine.os == "windows" else "torch")
    if torch and _numbers(torch) < first and _numbers(numpy) >= _bound("F66", "numpy"):
        message = f"numpy {numpy} beside torch {torch}"
        yield _fault(
            evidence, "numpy-too-new", message, "this torch was compiled with NumPy 1", "F66"
        )


def cudnn_too_new(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A cuDNN without code for a GPU of this machine."""
    version, needed = evidence.contents.version("nvidia-cudnn-cu12"), _bound("F55", "capability")
    old = [
        gpu
        for gpu in evidence.machine.gpus
        if gpu.compute_capability and tuple(gpu.compute_capability) < needed
    ]
    if _numbers(version) >= _bound("F55", "cudnn") and old:
        message = f"cuDNN {version} has no code for {old[0].label}"
        yield _fault(
            evidence, "cudnn-too-new", message, "cuDNN 9.11 dropped GPUs older than Turing", "F55"
        )


def libraries_apart(evidence: DoctorEvidence) -> Iterator[Finding]:
    """CUDA libraries in another folder than torch."""
    packages = evidence.contents.packages
    homes = {package.record.parent for package in packages if package.name == "torch"}
    libraries = (package for package in packages if re.match(CUDA_PACKAGE, package.name))
    apart = next(
        (package.name for package in libraries if homes and package.record.parent not in homes),
        None,
    )
    if apart:
        message = f"{apart} is in another folder (lib, lib64) than torch"
        yield _fault(
            evidence,
            "libraries-apart",
            message,
            "torch looks for its CUDA libraries next to itself",
            "F102",
        )


def executable_stack(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A library of torch that this glibc does not load."""
    glibc = evidence.machine.glibc
    if evidence.contents.executable_stack and glibc and _numbers(glibc) >= _bound("F61", "glibc"):
        message = f"torch {evidence.torch} requires an executable stack"
        yield _fault(
            evidence,
            "executable-stack",
            message,
            f"glibc {glibc} rejects such libraries (since 2.41)",
            "F61",
        )


def extensions_differ(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Other packages with compiled code: one that fails stops only what uses it."""
    minor = _minor(evidence.torch, 2)
    for package in evidence.contents.packages if minor is not None else ():
        built_for = _torch_minor(package)
        if built_for not in (None, minor) and package.name not in _COMPANIONS:
            message = f"{package.name} {package.version} was built for torch 2.{built_for}, not {evidence.torch}"
            why = "compiled code works with one minor version of torch"
            context = evidence.context.knowing(extension=quoted(package.name))
            yield _finding("extension-mismatch", message, why, context, "F56")


def _fault(evidence: DoctorEvidence, code: str, message: str, why: str, entry: str) -> Finding:
    return finding_for(code, message, evidence.context, why=why, entry=entry, where="environment")


def _bound(identity: str, name: str) -> tuple[int, ...]:
    return _numbers(load_failures()[identity].bounds[name])


def _record(evidence: DoctorEvidence, pattern: str) -> str | None:
    return next((name for name in evidence.contents.conda if re.match(pattern, name)), None)


def _torch_minor(package: InstalledPackage) -> int | None:
    """The minor of torch that a package was built for: by the local version of its build, or by a pin."""
    if built := re.search(r"(?:pt|torch)2\.?(\d|1\d)(?!\d)", package.version.partition("+")[2]):
        return int(built[1])
    for requirement in package.requires:
        pin = re.match(r"==2\.(\d+)", str(requirement.specifier))
        if pin and requirement.name == "torch" and "extra" not in str(requirement.marker):
            return int(pin[1])
    return None


def _minor(version: str, major: int) -> int | None:
    match = re.match(rf"{major}\.(\d+)", version)
    return int(match[1]) if match else None


def _numbers(version: str) -> tuple[int, ...]:
    """Read a version, or the one in the name of conda's record."""
    plain = re.sub(r"^[a-z]+-", "", version).partition("+")[0].partition("-")[0]
    return tuple(map(int, re.findall(r"\d+", plain)[:3]))


ENTRIES = {"cublas": "F50", "cublasLt": "F50", "cudnn": "F51", "nccl": "F53"}
TOOLKIT = "F49"


def library_path(evidence: DoctorEvidence) -> Iterator[Finding]:
    """LD_LIBRARY_PATH leads to libraries that the build brings itself."""
    for folder, present in evidence.shell.libraries.items():
        for_rocm = "+rocm" in evidence.torch
        kind, pattern = ("ROCm", ROCM_LIBRARY) if for_rocm else ("CUDA", CUDA_LIBRARY)
        if names := tuple(filter(pattern.match, present)):
            message = f"LD_LIBRARY_PATH points to {kind} libraries of a toolkit: {folder}"
            why = f"{names[0]} there is loaded instead of the wheel's own"
            # A folder of one kind of library has that library's entry, a whole toolkit its own.
            kinds = {
                ENTRIES.get(match[1], TOOLKIT)
                for name in names
                if (match := CUDA_LIBRARY.match(name))
            }
            entry = "F114" if for_rocm else kinds.pop() if len(kinds) == 1 else TOOLKIT
            yield _finding("library-path-poisoned", message, why, evidence.context, entry)


def python_path(evidence: DoctorEvidence) -> Iterator[Finding]:
    """PYTHONPATH leads to another torch."""
    for folder in evidence.shell.torch_folders:
        why = "programs import it instead of the environment's"
        yield _finding(
            "torch-shadowed", f"PYTHONPATH contains another torch: {folder}", why, evidence.context
        )


def python_home(evidence: DoctorEvidence) -> Iterator[Finding]:
    """PYTHONHOME is set."""
    if "PYTHONHOME" in evidence.shell.variables:
        why = "every Python looks for its standard library there"
        yield _finding("python-home-set", "PYTHONHOME is set", why, evidence.context)


def overrides(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Variables that decide for uv, pip or conda."""
    names = [name for name in DECIDES_OVER_BUILDS if name in evidence.shell.variables]
    if names:
        message = f"{' and '.join(names)} {'selects' if len(names) == 1 else 'select'} builds in this shell"
        why = "uv, pip or conda may choose another build because of it"
        yield _finding(
            "override-left-behind",
            message,
            why,
            evidence.context.knowing(variables=" ".join(names)),
            "F32",
        )


def toolkit_differs(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A toolkit in CUDA_HOME with which no extension of torch can be built."""
    toolkit, torch = evidence.shell.toolkit, evidence.torch
    built = re.match(r"cu(\d\d)(\d)", torch.partition("+")[2])
    if toolkit and built and built[1] != toolkit:
        message = (
            f"CUDA_HOME is a toolkit for CUDA {toolkit}, but torch {torch} is for CUDA {built[1]}"
        )
        why = "torch runs, but refuses to compile extensions with it"
        words = {"cuda": f"{built[1]}.{built[2]}", "toolkit": f"{built[1]}-{built[2]}"}
        yield _finding("toolkit-differs", message, why, evidence.context.knowing(**words), "F57")


def _finding(
    code: str, message: str, why: str, context: FixContext, identity: str | None = None
) -> Finding:
    return finding_for(
        code, message, context, why=why, entry=identity, where="environment", blocking=False
    )
