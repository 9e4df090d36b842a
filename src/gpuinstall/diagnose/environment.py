"""What no kernel shows of an environment: what was done to its files, and the shell that it is used from."""

from __future__ import annotations

import re

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.diagnose.evidence import (
    CUDA_LIBRARY,
    ROCM_LIBRARY,
    DoctorEvidence,
    DoctorFindings,
)
from gpuinstall.environments.guard import guarded_lines


def environment_moved(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield that a folder was moved or copied: its scripts still lead to where it was made."""
    activated = evidence.contents.activated
    if activated and activated.resolve() != evidence.venv.resolve():
        yield evidence.fault(
            "environment-moved",
            f"{evidence.venv} was moved or copied: its activate script leads to {activated}",
            why="the scripts of an environment contain its path, so they start another Python or none",
            fixes=(evidence.install(anew=True),),
        )


def files_lost(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield packages of torch's family, or that these require, of which files are gone or cut."""
    packages = evidence.contents.by_name
    family = packages.keys() & {"torch", *evidence.catalog.family}
    names = set(family)
    for name in family:
        for requirement in packages[name].requires:
            names.add(canonicalize_name(requirement.name))
    for name in sorted(names & packages.keys()):
        package = packages[name]
        lost = package.lost
        if not lost:
            continue
        are = "are" if len(lost) > 1 else "is"
        total = sum(file.size > 0 for file in package.files)
        count = f"{len(lost)} of {total} files {are} missing or truncated"
        yield evidence.fault(
            "files-lost",
            f"{name} {package.version} is damaged: {count}: {lost[0]}",
            why="they were removed or truncated after the installation",
            entry="F167" if name == "torch" else None,
            fixes=(evidence.repair.reinstall(package),),
        )


def leftovers(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the folders that a broken uninstall left behind."""
    paths = evidence.contents.leftovers
    if paths:
        names = ", ".join(path.name for path in paths)
        yield evidence.fault(
            "leftovers",
            f"an interrupted uninstall left {names}",
            entry="F97",
            why="these files are unused",
            fixes=(Advice("rm", ("-r", *map(str, paths))),),
            blocking=False,
        )


def torch_twice(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield that two versions of torch are in one folder."""
    copies = [package for package in evidence.contents.packages if package.name == "torch"]
    if len(copies) > 1:
        versions = ", ".join(package.version for package in copies)
        # Into such an environment nothing can be installed: uv takes away one of the two.
        anew = Advice(OURS, ("install", "--venv", str(evidence.venv), "--replace"))
        yield evidence.fault(
            "torch-twice",
            f"torch is installed {len(copies)} times in one environment: {versions}",
            why="the files of both are mixed",
            entry="F34",
            fixes=(anew,),
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


def _record(evidence: DoctorEvidence, pattern: str) -> str | None:
    """Return the first of conda's records whose name begins as a pattern says."""
    names = filter(re.compile(pattern).match, evidence.contents.conda)
    return next(names, None)


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
                entry="F114" if is_for_rocm else "F49",
                blocking=False,
            )


def overrides(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the variables that decide for uv, pip or conda."""
    names = evidence.shell.overrides
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
