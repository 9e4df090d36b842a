"""What no kernel shows: what was done to an environment's files, its shell, the project around it, its locks, uv."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.errors import LockError
from gpuinstall.base.finding import Finding, Rejection
from gpuinstall.base.request import Request
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.catalog.failures.problems import finding_for
from gpuinstall.diagnose.evidence import DoctorEvidence, DoctorFindings, toml_table
from gpuinstall.environments.environment import changed_build, unlocked_packages
from gpuinstall.environments.guard import guarded_lines
from gpuinstall.lock.fit import fit
from gpuinstall.lock.folder_request import read_own_lock
from gpuinstall.lock.lock import read_lock

FAMILY = ("torch", "torchvision", "torchaudio")


def uv_undoes_build(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield a uv project whose next sync takes the CUDA build out again. Pure."""
    pyproject = evidence.project.pyproject
    label = evidence.torch.partition("+")[2]
    requirements = toml_table(pyproject, "project").get("dependencies", ())
    names = {re.split(r"[^A-Za-z0-9_.-]", str(text).strip())[0].lower() for text in requirements}
    if not label.startswith("cu") or names.isdisjoint(FAMILY) or _names_index(pyproject):
        return
    group = f"torch-{label}"
    context = evidence.context.knowing(group=quoted(group))
    why = "pyproject.toml requires torch, and [tool.uv.sources] does not set its index"
    if group in toml_table(pyproject, "dependency-groups"):
        why = f"pyproject.toml has the build in the group {group}, which a plain uv sync skips"
        context = context.near("grouped")
    yield finding_for(
        "uv-undoes-build",
        f"the next uv run or uv sync replaces torch {evidence.torch} with the default index's build",
        context,
        why=why,
        entry="F44",
        where="project",
        blocking=False,
    )


def _names_index(pyproject: Mapping[str, Any]) -> bool:
    """Whether a plain ``uv sync`` takes torch from an index that the project names."""
    settings = toml_table(pyproject, "tool", "uv")
    if any(index.get("default") for index in _tables(settings.get("index"))):
        return True
    groups = settings.get("default-groups", ["dev"])
    for source in _tables(toml_table(settings, "sources").get("torch")):
        counts = "group" not in source or groups == "all" or source["group"] in groups
        if counts and "extra" not in source:
            return True
    return False


def _tables(value: object) -> list[Mapping[str, Any]]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, dict)]


def stale_locks(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield locks that cannot be read, no longer hold what is requested, or do not run on this machine."""
    misfits = []
    locks = evidence.project.locks
    requirements = evidence.project.declaration.listed.requirements or ("torch",)
    request = Request(requirements=requirements)
    for path in locks:
        try:
            answer = fit(read_lock(path), evidence.machine, request, evidence.catalog)
        except LockError as error:
            yield replace(error.finding, where="project", blocking=False)
            continue
        if isinstance(answer, Rejection):
            misfits.append(answer)
    if locks and len(misfits) == len(locks):
        name = misfits[0].candidate.name
        reason = misfits[0].reason
        yield Finding(
            f"lock-{reason.code}",
            f"no lock here fits this machine: {name}: {reason.message}",
            fixes=(Advice(OURS, ("lock",), evidence.project.folder),),
            where="project",
            blocking=False,
        )


def changed_by_hand(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the packages that were put in, taken out or exchanged since an environment of ours was made."""
    lock = read_own_lock(evidence.venv)
    if lock is None:
        return
    folder = evidence.project.folder
    packages = evidence.contents.packages
    versions = {package.name: package.version for package in packages if package.name != "pip"}
    locked = {name: versions.get(name, "") for name in lock.names} | lock.versions
    why = "pip, uv or another program changed it"
    build = changed_build(versions, locked, evidence.catalog.is_tied)
    if build:
        fix = Advice(OURS, ("sync", "--venv", str(evidence.venv)), folder)
        yield evidence.fault(
            "changed-by-hand",
            build,
            why=why,
            fixes=(fix,),
            blocking=False,
        )
        return
    changes = []
    for change in unlocked_packages(versions, locked):
        name = change.partition(" ")[0]
        version = lock.versions.get(name)
        state = f"locked: {version}" if version else "not locked"
        changes.append(f"{change} ({state})")
    changes += [f"{name} is missing" for name in sorted(lock.names - versions.keys())]
    if not changes:
        return
    words = ("install", *evidence.renewing)
    added = [package.name for package in evidence.users_packages]
    note = f", without {some(added)}" if added else ""
    fixes = [Advice(OURS, words, folder, note=f"as it was locked{note}")]
    if added:
        fixes.insert(0, evidence.install(note="keeps the added packages"))
    yield evidence.fault(
        "changed-by-hand",
        f"the environment no longer matches its lock: {some(changes)}",
        why=why,
        fixes=tuple(fixes),
        blocking=False,
    )


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


CHECKS = (
    environment_moved,
    files_lost,
    torch_twice,
    guard_passed,
    overrides,
    uv_undoes_build,
    stale_locks,
    changed_by_hand,
)
