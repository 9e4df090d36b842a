"""What an environment was made for, by the lock and the marker that an installation of ours leaves in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.environment import fingerprint, read_marker
from gpuinstall.files import parse_toml, read_document

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.machine import Machine


@dataclass(frozen=True)
class Origin:
    """What was asked for; nothing where the environment is not of our making. ``gpus`` None: all of them."""

    for_cpu: bool = False
    gpus: tuple[int, ...] | None = None


def read_origin(venv: Path, machine: Machine) -> Origin:
    """Read what an environment was made for."""
    marker = read_marker(venv)
    if marker is None:
        return Origin()
    if made_for_cpu(_evidence(venv / marker.lock), machine):
        return Origin(for_cpu=True)
    proven = marker.verdict.get("devices") if marker.machine == fingerprint(machine) else None
    return Origin(gpus=_gpus(proven if isinstance(proven, list) else [], machine))


def made_for_cpu(evidence: dict[str, Any], machine: Machine) -> bool:
    """Say whether the CPU was asked for, or was all there was and still is."""
    return evidence.get("asked") == "cpu" or (evidence.get("backend") == "cpu" and not machine.gpus)


def _evidence(lock: Path) -> dict[str, Any]:
    try:
        found = parse_toml(read_document(lock, lock.parent)).get("tool", {}).get("gpuinstall", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _gpus(devices: Any, machine: Machine) -> tuple[int, ...] | None:
    """Name the GPUs that the plan had, where it left others out."""
    planned = [device.get("index") for device in devices if isinstance(device, dict)]
    found = tuple(gpu.index for gpu in machine.gpus if gpu.index in planned)
    return found if found and len(found) < len(machine.gpus) else None
