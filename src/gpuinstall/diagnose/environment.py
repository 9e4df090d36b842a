"""Faults of an environment that the versions of its packages show, and the variables of the shell it is used from."""

from __future__ import annotations

import re

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.backend import Backend, known_backend
from gpuinstall.base.shell import quoted
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.diagnose.evidence import (
    CUDA_LIBRARY,
    DECIDES_OVER_BUILDS,
    ROCM_LIBRARY,
    DoctorEvidence,
    DoctorFindings,
)
from gpuinstall.environments.guard import guarded_lines
from gpuinstall.environments.packages import InstalledPackage
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import VENDORS, rules_for, vendor_of
from gpuinstall.verify.diagnosis import find_build, no_code_cause

_COMPANIONS = ("torchvision", "torchaudio")
CUDA_PACKAGE = r"nvidia-(cu|nccl|nvjitlink|nvshmem|nvtx)"
ENTRIES = {"cublas": "F50", "cublasLt": "F50", "cudnn": "F51", "nccl": "F53"}
TOOLKIT = "F49"


def torch_twice(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield that two versions of torch are in one folder."""
    packages = evidence.contents.packages
    versions = [package.version for package in packages if package.name == "torch"]
    if len(versions) > 1:
        yield evidence.fault(
            "torch-twice",
            f"torch is installed {len(versions)} times in one environment: {', '.join(versions)}",
            why="the files of both are mixed",
            entry="F34",
        )


def conda_build(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a build of conda below one of pip, or one for the CPU."""
    build = _record(evidence, r"(pytorch|libtorch)-\d")
    if build is None:
        return
    torch = evidence.torch
    gpus = evidence.machine.gpus
    version = re.escape(torch.partition("+")[0])
    if torch and not _record(evidence, rf".*-{version}-"):
        yield evidence.fault(
            "conda-and-pip",
            f"conda put {build} and pip torch {torch} into the same environment",
            why="the files of both are mixed",
            entry="F34",
        )
    elif gpus and re.search(r"[-_]cpu", build):
        yield evidence.fault(
            "conda-cpu-build",
            f"conda took the CPU build {build} on a machine with {gpus[0].label}",
            why="its solver did not see the driver (__cuda), or another package excluded the CUDA build",
            entry="F45",
        )


def mkl_too_new(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield an MKL that a build of the channel pytorch before torch 2.4 takes and does not run with."""
    build = _record(evidence, r"pytorch-[\d.]+-py")
    mkl = _record(evidence, r"mkl-\d")
    if build is None or mkl is None:
        return
    is_old = _numbers(build) < _bound("F60", "torch")
    if is_old and _numbers(mkl) >= _bound("F60", "mkl"):
        yield evidence.fault(
            "mkl-too-new",
            f"{mkl} beside {build}",
            why="MKL 2024.1 dropped a symbol (iJIT_NotifyEvent) that this build requires",
            entry="F60",
        )


def cpu_build_over_cuda(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a CPU build of torch beside the libraries of the CUDA build that it replaced."""
    torch = evidence.torch
    names = filter(re.compile(r"nvidia-(cudnn|cublas|nccl)").match, evidence.contents.by_name)
    runtime = next(names, None)
    if runtime and torch.endswith("+cpu"):
        yield evidence.fault(
            "cpu-build-over-cuda",
            f"the CPU build torch {torch} was installed over a CUDA build: {runtime} is still there",
            why="the requirements of another package replaced the CUDA build",
            entry="F34",
        )


def no_code(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield GPUs that this build of torch has no code for, by the catalogue: no kernel has to fail to know it."""
    machine = evidence.machine
    backend = _backend(evidence)
    if backend is None:
        return
    build = find_build(evidence.catalog, machine, evidence.torch, backend)
    if build is None or not build.code:
        return
    rules = rules_for(machine, evidence.catalog, (backend.kind,))
    for gpu in machine.gpus:
        vendor = VENDORS[vendor_of(gpu, machine) or rules.vendor]
        if vendor.kind != backend.kind or rules.architecture(gpu) is None:
            continue
        code = rules.code(build, gpu)
        if not isinstance(code, Code):
            yield evidence.fault(
                "no-code",
                f"torch {evidence.torch} has no code for {gpu.label}: {code.message}",
                why="no kernel of this build can run on it",
                entry=no_code_cause(rules, gpu, build.code),
            )


def _backend(evidence: DoctorEvidence) -> Backend | None:
    """Return what the environment's torch was built for; None if that is not known."""
    label = evidence.torch.partition("+")[2]
    # A version without a label names the CUDA that it is for in its own files.
    cuda = evidence.words.get("cuda", "").replace(".", "")
    tag = label or f"cu{cuda}"
    return known_backend(tag) or known_backend(label.partition(".")[0])


def two_cuda_majors(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the CUDA libraries of two majors."""
    majors: dict[str, str] = {}
    for name in evidence.contents.by_name:
        match = re.match(r"nvidia-.*-(cu1[1-9])$", name)
        if match:
            majors[match[1]] = name
    if len(majors) > 1:
        packages = " and ".join(package for _, package in sorted(majors.items()))
        yield evidence.fault(
            "two-cuda-majors",
            f"CUDA libraries of two majors: {packages}",
            why="both write into the same nvidia folder",
            entry="F54",
        )


def guard_passed(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a torch that something has put in place of the one that was proven in an environment of others."""
    for line in guarded_lines(evidence.venv):
        name, _, proven = line.partition("==")
        if name == "torch" and evidence.torch != proven and evidence.repair.lock is None:
            words = ("install", "--repair", "--into", "--venv", str(evidence.venv))
            yield evidence.fault(
                "guard-passed",
                f"torch {evidence.torch or 'is gone'}, not the torch {proven} that was proven here",
                why="an installer that reads neither pip's settings there nor uv's has replaced it",
                fixes=(Advice(OURS, words),),
            )


def companions_differ(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a torchvision or a torchaudio that was built for another torch."""
    minor = _minor(evidence.torch, 2)
    if minor is None:
        return
    # Of torch 2.x torchvision is 0.(x + 15) and torchaudio 2.x, while they are bound to one minor.
    required = {
        "torchvision": ("F47", f"0.{minor + 15}"),
        "torchaudio": ("F48", f"2.{minor}"),
    }
    yield from _of_other_indexes(evidence)
    for name, (entry, series) in required.items():
        version = evidence.contents.version(name)
        is_bound = _numbers(evidence.torch) < _bound(entry, "torch")
        if version and is_bound and not re.match(rf"{re.escape(series)}(?!\d)", version):
            yield evidence.fault(
                f"{name}-mismatch",
                f"{name} {version} does not match torch {evidence.torch}, which requires {series}",
                why="it is compiled for one minor version of torch",
                entry=entry,
            )


def _of_other_indexes(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a torchvision or a torchaudio that is for another CUDA than torch."""
    torch = evidence.torch
    label = torch.partition("+")[2]
    for name, entry in (("torchvision", "F47"), ("torchaudio", "F48")):
        version = evidence.contents.version(name)
        own_label = version.partition("+")[2]
        if label and own_label and own_label != label:
            yield evidence.fault(
                f"{name}-mismatch",
                f"{name} {version} does not match torch {torch}, which is for {label}",
                why="both must come from the same index",
                entry=entry,
            )


def numpy_too_new(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a NumPy 2 beside a torch that was compiled with NumPy 1."""
    torch = evidence.torch
    numpy = evidence.contents.version("numpy")
    first = _bound("F66", "torch-windows" if evidence.machine.os == "windows" else "torch")
    is_old = torch and _numbers(torch) < first
    if is_old and _numbers(numpy) >= _bound("F66", "numpy"):
        yield evidence.fault(
            "numpy-too-new",
            f"numpy {numpy} beside torch {torch}",
            why="this torch was compiled with NumPy 1",
            entry="F66",
        )


def cudnn_too_new(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a cuDNN without code for a GPU of this machine."""
    version = evidence.contents.version("nvidia-cudnn-cu12")
    if _numbers(version) < _bound("F55", "cudnn"):
        return
    required = _bound("F55", "capability")
    for gpu in evidence.machine.gpus:
        if gpu.compute_capability and gpu.compute_capability < required:
            yield evidence.fault(
                "cudnn-too-new",
                f"cuDNN {version} has no code for {gpu.label}",
                why="cuDNN 9.11 dropped GPUs older than Turing",
                entry="F55",
            )
            return


def libraries_apart(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield CUDA libraries in another folder than torch."""
    packages = evidence.contents.packages
    homes = {package.record.parent for package in packages if package.name == "torch"}
    for package in packages:
        is_apart = homes and package.record.parent not in homes
        if is_apart and re.match(CUDA_PACKAGE, package.name):
            yield evidence.fault(
                "libraries-apart",
                f"{package.name} is in another folder (lib, lib64) than torch",
                why="torch looks for its CUDA libraries next to itself",
                entry="F102",
            )
            return


def executable_stack(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a library of torch that this glibc does not load."""
    glibc = evidence.machine.glibc
    if not glibc or not evidence.contents.executable_stack:
        return
    if _numbers(glibc) >= _bound("F61", "glibc"):
        yield evidence.fault(
            "executable-stack",
            f"torch {evidence.torch} requires an executable stack",
            why=f"glibc {glibc} rejects such libraries (since 2.41)",
            entry="F61",
        )


def extensions_differ(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield other packages with compiled code: one that fails stops only what uses it."""
    minor = _minor(evidence.torch, 2)
    if minor is None:
        return
    for package in evidence.contents.packages:
        built_for = _torch_minor(package)
        if built_for in {None, minor} or package.name in _COMPANIONS:
            continue
        release = f"{package.name} {package.version}"
        yield evidence.fault(
            "extension-mismatch",
            f"{release} was built for torch 2.{built_for}, not {evidence.torch}",
            why="compiled code works with one minor version of torch",
            context=evidence.context.knowing(extension=quoted(package.name)),
            entry="F56",
            blocking=False,
        )


def _bound(identity: str, name: str) -> tuple[int, ...]:
    """Return a version at which a failure begins or ends."""
    return _numbers(load_failures()[identity].bounds[name])


def _record(evidence: DoctorEvidence, pattern: str) -> str | None:
    """Return the first of conda's records whose name begins as a pattern says."""
    names = filter(re.compile(pattern).match, evidence.contents.conda)
    return next(names, None)


def _torch_minor(package: InstalledPackage) -> int | None:
    """Return the minor of torch that a package was built for: by the local version of its build, or by a pin."""
    label = package.version.partition("+")[2]
    built = re.search(r"(?:pt|torch)2\.?(\d|1\d)(?!\d)", label)
    if built:
        return int(built[1])
    for requirement in package.requires:
        if requirement.name != "torch" or "extra" in str(requirement.marker):
            continue
        pin = re.match(r"==2\.(\d+)", str(requirement.specifier))
        if pin:
            return int(pin[1])
    return None


def _minor(version: str, major: int) -> int | None:
    match = re.match(rf"{major}\.(\d+)", version)
    return int(match[1]) if match else None


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version, or of the one in the name of conda's record."""
    release = re.match(r"(?:[a-z]+-)?([^+-]*)", version)
    numbers = re.findall(r"\d+", release[1]) if release else []
    return tuple(map(int, numbers[:3]))


def library_path(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the folders of LD_LIBRARY_PATH with libraries that the build brings itself."""
    is_for_rocm = "+rocm" in evidence.torch
    kind = "ROCm" if is_for_rocm else "CUDA"
    pattern = ROCM_LIBRARY if is_for_rocm else CUDA_LIBRARY
    for folder, present in evidence.shell.libraries.items():
        names = list(filter(pattern.match, present))
        if names:
            yield evidence.fault(
                "library-path-poisoned",
                f"LD_LIBRARY_PATH points to {kind} libraries of a toolkit: {folder}",
                why=f"{names[0]} there is loaded instead of the wheel's own",
                entry="F114" if is_for_rocm else _library_entry(names),
                blocking=False,
            )


def _library_entry(names: list[str]) -> str:
    """Return the entry of a folder: with one kind of library it is that library's, a whole toolkit has its own."""
    entries = set()
    for name in names:
        match = CUDA_LIBRARY.match(name)
        if match:
            entries.add(ENTRIES.get(match[1], TOOLKIT))
    return entries.pop() if len(entries) == 1 else TOOLKIT


def python_path(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the folders of PYTHONPATH with another torch."""
    for folder in evidence.shell.torch_folders:
        yield evidence.fault(
            "torch-shadowed",
            f"PYTHONPATH contains another torch: {folder}",
            why="programs import it instead of the environment's",
            blocking=False,
        )


def python_home(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield that PYTHONHOME is set."""
    if "PYTHONHOME" in evidence.shell.variables:
        yield evidence.fault(
            "python-home-set",
            "PYTHONHOME is set",
            why="every Python looks for its standard library there",
            blocking=False,
        )


def overrides(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the variables that decide for uv, pip or conda."""
    names = [name for name in DECIDES_OVER_BUILDS if name in evidence.shell.variables]
    if names:
        select = "selects" if len(names) == 1 else "select"
        yield evidence.fault(
            "override-left-behind",
            f"{' and '.join(names)} {select} builds in this shell",
            why="uv, pip or conda may choose another build because of it",
            context=evidence.context.knowing(variables=" ".join(names)),
            entry="F32",
            blocking=False,
        )


def toolkit_differs(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a toolkit in CUDA_HOME with which no extension of torch can be built."""
    toolkit = evidence.shell.toolkit
    torch = evidence.torch
    label = re.match(r"cu(\d\d)(\d)", torch.partition("+")[2])
    if toolkit is None or label is None:
        return
    major, minor = label.groups()
    if major != toolkit:
        yield evidence.fault(
            "toolkit-differs",
            f"CUDA_HOME is a toolkit for CUDA {toolkit}, but torch {torch} is for CUDA {major}",
            why="torch runs, but refuses to compile extensions with it",
            context=evidence.context.knowing(cuda=f"{major}.{minor}", toolkit=f"{major}-{minor}"),
            entry="F57",
            blocking=False,
        )
