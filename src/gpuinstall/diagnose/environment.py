"""What no kernel shows of an environment: what was done to its files, and the shell that it is used from."""

from __future__ import annotations

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.diagnose.evidence import DoctorEvidence, DoctorFindings
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


def overrides(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the variables that decide for uv, pip or conda."""
    names = evidence.overrides
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
