"""Faults of the project around an environment: locks that no longer hold, records that are not as it is, uv."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.environment import installed_packages, unlocked_packages
from gpuinstall.errors import LockError, UsageError
from gpuinstall.failures.problems import finding_for
from gpuinstall.files import parse_toml, read_document
from gpuinstall.finding import Finding
from gpuinstall.lock.compare import held_apart
from gpuinstall.lock.fit import Misfit, fit, read_locks
from gpuinstall.lock.folder_request import read_own_lock, recorded_request
from gpuinstall.lock.inputs import changed_inputs, command_again
from gpuinstall.lock.lock import read_lock
from gpuinstall.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpuinstall.doctor.check import DoctorEvidence
    from gpuinstall.finding import Where

FAMILY = ("torch", "torchvision", "torchaudio")

PIP = "pip"
"""Lies in an environment and belongs to no lock."""


@dataclass(frozen=True)
class ProjectFolder:
    """A folder's pyproject.toml, empty where there is none, and its locks."""

    pyproject: Mapping[str, Any]
    locks: tuple[Path, ...] = ()

    @property
    def requirements(self) -> tuple[str, ...]:
        """What ``[tool.gpuinstall]`` asks for."""
        asked = _table(self.pyproject, "tool", "gpuinstall").get("requirements")
        return tuple(map(str, asked)) if isinstance(asked, list) else ()


def read_project(folder: Path) -> ProjectFolder:
    """Read a project folder; what cannot be parsed is left to the tools that own it."""
    try:
        pyproject = parse_toml(read_document(folder / "pyproject.toml", folder))
    except (OSError, ValueError):
        pyproject = {}
    return ProjectFolder(pyproject, tuple(sorted(folder.glob("pylock.*.toml"))))


def uv_undoes_build(evidence: DoctorEvidence) -> Iterator[Finding]:
    """A uv project whose next sync takes the CUDA build out again. Pure."""
    pyproject, torch, context = evidence.project.pyproject, evidence.torch, evidence.context
    local = torch.partition("+")[2]
    if not local.startswith("cu") or not _asks_for_torch(pyproject) or _names_index(pyproject):
        return
    group = f"torch-{local}"
    title = f"the next uv run or uv sync replaces torch {torch} by the default index's build"
    why = "pyproject.toml asks for torch and [tool.uv.sources] does not say from where"
    if group in _table(pyproject, "dependency-groups"):
        why = f"pyproject.toml has the build in the group {group}, which a plain uv sync leaves out"
        context = context.near("grouped")
    context = context.knowing(group=group)
    yield finding_for("uv-undoes-build", title, context, why=why, entry="F44", where="project", blocking=False)


def stale_locks(evidence: DoctorEvidence) -> Iterator[Finding]:
    """Locks that cannot be read, no longer hold what is asked for, or do not run on this machine."""
    misfits, locks = [], evidence.project.locks
    request = Request(requirements=evidence.project.requirements or ("torch",))
    for path in locks:
        try:
            found = fit(read_lock(path), evidence.machine, request, evidence.catalog)
        except LockError as error:
            yield replace(error.finding, where="project", blocking=False)
            continue
        misfits += [found] if isinstance(found, Misfit) else []
    if locks and len(misfits) == len(locks):
        reason = misfits[0].reason
        title = f"no lock here is for this machine: {misfits[0].lock.name}: {reason.message}"
        yield _note(f"lock-{reason.code}", title, None, "gpuinstall lock", where="project")


def check_records(folder: Path, venv: Path, declared: tuple[str, ...]) -> Iterator[Finding]:
    """Compare an environment with its lock, and the locks of ``folder`` with each other."""
    yield from changed_by_hand(venv)
    with suppress(LockError, UsageError):  # what cannot be read is a finding of its own
        yield from locks_apart(folder, declared)


def changed_by_hand(venv: Path) -> Iterator[Finding]:
    """Packages that were put in, taken out or exchanged since an environment of ours was made."""
    lock = read_own_lock(venv)
    if lock is None:
        return
    installed = {name: version for name, version in installed_packages(venv).items() if name != PIP}
    locked = {name: installed.get(name, "") for name in lock.names} | lock.versions
    said = [_said(one, lock.versions) for one in unlocked_packages(installed, locked)]
    said += [f"{name} is gone" for name in sorted(lock.names - installed.keys())]
    if said:
        title = f"the environment is not as it was locked: {', '.join(said)}"
        added = " ".join(sorted(installed.keys() - lock.names))
        fix = f"gpuinstall install --replace {added}   # keeps what was added" if added else ""
        fix += "\n" * bool(added) + "gpuinstall install --replace   # as it was locked"
        yield _note("changed-by-hand", title, "something other than gpuinstall changed it", fix, where="environment")


def locks_apart(folder: Path, declared: tuple[str, ...]) -> Iterator[Finding]:
    """Locks that were not made together: for other requests, or with other versions; and files that have changed."""
    locks = [lock for lock in read_locks(folder) if lock.evidence]
    recorded = recorded_request(folder)
    asked = recorded.declaring(declared) if declared else recorded
    for lock in locks:
        if title := asked.unlike(lock):
            yield _note("lock-stale", title, None, "gpuinstall lock", where="project")
    for reason in changed_inputs(asked.files, folder):
        fix = command_again({reason.code}, asked.files, asked.requirements)
        yield _note("lock-stale", f"a lock is stale: {reason.message}", None, fix, where="project")
    if apart := held_apart(locks):
        title = "the locks disagree: " + "; ".join(f"{name} {', '.join(held)}" for name, held in apart.items())
        yield _note("locks-disagree", title, "they were not made together", "gpuinstall lock", where="project")


def _note(code: str, message: str, why: str | None, fix: str, *, where: Where) -> Finding:
    return Finding(code, message, None, why, fixes=tuple(fix.splitlines()), where=where, blocking=False)


def _asks_for_torch(pyproject: Mapping[str, Any]) -> bool:
    asked = _table(pyproject, "project").get("dependencies", ())
    names = {re.split(r"[^A-Za-z0-9_.-]", str(text).strip())[0].lower() for text in asked}
    return not names.isdisjoint(FAMILY)


def _names_index(pyproject: Mapping[str, Any]) -> bool:
    """Say whether a plain ``uv sync`` takes torch from an index that the project names."""
    own = _table(pyproject, "tool", "uv")
    default = any(index.get("default") for index in _tables(own.get("index")))
    groups = own.get("default-groups", ["dev"])
    return default or any(
        "extra" not in source and ("group" not in source or groups == "all" or source["group"] in groups)
        for source in _tables(_table(own, "sources").get("torch"))
    )


def _tables(found: object) -> list[Mapping[str, Any]]:
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]


def _table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        found = document.get(name, {})
        document = found if isinstance(found, dict) else {}
    return document


def _said(package: str, locked: Mapping[str, str]) -> str:
    """Write ``numpy 1.26.4`` with what the lock says of it."""
    name = package.partition(" ")[0]
    return f"{package} (locked: {locked[name]})" if name in locked else f"{package} (not locked)"
