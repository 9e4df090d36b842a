"""A lock's environment on a node: its own, or one that all nodes share.

The folder of an environment has the name of its lock's digest, so that what is there already is not
made again. The last proof of an environment lies beside it: a prolog asks for it in a moment.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict
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
from gpuinstall.values import dataclass
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import VerdictStatus

if TYPE_CHECKING:
    from gpuinstall.fleet.hostlist import NodeName
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.reporter import Reporter


Mode = Literal["node", "shared"]


@dataclass(frozen=True)
class Placing:
    """Where environments lie and how they come there."""

    root: Path
    mode: Mode = "node"
    builds: bool = True
    """Whether this node builds what others take."""

    def place(self, group: LockGroup) -> Path:
        """Return the folder of a lock's environment."""
        return self.root / group.digest


def install_group(
    group: LockGroup,
    folder: RunFolder,
    placing: Placing,
    reporter: Reporter,
) -> dict[str, Any]:
    """Install a lock's environment, proven on this node's GPUs; raise what installing raises."""
    place = placing.place(group)
    if placing.mode == "shared" and not placing.builds:
        return _taken(group, place, reporter)
    own_folder(placing.root)
    lock = group_lock(group, folder)
    write_atomically(place / lock.name, lock.text)
    settings = Settings(
        Request(
            preferred_pythons=(group.python,),
            sourcing=Sourcing(wheels=folder.place("wheels").absolute()),
        ),
        only=True,
        anew=True,
        venv=place / ".venv",
    )
    options = InstallOptions(
        locked=True,
        target=lock.target,
        attempts=1,
    )
    # The home folder: no settings of the run folder count.
    with open_project(Path.home(), settings, reporter) as project:
        done = install(project, options)
    return _data(done.venv, done.action.value, done.verdict.get("status", "unproven"))


def _taken(
    group: LockGroup,
    place: Path,
    reporter: Reporter,
) -> dict[str, Any]:
    """Prove on this node what another has built."""
    venv = own_environment(place, group)
    if venv is None:
        cause = "its build failed, or this node does not share the folder"
        message = f"{place} has no environment for the lock: {cause}"
        hint = "gpuinstall fleet report --run-dir DIR"
        raise InstallationError(
            "not-built",
            message,
            hint=hint,
        )
    verdict = verify_environment(
        interpreter(venv),
        read_machine(reporter),
        reporter=reporter,
    )
    if verdict.status == "failed":
        message = f"the kernels of {group.name} failed on this node"
        hint = "gpuinstall fleet verify --run-dir DIR   # says which"
        raise InstallationError(
            "kernel-failed",
            message,
            hint=hint,
        )
    return _data(venv, "taken", verdict.status)


def own_environment(place: Path, group: LockGroup) -> Path | None:
    """Return the environment of a lock in a folder; None if it is not there.

    Raises:
        InstallationError: if others may write: what is run there is run as us.
    """
    own_folder(place.parent, make=False)
    venv = place / ".venv"
    if place.is_symlink() or venv.is_symlink():
        return None
    marker = read_marker(venv)
    if marker is None or marker.lock_sha256 != group.sha256:
        return None
    return venv


def _data(
    venv: Path,
    change: str,
    status: str,
) -> dict[str, Any]:
    return {
        "environment": str(venv),
        "change": change,
        "verdict": status,
    }


PROOF_SCHEMA = "gpuinstall.proof/1"
FRESH_S = 30 * 86400.0
"""How old a proof may be before a prolog mentions it."""


@dataclass(frozen=True)
class LastProof:
    """The last proof of an environment."""

    machine: str
    """The fingerprint of the machine."""
    status: str
    at: float
    """In seconds since 1970."""


def keep_proof(
    place: Path,
    node: NodeName,
    machine: str,
    status: str,
) -> None:
    """Write a proof beside an environment, if that can be: the record of the step has it too."""
    proof = LastProof(machine, status, time.time())
    document = json.dumps({"schema": PROOF_SCHEMA, **asdict(proof)})
    with suppress(InstallationError):
        write_atomically(_proof_file(place, node), f"{document}\n")


def newest_proof(root: Path, node: NodeName) -> LastProof | None:
    """Return the last proof of any environment below ``root`` on a node."""
    proofs = (_read_proof(_proof_file(place, node)) for place in root.glob("*"))
    return max(
        filter(None, proofs),
        key=lambda proof: proof.at,
        default=None,
    )


def prolog_answer(
    proof: LastProof | None,
    machine: str,
    now: float,
) -> tuple[bool, str]:
    """Return whether a node may be used, and what is known of it.

    What is not known speaks for the node.
    """
    if proof is None:
        return True, "no proof yet"
    if proof.machine != machine:
        change = "the driver or the GPUs have changed since the last proof"
        return True, f"{change}: gpuinstall node verify"
    age = now - proof.at
    when = f"{age / 86400:.1f} days ago"
    if proof.status == "failed":
        return False, f"a kernel failed here {when}: gpuinstall node verify says which"
    old = "; it is old: gpuinstall node verify" if age > FRESH_S else ""
    return True, f"{proof.status} {when}{old}"


def _read_proof(path: Path) -> LastProof | None:
    with suppress(OSError, ValueError):
        fields = Fields(read_json(path))
        fields.required("schema", (PROOF_SCHEMA,))
        return LastProof(
            machine=fields.needed("machine", word),
            status=fields.required("status", get_args(VerdictStatus)),
            at=fields.quantity("at") or 0.0,
        )
    return None


def _proof_file(place: Path, node: NodeName) -> Path:
    return place / "proofs" / f"{node}.json"
