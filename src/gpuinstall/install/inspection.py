"""What lies where an environment is to go, looked at once; what of it is the user's is not replaced unasked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.environment import (
    NAME,
    Marker,
    changed_build,
    damaged_torch,
    fingerprint,
    installed_packages,
    read_marker,
    unlocked_packages,
)
from gpuinstall.environments.ownership import is_environment, user_paths
from gpuinstall.environments.packages import read_packages, top_packages
from gpuinstall.environments.paths import EnvironmentPaths, interpreter, packages_folders
from gpuinstall.environments.records import was_made_here
from gpuinstall.errors import LockError, UsageError
from gpuinstall.facts.host import read_host
from gpuinstall.facts.source import ThisMachine
from gpuinstall.files import own_cache_folder
from gpuinstall.lock.folder_request import read_own_lock
from gpuinstall.proof_record import read_proof_record
from gpuinstall.shell import joined, quoted
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.lock.lock import Lock
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project
    from gpuinstall.proof_record import ProofRecord


@dataclass(frozen=True)
class ExistingEnvironment:
    """What lies at ``paths.venv``; ``is_empty`` says that it is nothing, or an empty folder.

    ``marker`` is None where it is not ours. ``lock`` is the copy of its lock that it holds, None where that is gone or
    damaged; ``packages`` are the versions in it by name. ``locks`` are those in the folder that holds it. What was not
    ``made_here`` may have come with the folder: its marker is not believed.
    """

    paths: EnvironmentPaths
    is_empty: bool = True
    marker: Marker | None = None
    lock: Lock | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    has_python: bool = False
    locks: tuple[Lock, ...] = ()
    made_here: bool = True
    proof: ProofRecord | None = None
    """Its proof on this machine, if all that it covers is as it was."""

    @property
    def built_ns(self) -> int:
        """When it was built, in nanoseconds: its lock comes last, and is not written again; 0 without one."""
        return (self.paths.venv / self.lock.name).stat().st_mtime_ns if self.lock else 0

    @property
    def is_proven(self) -> bool:
        """Whether every device of this machine passed, and all that the proof covers is as it was."""
        return self.proof is not None and self.proof.is_passed

    @property
    def verdict(self) -> dict[str, Any]:
        """The Verdict document of its last proof; empty if there was none."""
        if self.proof is not None:
            return self.proof.verdict
        return self.marker.verdict if self.marker else {}

    @cached_property
    def intact_lock(self) -> Lock | None:
        """The lock of an environment that runs, and holds exactly its packages and torch whole; None for any other."""
        if (
            self.made_here
            and self.lock
            and self.has_python
            and self.packages.keys() == self.lock.names
        ):
            return (
                None
                if self.changed_build or unlocked_packages(self.packages, self._locked)
                else self.lock
            )
        return None

    @cached_property
    def changed_build(self) -> str:
        """How torch, or what comes with its build, is not what was proven, by what lies there; empty where it is."""
        if self.lock is None:
            return ""
        venv, is_tied = self.paths.venv, load_catalog().is_tied
        changed = changed_build(venv, self.packages, self._locked, is_tied)
        # The files of torch that a proof covers are whole; to look at all 12,000 takes a tenth of a second.
        return changed or ("" if self.proof else damaged_torch(venv))

    def check_unchanged(self) -> None:
        """Raise LockError if torch, or what comes with its build, is not what was proven.

        Whatever starts in an environment asks here first.
        """
        changed = self.changed_build
        if self.marker and self.lock is None:  # by which nobody can say what belongs there
            changed = f"{self.marker.lock} in {self.paths.venv} is gone, or is not the lock that it was made from"
        if changed:
            why = "the environment as it is now was never proven on this machine"
            raise LockError("environment-changed", changed, why=why, hint=self.restoring)

    @property
    def restoring(self) -> str:
        """The command that brings the proven state back."""
        note = f"restores the proven environment; this one stays in {self.paths.previous}"
        return f"gpuinstall sync{self._option}   # {note}"

    @property
    def _option(self) -> str:
        """The option that names it in a command; none if commands mean it anyway."""
        venv = self.paths.venv
        return "" if venv == Path.cwd() / ".venv" else f" --venv {quoted(venv)}"

    @property
    def evidence(self) -> list[str]:
        """The files that a judgement of it was read from: of torch, all but its headers."""
        venv, folders = self.paths.venv, packages_folders(self.paths.venv)
        torch = (package for package in read_packages(folders) if package.name == "torch")
        own = (
            venv / NAME,
            venv / "pyvenv.cfg",
            interpreter(venv),
            *([venv / self.lock.name] if self.lock else []),
        )
        parts = (
            f"{one.record.parent}/{file.path}"
            for one in torch
            for file in one.files
            if "/include/" not in file.path
        )
        return [*map(str, (*own, *folders)), *(part for part in parts if not part.endswith(".pyc"))]

    @property
    def held_by(self) -> Lock | None:
        """The lock whose versions stay where something else changes: the environment's, as the folder has it now."""
        name = self.lock.name if self.lock else ""
        return next((lock for lock in self.locks if lock.name == name), self.lock) or next(
            iter(self.locks), None
        )

    @property
    def _locked(self) -> dict[str, str]:
        """The locked versions; of what comes from a folder, the one that is installed."""
        if self.lock is None:
            return {}
        names = self.lock.names
        return {
            name: version for name, version in self.packages.items() if name in names
        } | self.lock.versions

    def check_ownership(self, *, restoring: bool = False) -> None:
        """Raise UsageError where something of the user's lies there.

        Where torch is not what was proven, ``restoring`` goes on: all that lies there remains in the previous one.
        """
        venv, previous = self.paths.venv, self.paths.previous
        if not (self.is_empty or self.marker):
            is_venv = is_environment(venv)
            kind = "an environment gpuinstall did not make" if is_venv else "not ours"
            files = user_paths(venv)
            hints = [
                "the same with --venv DIR   # another folder",
                "the same with --into   # installs torch into it, and keeps the rest",
                f"the same with --replace   # replaces it; the old one is kept in {previous}",
            ]
            raise UsageError(
                "not-ours",
                f"{venv} is {kind}",
                why=f"it has files that no installer wrote: {some(files)}" if files else None,
                hint="\n".join(hints if is_venv else (hints[0], hints[2])),
            )
        extra = unlocked_packages(self.packages, self._locked)
        if extra and self.changed_build:
            if not restoring:
                why = "pip, uv or another program changed it since it was proven"
                raise UsageError("users-packages", self.changed_build, why=why, hint=self.restoring)
        elif extra:
            changed = {text.partition(" ")[0] for text in extra}
            users = [one for one in read_packages(packages_folders(venv)) if one.name in changed]
            names = [
                f"{one.name}=={one.version}"
                for one in users
                if one in top_packages(users) or one.name in self._locked
            ]
            raise UsageError(
                "users-packages",
                f"{venv} has packages that are not in its lock: {some(extra)}",
                why="pip or uv installed them; a new environment would not have them",
                hint=f"the same with --replace   # without them; they stay in {previous}\n"
                f"gpuinstall install --replace{self._option} {joined(names)}   # with them, at these versions",
                data={"packages": list(extra)},
            )


