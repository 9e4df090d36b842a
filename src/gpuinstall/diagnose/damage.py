"""Faults of an environment that its files show, against its own records: nothing is imported or run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import Advice
from gpuinstall.base.requirement import marker_holds
from gpuinstall.diagnose.evidence import DoctorEvidence, DoctorFindings, processor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.requirements import Requirement

    from gpuinstall.environments.packages import InstalledPackage

_TORCH = "torch"
_ARM = {"arm64": "aarch64"}
_COMPANIONS = {"torchvision": "F47", "torchaudio": "F48"}

_OF_PYTHON = re.compile(r"\.(?:cpython-|cp)(3)(\d+)")


def environment_moved(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield that a folder was moved or copied: its scripts still lead to where it was made."""
    activated = evidence.contents.activated
    if activated and activated.resolve() != evidence.venv.resolve():
        yield evidence.fault(
            "environment-moved",
            f"{evidence.venv} was moved or copied: its activate script leads to {activated}",
            why="the scripts of an environment contain its path, so they start another Python or none",
            fixes=(evidence.install(),),
        )


def torch_hollow(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a folder torch without a torch, of which no record knows."""
    hollow = evidence.contents.hollow
    if hollow and not evidence.torch:
        yield evidence.fault(
            "torch-damaged",
            f"{hollow} has no torch",
            why="its __init__.py is missing, and there is no record of the version",
            fixes=(evidence.install(),),
        )


def files_lost(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield packages that torch needs, or that need it, of which files are gone or cut."""
    for package in _packages(evidence):
        lost = package.lost
        if not lost:
            continue
        are = "are" if len(lost) > 1 else "is"
        total = sum(file.size > 0 for file in package.files)
        count = f"{len(lost)} of {total} files {are} missing or truncated"
        yield evidence.fault(
            "files-lost",
            f"{package.name} {package.version} is damaged: {count}: {lost[0]}",
            why="they were removed or truncated after the installation",
            fixes=(evidence.repair.reinstall(package),),
        )


def made_for_elsewhere(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield packages whose compiled files are for another Python or another processor."""
    python = evidence.contents.python
    arch = evidence.machine.arch
    arch = _ARM.get(arch, arch)
    for package in _packages(evidence):
        pythons = _pythons_of(package)
        processor = _processor_of(package) or arch
        if pythons and python and python not in pythons:
            kinds = f"Python {' and '.join(sorted(pythons))}, and this is Python {python}"
        elif processor != arch:
            kinds = f"{processor} processors, and this is {arch}"
        else:
            continue
        yield evidence.fault(
            "made-for-elsewhere",
            f"{package.name} {package.version} is compiled for {kinds}",
            why="the environment was copied or moved here, or its Python was replaced",
            fixes=(evidence.repair.reinstall(package),),
        )


def _pythons_of(package: InstalledPackage) -> set[str]:
    """Return the Pythons that a package's compiled files are for."""
    matches = [_OF_PYTHON.search(file.path) for file in package.files]
    return {".".join(match.groups()) for match in matches if match}


def _processor_of(package: InstalledPackage) -> str | None:
    """Return what the first of a package's libraries runs on; None if none of them tells."""
    for file in package.files:
        if file.path.endswith(".so"):
            processor = processor_of(package.record.parent / file.path)
            if processor:
                return processor
    return None


def requirements_unmet(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield what torch and its companions require, and is missing or there in another version.

    Of torch itself only what companions require: what else was compiled for another one has its own check.
    """
    packages = evidence.contents.by_name
    narrowest: dict[str, tuple[str, Requirement]] = {}
    for name, requirement in _requirements(evidence):
        required = canonicalize_name(requirement.name)
        package = packages.get(required)
        if required == _TORCH and not (package and name in _COMPANIONS):
            continue
        if package and requirement.specifier.contains(package.version, prereleases=True):
            continue
        known = narrowest.get(required)
        if known is None or len(str(known[1].specifier)) < len(str(requirement.specifier)):
            narrowest[required] = (name, requirement)
    for other, (name, requirement) in sorted(narrowest.items()):
        state = "it is not installed"
        if other in packages:
            state = f"{packages[other].version} is installed"
        requires = f"{name} {packages[name].version} requires {other}{requirement.specifier}"
        message = f"{requires}, and {state}"
        if other == _TORCH:
            yield evidence.fault(
                f"{name}-mismatch",
                message,
                entry=_COMPANIONS[name],
                why="it is compiled for that torch",
                fixes=(evidence.install(_TORCH, name, note="install both together"),),
            )
        else:
            yield evidence.fault(
                "requirement-unmet",
                message,
                why="it was removed or changed after the installation",
                fixes=(evidence.repair.install(requirement),),
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


def _packages(evidence: DoctorEvidence) -> Iterator[InstalledPackage]:
    """Yield the packages of the family, and all that they require, directly or not."""
    names = {_TORCH, *evidence.catalog.family}
    for _, requirement in _requirements(evidence):
        names.add(canonicalize_name(requirement.name))
    for name, package in sorted(evidence.contents.by_name.items()):
        if name in names:
            yield package


def _requirements(evidence: DoctorEvidence) -> Iterator[tuple[str, Requirement]]:
    """Yield what the family requires, directly or not, each requirement with the name of the package that has it."""
    packages = evidence.contents.by_name
    python = evidence.contents.python or "3.12"
    family = {_TORCH, *evidence.catalog.family} & packages.keys()
    waiting = [(name, frozenset[str]()) for name in sorted(family)]
    followed = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        for requirement in packages[name].requires:
            marker = requirement.marker
            if marker and not any(
                marker_holds(marker, evidence.machine, python, extra) for extra in ("", *extras)
            ):
                continue
            yield name, requirement
            further = (canonicalize_name(requirement.name), frozenset(requirement.extras))
            if further[0] in packages and further not in followed:
                followed.add(further)
                waiting.append(further)
