"""Faults of the project around an environment: locks that no longer hold, records that are not as it is, uv."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuinstall.advice import OURS, Advice
from gpuinstall.doctor.evidence import DoctorEvidence, toml_table
from gpuinstall.environments.environment import changed_build, installed_packages, unlocked_packages
from gpuinstall.errors import LockError, UsageError
from gpuinstall.failures.problems import finding_for
from gpuinstall.finding import Finding, Rejection
from gpuinstall.lock.declaration import changed_inputs, command_again
from gpuinstall.lock.fit import fit, read_locks
from gpuinstall.lock.folder_request import read_own_lock, recorded_request
from gpuinstall.lock.lock import read_lock, version_conflicts
from gpuinstall.plan.requirement import marker_holds, parse_requirement
from gpuinstall.request import Request
from gpuinstall.shell import quoted
from gpuinstall.text import some

FAMILY = ("torch", "torchvision", "torchaudio")


def uv_undoes_build(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A uv project whose next sync takes the CUDA build out again. Pure."""
    pyproject, torch, context = evidence.project.pyproject, evidence.torch, evidence.context
    local = torch.partition("+")[2]
    listed = toml_table(pyproject, "project").get("dependencies", ())
    names = {re.split(r"[^A-Za-z0-9_.-]", str(text).strip())[0].lower() for text in listed}
    if not local.startswith("cu") or names.isdisjoint(FAMILY) or _names_index(pyproject):
        return
    group = f"torch-{local}"
    message = f"the next uv run or uv sync replaces torch {torch} with the default index's build"
    why = "pyproject.toml requires torch, and [tool.uv.sources] does not set its index"
    if group in toml_table(pyproject, "dependency-groups"):
        why = f"pyproject.toml has the build in the group {group}, which a plain uv sync skips"
        context = context.near("grouped")
    context = context.knowing(group=quoted(group))
    yield finding_for(
        "uv-undoes-build", message, context, why=why, entry="F44", where="project", blocking=False
    )


def stale_locks(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Locks that cannot be read, no longer hold what is asked for, or do not run on this machine."""
    misfits, locks = [], evidence.project.locks
    request = Request(requirements=evidence.project.declaration.listed.requirements or ("torch",))
    for path in locks:
        try:
            judged = fit(read_lock(path), evidence.machine, request, evidence.catalog)
        except LockError as error:
            yield replace(error.finding, where="project", blocking=False)
            continue
        if isinstance(judged, Rejection):
            misfits.append(judged)
    if locks and len(misfits) == len(locks):
        reason = misfits[0].reason
        message = f"no lock here fits this machine: {misfits[0].candidate.name}: {reason.message}"
        yield _stale(f"lock-{reason.code}", message, evidence.project.folder)


def request_unmet(evidence: DoctorEvidence) -> Iterator[Finding]:
    """What the project around an environment asks for, and the environment lacks."""
    folder, installed = evidence.project.folder, installed_packages(evidence.venv)
    if folder is None or evidence.venv.parent != folder or not installed:
        return
    with suppress(LockError, UsageError):  # what cannot be read is a finding of its own
        recorded = recorded_request(folder, read_own_lock(evidence.venv)).declaring(
            evidence.project.declaration
        )
        python, lacking = evidence.contents.python or "3.12", []
        for requirement in map(parse_requirement, recorded.requirements):
            version = installed.get(requirement.name)
            if requirement.marker and not marker_holds(
                requirement.marker, evidence.machine, python
            ):
                continue
            if requirement.url is None and (version is None or not requirement.allows(version)):
                state = "is not installed" if version is None else f"is installed as {version}"
                lacking.append(f"{requirement.text} {state}")
        if lacking:
            message = f"the environment lacks requirements of its project: {some(lacking)}"
            yield Finding(
                "request-unmet",
                message,
                fixes=(evidence.install(),),
                where="environment",
                blocking=False,
            )


def changed_by_hand(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Packages that were put in, taken out or exchanged since an environment of ours was made."""
    lock = read_own_lock(evidence.venv)
    if lock is None:
        return
    installed = {
        package.name: package for package in evidence.contents.packages if package.name != "pip"
    }
    versions = {name: package.version for name, package in installed.items()}
    locked = {name: versions.get(name, "") for name in lock.names} | lock.versions
    changes, why = list[str](), "pip, uv or another program changed it"
    if changed := changed_build(evidence.venv, versions, locked, evidence.catalog.is_tied):
        fix = Advice(OURS, ("sync", "--venv", str(evidence.venv)), evidence.project.folder)
        yield Finding(
            "changed-by-hand", changed, None, why, fixes=(fix,), where="environment", blocking=False
        )
        return
    for change in unlocked_packages(versions, locked):
        name = change.partition(" ")[0]
        changes.append(
            f"{change} ({f'locked: {lock.versions[name]}' if name in lock.versions else 'not locked'})"
        )
    changes += [f"{name} is missing" for name in sorted(lock.names - installed.keys())]
    if not changes:
        return
    message = f"the environment no longer matches its lock: {some(changes)}"
    locked_again = Advice(
        OURS, ("install", *evidence.renewing), evidence.project.folder, note="as it was locked"
    )
    fixes = [locked_again]
    if added := [package.name for package in evidence.users_packages]:
        keeping = evidence.install(note="keeps the added packages")
        fixes = [keeping, replace(locked_again, note=f"as it was locked, without {some(added)}")]
    yield Finding(
        "changed-by-hand",
        message,
        None,
        why,
        fixes=tuple(fixes),
        where="environment",
        blocking=False,
    )


def locks_apart(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Locks that were not made together: for other requests, or with other versions; and files that have changed."""
    folder = evidence.project.folder
    if folder is None:
        return
    try:
        locks = [lock for lock in read_locks(folder) if lock.evidence]
        recorded = recorded_request(folder).declaring(evidence.project.declaration)
    except (LockError, UsageError):  # what cannot be read is a finding of its own
        return
    for lock in locks:
        if message := recorded.unlike(lock):
            yield _stale("lock-stale", message, folder)
    watched = {
        name: lines
        for name, lines in recorded.files.items()
        if name != evidence.project.declaration.file
    }
    for reason in changed_inputs(watched, folder):
        command = Advice.parse(command_again({reason.code}, recorded.files, recorded.requirements))
        fixes = (replace(command, place=folder),) if command else ()
        message = f"a lock is out of date: {reason.message}"
        yield Finding("lock-stale", message, fixes=fixes, where="project", blocking=False)
    if apart := version_conflicts(locks):
        message = "the locks disagree: " + "; ".join(
            f"{name} {', '.join(held)}" for name, held in apart.items()
        )
        yield replace(_stale("locks-disagree", message, folder), why="they were not made together")


def _stale(code: str, message: str, folder: Path | None) -> Finding:
    return Finding(
        code, message, fixes=(Advice(OURS, ("lock",), folder),), where="project", blocking=False
    )


def _names_index(pyproject: Mapping[str, Any]) -> bool:
    """Say whether a plain ``uv sync`` takes torch from an index that the project names."""
    own = toml_table(pyproject, "tool", "uv")
    default = any(index.get("default") for index in _tables(own.get("index")))
    groups = own.get("default-groups", ["dev"])
    return default or any(
        "extra" not in source
        and ("group" not in source or groups == "all" or source["group"] in groups)
        for source in _tables(toml_table(own, "sources").get("torch"))
    )


def _tables(value: object) -> list[Mapping[str, Any]]:
    return [
        item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)
    ]
