"""A lock's environment on a node: its own, or one that all nodes share.

The folder of an environment has the name of its lock's digest, so that what is there already is not made again. The
last proof of an environment lies beside it: what a prolog asks in a moment.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import InstallationError
from gpuinstall.fields import Fields
from gpuinstall.files import read_json, write_atomically
from gpuinstall.fleet.documents import LockGroup, word
from gpuinstall.fleet.locks import group_lock
from gpuinstall.folders import own_folder
from gpuinstall.install.install import install
from gpuinstall.install.options import InstallOptions
from gpuinstall.probe import read_machine
from gpuinstall.project import Settings, open_project
from gpuinstall.request import Request
from gpuinstall.sourcing import Sourcing
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import VerdictStatus

if TYPE_CHECKING:
    from gpuinstall.fleet.hostlist import NodeName
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.reporter import Reporter


Mode = Literal["node", "shared"]


@dataclass(frozen=True)
class Placing:
    """Where environments lie and how they come there; ``builds`` says that this node builds what others take."""

    root: Path
    mode: Mode = "node"
    builds: bool = True

    def place(self, group: LockGroup) -> Path:
        """The folder of a lock's environment."""
        return self.root / group.digest


def install_group(group: LockGroup, folder: RunFolder, placing: Placing, reporter: Reporter) -> dict[str, Any]:
    """Bring a lock's environment here, proven on this node's GPUs; raise what installing raises."""
    place = placing.place(group)
    if placing.mode == "shared" and not placing.builds:
        return _taken(group, place, reporter)
    own_folder(placing.root)
    lock = group_lock(group, folder)
    write_atomically(place / lock.name, lock.text)
    sourcing = Sourcing(wheels=folder.place("wheels").absolute())
    request = Request(preferred_pythons=(group.python,), sourcing=sourcing)
    settings = Settings(request, only=True, anew=True, declared=False, venv=place / ".venv")
    with open_project(Path.home(), settings, reporter) as project:  # no settings of the run folder count
        done = install(project, InstallOptions(locked=True, target=lock.target, keep=False, attempts=1))
    return _data(done.venv, done.action.value, done.verdict.get("status", "unproven"))


def _taken(group: LockGroup, place: Path, reporter: Reporter) -> dict[str, Any]:
    """Prove on this node what another has built."""
    venv = own_environment(place, group)
    if venv is None:
        message = f"{place} has no environment for the lock: its build failed, or this node does not share the folder"
        raise InstallationError("not-built", message, hint="gpuinstall fleet report --run-dir DIR")
    verdict = verify_environment(interpreter(venv), read_machine(reporter), reporter=reporter)
    if verdict.status == "failed":
        message = f"the kernels of {group.name} failed on this node"
        raise InstallationError("kernel-failed", message, hint="gpuinstall fleet verify --run-dir DIR   # says which")
    return _data(venv, "taken", verdict.status)


def own_environment(place: Path, group: LockGroup) -> Path | None:
    """The environment of a lock in a folder, None where it is not: what is run there is run as us.

    Raise InstallationError where others may write.
    """
    own_folder(place.parent, make=False)
    venv = place / ".venv"
    marker = None if place.is_symlink() or venv.is_symlink() else read_marker(venv)
    return venv if marker and marker.lock_sha256 == group.sha256 else None


def _data(venv: Path, change: str, status: str) -> dict[str, Any]:
    return {"environment": str(venv), "change": change, "verdict": status}


PROOF_SCHEMA = "gpuinstall.proof/1"
FRESH_S = 30 * 86400.0
"""How old a proof may be before a prolog mentions it."""


@dataclass(frozen=True)
class LastProof:
    """The fingerprint of the machine that was proven, what came of it, and when, in seconds since 1970."""

    machine: str
    status: str
    at: float


def keep_proof(place: Path, node: NodeName, machine: str, status: str) -> None:
    """Write a proof beside an environment; where that cannot be, the record of the step still says it."""
    with suppress(InstallationError):
        document = {"schema": PROOF_SCHEMA, **asdict(LastProof(machine, status, time.time()))}
        write_atomically(_proof_file(place, node), json.dumps(document) + "\n")


def newest_proof(root: Path, node: NodeName) -> LastProof | None:
    """The last proof of any environment below ``root`` on a node; None where there is none."""
    proofs = [proof for place in root.glob("*") if (proof := _read_proof(_proof_file(place, node)))]
    return max(proofs, key=lambda proof: proof.at, default=None)


def prolog_answer(proof: LastProof | None, machine: str, now: float) -> tuple[bool, str]:
    """Say whether a node is known to be bad, and what is known; what is not known speaks for the node."""
    if proof is None:
        return True, "no proof yet"
    if proof.machine != machine:
        return True, "the driver or the GPUs have changed since the last proof: gpuinstall node verify"
    days = (now - proof.at) / 86400
    if proof.status == "failed":
        return False, f"a kernel failed here {days:.1f} days ago: gpuinstall node verify says which"
    old = "; it is old: gpuinstall node verify" if now - proof.at > FRESH_S else ""
    return True, f"{proof.status} {days:.1f} days ago{old}"


def _read_proof(path: Path) -> LastProof | None:
    with suppress(OSError, ValueError):
        fields = Fields(read_json(path))
        fields.required("schema", (PROOF_SCHEMA,))
        status = fields.required("status", get_args(VerdictStatus))
        return LastProof(fields.needed("machine", word), status, fields.quantity("at") or 0.0)
    return None


def _proof_file(place: Path, node: NodeName) -> Path:
    return place / "proofs" / f"{node}.json"
