"""The last proof of an environment on a node, beside the environment: what a prolog asks in a moment."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

from gpuinstall.errors import InstallationError
from gpuinstall.fields import Fields
from gpuinstall.files import read_json, write_atomically
from gpuinstall.fleet.documents import word
from gpuinstall.verify.verdict import VerdictStatus

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.fleet.hostlist import NodeName

SCHEMA = "gpuinstall.proof/1"
FRESH_S = 30 * 86400.0
"""How old a proof may be before a prolog mentions it."""


@dataclass(frozen=True)
class LastProof:
    """The fingerprint of the machine that was proven, what came of it, and when, in seconds since 1970."""

    machine: str
    status: str
    at: float


def keep(place: Path, node: NodeName, machine: str, status: str) -> None:
    """Write a proof beside an environment; where that cannot be, the record of the step still says it."""
    with suppress(InstallationError):
        document = {"schema": SCHEMA, **asdict(LastProof(machine, status, time.time()))}
        write_atomically(_file(place, node), json.dumps(document) + "\n")


def newest(root: Path, node: NodeName) -> LastProof | None:
    """The last proof of any environment below ``root`` on a node; None where there is none."""
    proofs = [proof for place in root.glob("*") if (proof := _read(_file(place, node)))]
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


def _read(path: Path) -> LastProof | None:
    with suppress(OSError, ValueError):
        fields = Fields(read_json(path))
        fields.required("schema", (SCHEMA,))
        status = fields.required("status", get_args(VerdictStatus))
        return LastProof(fields.needed("machine", word), status, fields.quantity("at") or 0.0)
    return None


def _file(place: Path, node: NodeName) -> Path:
    return place / "proofs" / f"{node}.json"
