"""Where an environment and the locks around it are not what their records say: changed, disagreeing, unproven."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.doctor.finding import Finding
from gpuinstall.environments.environment import installed_packages, unlocked_packages
from gpuinstall.errors import LockError, UsageError
from gpuinstall.lock.compare import held_apart
from gpuinstall.lock.fit import read_locks
from gpuinstall.lock.folder_request import read_own_lock, recorded_request
from gpuinstall.lock.inputs import changed_inputs, command_again

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpuinstall.verify import Verdict

PIP = "pip"
"""Lies in an environment and belongs to no lock."""


def check_records(folder: Path, venv: Path, verdict: Verdict | None, declared: tuple[str, ...]) -> Iterator[Finding]:
    """Compare an environment with its lock, the locks of ``folder`` with each other; name what was never proven."""
    yield from changed_by_hand(venv)
    with suppress(LockError, UsageError):  # what cannot be read is a finding of its own
        yield from locks_apart(folder, declared)
    yield from unproven(verdict)


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
        yield Finding("environment", "changed-by-hand", title, "something other than gpuinstall changed it", fix)


def locks_apart(folder: Path, declared: tuple[str, ...]) -> Iterator[Finding]:
    """Locks that were not made together: for other requests, or with other versions; and files that have changed."""
    locks = [lock for lock in read_locks(folder) if lock.evidence]
    recorded = recorded_request(folder)
    asked = recorded.declaring(declared) if declared else recorded
    for lock in locks:
        if title := asked.unlike(lock):
            yield Finding("project", "lock-stale", title, None, "gpuinstall lock")
    for reason in changed_inputs(asked.files, folder):
        fix = command_again({reason.code}, asked.files, asked.requirements)
        yield Finding("project", "lock-stale", f"a lock is stale: {reason.message}", None, fix)
    if apart := held_apart(locks):
        title = "the locks disagree: " + "; ".join(f"{name} {', '.join(held)}" for name, held in apart.items())
        yield Finding("project", "locks-disagree", title, "they were not made together", "gpuinstall lock")


def unproven(verdict: Verdict | None) -> Iterator[Finding]:
    """Devices that no kernel could be tried on."""
    for device in verdict.devices if verdict else ():
        if device.status == "unproven":
            title = f"{device.label} is not proven: {device.unproven or 'no kernel ran on it'}"
            why = "no kernel has shown that this environment works there"
            yield Finding("environment", "unproven", title, why, "gpuinstall verify   # where the GPUs are, and free")


def environment_missing(venv: Path) -> Finding:
    """An environment that was named and is not there."""
    title = f"there is no environment at {venv}"
    return Finding(
        "environment", "environment-missing", title, None, f"gpuinstall install --venv {venv}", blocking=True
    )


def _said(package: str, locked: Mapping[str, str]) -> str:
    """Write ``numpy 1.26.4`` with what the lock says of it."""
    name = package.partition(" ")[0]
    return f"{package} (locked: {locked[name]})" if name in locked else f"{package} (not locked)"
