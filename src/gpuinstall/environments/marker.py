"""``gpuinstall.json`` in an environment: that it is ours and complete, what it holds, what it was proven on."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.machine import Machine

SCHEMA = "gpuinstall.environment/1"
NAME = "gpuinstall.json"


@dataclass(frozen=True)
class Marker:
    """Written last into an environment. ``id`` is its own, ``lock`` the name of the lock's file."""

    id: str
    lock: str
    lock_sha256: str
    python: str
    torch: str
    backend: str
    machine: str
    verdict: dict[str, Any]

    def write(self, venv: Path) -> None:
        """Write it into an environment."""
        write_atomically(venv / NAME, json.dumps({"schema": SCHEMA} | asdict(self), indent=2) + "\n")

    @property
    def proven(self) -> bool:
        """Say whether every device passed."""
        return self.verdict.get("status") == "passed"


def read_marker(venv: Path) -> Marker | None:
    """Read an environment's marker; None where it is not one of ours."""
    with suppress(OSError, ValueError, TypeError):
        document = json.loads((venv / NAME).read_text(encoding="utf-8"))
        if isinstance(document, dict) and document.pop("schema", None) == SCHEMA:
            return Marker(**document)
    return None


def fingerprint(machine: Machine) -> str:
    """Digest what a proof depends on: system, driver and cards."""
    driver = machine.driver and (str(machine.driver.version), str(machine.driver.cuda))
    cards = [(gpu.uuid, gpu.index, str(gpu.compute_capability)) for gpu in machine.gpus]
    facts = [machine.os, machine.arch, machine.environment.l4t, driver, cards]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
