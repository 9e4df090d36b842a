"""Faults of an environment that its files show, against its own records: nothing is imported or run."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.advice import Advice
from gpuinstall.doctor.evidence import DoctorEvidence, processor_of
from gpuinstall.finding import Finding
from gpuinstall.plan.requirement import marker_holds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packaging.requirements import Requirement

    from gpuinstall.environments.packages import InstalledPackage

_TORCH = "torch"
_ARM = {"arm64": "aarch64"}
_COMPANIONS = {"torchvision": "F47", "torchaudio": "F48"}

_OF_PYTHON = re.compile(r"\.(?:cpython-|cp)(3)(\d+)")


def environment_moved(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A folder that was moved or copied: its scripts still lead to where it was made."""
    activated = evidence.contents.activated
    if activated and activated.resolve() != evidence.venv.resolve():
        message = f"{evidence.venv} was moved or copied: its activate script leads to {activated}"
        why = "the scripts of an environment contain its path, so they start another Python or none"
        yield Finding(
            "environment-moved",
            message,
            None,
            why,
            fixes=(evidence.install(),),
            where="environment",
        )


def torch_hollow(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A folder torch without a torch, of which no record knows."""
    if evidence.contents.hollow and not evidence.torch:
        message = f"{evidence.contents.hollow} has no torch"
        why = "its __init__.py is missing, and there is no record of the version"
        yield Finding(
            "torch-damaged", message, None, why, fixes=(evidence.install(),), where="environment"
        )


def files_lost(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Packages that torch needs, or that need it, of which files are gone or cut."""
    for package in _packages(evidence):
        if lost := package.lost:
            are = "are" if len(lost) > 1 else "is"
            count = f"{len(lost)} of {sum(file.size > 0 for file in package.files)} files {are} missing or truncated"
            message = f"{package.name} {package.version} is damaged: {count}: {lost[0]}"
            why = "they were removed or truncated after the installation"
            fixes = (evidence.repair.reinstall(package),)
            yield Finding("files-lost", message, None, why, fixes=fixes, where="environment")


def made_for_elsewhere(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Packages whose compiled files are for another Python or another processor."""
    python, arch = evidence.contents.python, _ARM.get(evidence.machine.arch, evidence.machine.arch)
    for package in _packages(evidence):
        paths = [file.path for file in package.files]
        pythons = {f"{match[1]}.{match[2]}" for path in paths if (match := _OF_PYTHON.search(path))}
        libraries = (package.record.parent / path for path in paths if path.endswith(".so"))
        processor = next(filter(None, map(processor_of, libraries)), arch)
        if pythons and python and python not in pythons:
            kinds = f"Python {' and '.join(sorted(pythons))}, and this is Python {python}"
        elif processor != arch:
            kinds = f"{processor} processors, and this is {arch}"
        else:
            continue
        message = f"{package.name} {package.version} is compiled for {kinds}"
        why = "the environment was copied or moved here, or its Python was replaced"
        fixes = (evidence.repair.reinstall(package),)
        yield Finding("made-for-elsewhere", message, None, why, fixes=fixes, where="environment")


def requirements_unmet(evidence: DoctorEvidence) -> Iterator[Finding]:
    """What torch and its companions require, and is not there or is there in another version.

    Of torch itself only what companions require: what else was compiled for another one has its own check.
    """
    packages = evidence.contents.by_name
    unmet: list[tuple[str, str, Requirement]] = []
    for name, requirement in _requirements(evidence):
        required = canonicalize_name(requirement.name)
        there = packages.get(required)
        elsewhere = required == _TORCH and not (there and name in _COMPANIONS)
        if not (
            elsewhere or (there and requirement.specifier.contains(there.version, prereleases=True))
        ):
            unmet.append((required, name, requirement))
    for required, rows in groupby(sorted(unmet, key=lambda row: row[0]), key=lambda row: row[0]):
        _, name, requirement = max(
            rows, key=lambda row: len(str(row[2].specifier))
        )  # the narrowest
        there = packages.get(required)
        state = f"{there.version} is installed" if there else "it is not installed"
        message = f"{name} {packages[name].version} requires {required}{requirement.specifier}, and {state}"
        if required == _TORCH:
            entry, why = _COMPANIONS[name], "it is compiled for that torch"
            fixes = (evidence.install(_TORCH, name, note="install both together"),)
            yield Finding(f"{name}-mismatch", message, entry, why, fixes=fixes, where="environment")
        else:
            why = "it was removed or changed after the installation"
            fixes = (evidence.repair.install(requirement),)
            yield Finding("requirement-unmet", message, None, why, fixes=fixes, where="environment")


def leftovers(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Folders that a broken uninstall left behind."""
    if paths := evidence.contents.leftovers:
        message = f"an interrupted uninstall left {', '.join(path.name for path in paths)}"
        fixes = (Advice("rm", ("-r", *map(str, paths))),)
        why = "these files are unused"
        yield Finding(
            "leftovers", message, "F97", why, fixes=fixes, where="environment", blocking=False
        )


def _packages(evidence: DoctorEvidence) -> Iterator[InstalledPackage]:
    """The packages of the family, and all that they require, directly or not."""
    packages = evidence.contents.by_name
    names = {_TORCH, *evidence.catalog.family} | {
        canonicalize_name(row.name) for _, row in _requirements(evidence)
    }
    yield from (packages[name] for name in sorted(names & packages.keys()))


def _requirements(evidence: DoctorEvidence) -> Iterator[tuple[str, Requirement]]:
    """Follow what the family requires, directly or not: each requirement with the name of the package that has it."""
    packages, python = evidence.contents.by_name, evidence.contents.python or "3.12"
    waiting = [
        (name, frozenset[str]())
        for name in sorted({_TORCH, *evidence.catalog.family})
        if name in packages
    ]
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