def inspect_environment(
    paths: EnvironmentPaths, here: Machine | None = None
) -> ExistingEnvironment:
    """Look at what lies there, and what was proven of it on the machine ``here``; nothing is run."""
    venv = paths.venv
    if not os.path.lexists(venv) or (venv.is_dir() and next(venv.iterdir(), None) is None):
        return ExistingEnvironment(paths)
    marker = read_marker(venv)
    if marker is None:
        return ExistingEnvironment(paths, is_empty=False)
    lock = read_own_lock(venv)
    packages = installed_packages(venv)
    if lock is None or "pip" not in lock.names:
        packages.pop("pip", None)  # every environment has one, which belongs to no lock
    return ExistingEnvironment(
        paths,
        is_empty=False,
        marker=marker,
        lock=lock,
        packages=packages,
        has_python=interpreter(venv).exists(),
        made_here=was_made_here(venv, venv),
        proof=standing_proof(venv, marker, here),
    )


def standing_proof(venv: Path, marker: Marker, machine: Machine | None) -> ProofRecord | None:
    """Return the proof of an environment on a machine; None if there is none, or a file that it covers has changed."""
    if machine is None:
        return None
    record = read_proof_record(str(proof_file(marker.id, machine)))
    if record is None or record.machine != fingerprint(machine) or record.changed_file(str(venv)):
        return None
    return record


def proof_file(identity: str, machine: Machine) -> Path:
    """Return the file for the proof of an environment, by the id of its marker, on a machine."""
    return own_cache_folder() / "proofs" / f"{identity}-{fingerprint(machine)[:16]}.json"


def check_replaceable(paths: EnvironmentPaths) -> None:
    """Raise UsageError where no environment can be put, not even in place of what is there."""
    if paths.venv.exists() and not paths.venv.is_dir():
        raise UsageError(
            "not-a-folder", f"{paths.venv} is a file", hint="gpuinstall install --venv DIR"
        )
    if Path.cwd().is_relative_to(paths.venv):
        message = f"{paths.venv} cannot be replaced while you are inside it"
        raise UsageError("working-folder", message, hint="gpuinstall install --venv .venv")
    if os.path.ismount(paths.venv):
        message = f"{paths.venv} is a mount point, which cannot be replaced atomically"
        raise UsageError(
            "mount-point", message, hint=f"gpuinstall install --venv {quoted(paths.venv / 'env')}"
        )


def check_platform(project: Project) -> None:
    """Raise UsageError where another system is meant than the one that we run on."""
    if project.settings.machine is None:
        return
    meant, host = project.settings.machine, read_host(ThisMachine())
    if (meant.os, meant.arch) != (host.os, host.arch):
        message = (
            f"an environment for {meant.os} {meant.arch} cannot be made on {host.os} {host.arch}"
        )
        hint = "gpuinstall lock   # locks it here; gpuinstall sync installs it there"
        raise UsageError("other-platform", message, hint=hint)
