"""Faults of an environment that its files show, against its own records: nothing is imported or run. Pure."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.advice import quoted
from gpuinstall.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement

    from gpuinstall.doctor.check import DoctorEvidence
    from gpuinstall.doctor.contents import EnvironmentContents, PackageContents
    from gpuinstall.machine import Machine

TORCH = "torch"
ARM = {"arm64": "aarch64"}
COMPANIONS = {"torchvision": "F47", "torchaudio": "F48"}

SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
}
CPYTHON = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}


def torch_hollow(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A folder torch without a torch, of which no record knows."""
    if evidence.contents.hollow and TORCH not in evidence.contents.packages:
        title = f"{evidence.contents.hollow} holds no torch"
        fix = f"gpuinstall install{evidence.words.get('into', '')}"
        yield _fault("torch-damaged", title, "its __init__.py is not there, and no record says what it was", (fix,))


def files_lost(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Packages that torch needs, or that need it, of which files are gone or cut."""
    for package in _packages(evidence):
        if package.lost:
            count = f"{len(package.lost)} of its {package.files} files"
            title = f"{package.name} {package.version} has lost all or part of {count}: {package.lost[0]}"
            why = "something removed or cut them after the installation"
            yield _fault("files-lost", title, why, evidence.repair.reinstall([package]))


def made_for_elsewhere(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Packages whose compiled files are for another Python or another processor."""
    python, arch = evidence.contents.python, ARM.get(evidence.machine.arch, evidence.machine.arch)
    for package in _packages(evidence):
        of_python = bool(package.pythons) and python is not None and python not in package.pythons
        of_processor = package.processor not in (None, arch)
        if of_python or of_processor:
            other = (
                f"Python {' and '.join(sorted(package.pythons))}" if of_python else f"{package.processor} processors"
            )
            here = f"Python {python}" if of_python else arch
            title = f"{package.name} {package.version} is compiled for {other}, and this is {here}"
            why = "the environment was copied or moved here, or its Python was exchanged"
            yield _fault("made-for-elsewhere", title, why, evidence.repair.reinstall([package]))


def requirements_unmet(evidence: DoctorEvidence) -> Iterator[Finding]:
    """What torch and its companions require, and is not there or is there in another version."""
    unmet = [(name, asked) for name, asked in _required(evidence) if not _is_met(asked, evidence)]
    for needed, group in groupby(sorted(unmet, key=_needed), key=_needed):
        name, asked = max(group, key=lambda each: len(str(each[1].specifier)))  # the narrowest
        if needed == TORCH:
            yield _other_torch(evidence, name, asked)
            continue
        there = evidence.contents.packages.get(needed)
        state = f"{there.version} is there" if there else "it is not there"
        title = f"{name} {evidence.contents.packages[name].version} needs {needed}{asked.specifier}, and {state}"
        why = "something removed or changed it after the installation"
        yield _fault("requirement-unmet", title, why, evidence.repair.install({needed: asked}))


def leftovers(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Folders that a broken uninstall left behind."""
    found = evidence.contents.leftovers
    if found:
        names = ", ".join(path.name for path in found)
        why = "an update did not finish: these files are used by nobody"
        fix = " ".join(("rm -r", *map(quoted, found)))
        message = f"a broken uninstall has left {names}"
        yield Finding("leftovers", message, "F97", why, fixes=(fix,), where="environment", blocking=False)


def _other_torch(evidence: DoctorEvidence, name: str, asked: Requirement) -> Finding:
    packages = evidence.contents.packages
    title = f"{name} {packages[name].version} needs torch{asked.specifier}, and {packages[TORCH].version} is there"
    fix = f"gpuinstall install{evidence.words.get('into', '')} torch {name}   # both out of one resolution"
    code = f"{name}-mismatch" if name in COMPANIONS else "extension-mismatch"
    why = "it is compiled for that torch"
    entry, blocking = COMPANIONS.get(name, "F56"), name in COMPANIONS
    return Finding(code, title, entry, why, fixes=(fix,), where="environment", blocking=blocking)


def _packages(evidence: DoctorEvidence) -> Iterator[PackageContents]:
    names = _reached_from(_roots(evidence), evidence.contents, evidence.machine)
    yield from (evidence.contents.packages[name] for name in sorted(names))


def _required(evidence: DoctorEvidence) -> Iterator[tuple[str, Requirement]]:
    """What is required; of torch itself only by companions, as what was compiled for another one has its own check."""
    for name, asked in _requirements_from(_roots(evidence), evidence.contents, evidence.machine):
        if _of_torch(asked) and (name not in COMPANIONS or TORCH not in evidence.contents.packages):
            continue
        yield name, asked


def _requirements_from(
    roots: Iterable[str], contents: EnvironmentContents, machine: Machine
) -> Iterator[tuple[str, Requirement]]:
    """Follow what ``roots`` require, directly or not: each requirement with the name of the package that has it."""
    variables = _variables(contents, machine)
    waiting = [(name, frozenset[str]()) for name in roots if name in contents.packages]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        for asked in contents.packages[name].requires:
            if not _counts(asked, variables, extras):
                continue
            yield name, asked
            further = (canonicalize_name(asked.name), frozenset(asked.extras))
            if further[0] in contents.packages and further not in seen:
                seen.add(further)
                waiting.append(further)


def _reached_from(roots: Iterable[str], contents: EnvironmentContents, machine: Machine) -> frozenset[str]:
    """Name the packages that are there of ``roots`` and of all that they require."""
    roots = list(roots)
    required = {canonicalize_name(asked.name) for _, asked in _requirements_from(roots, contents, machine)}
    return frozenset((required | set(roots)) & contents.packages.keys())


def _roots(evidence: DoctorEvidence) -> Iterable[str]:
    return (TORCH, *sorted(evidence.catalog.family - {TORCH}))


def _of_torch(asked: Requirement) -> bool:
    return canonicalize_name(asked.name) == TORCH


def _needed(unmet: tuple[str, Requirement]) -> str:
    return canonicalize_name(unmet[1].name)


def _is_met(asked: Requirement, evidence: DoctorEvidence) -> bool:
    there = evidence.contents.packages.get(canonicalize_name(asked.name))
    return there is not None and asked.specifier.contains(there.version, prereleases=True)


def _fault(code: str, title: str, why: str, fix: Iterable[str]) -> Finding:
    return Finding(code, title, None, why, fixes=tuple(fix), where="environment")


def _counts(asked: Requirement, variables: Mapping[str, str], extras: frozenset[str]) -> bool:
    if asked.marker is None:
        return True
    return any(asked.marker.evaluate({**variables, "extra": extra}) for extra in ("", *extras))


def _variables(contents: EnvironmentContents, machine: Machine) -> dict[str, str]:
    arch = {"windows": {"x86_64": "AMD64"}}.get(machine.os, {}).get(machine.arch, machine.arch)
    python = contents.python or "3.12"
    return {
        **CPYTHON,
        **SYSTEMS[machine.os],
        "platform_machine": arch,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
