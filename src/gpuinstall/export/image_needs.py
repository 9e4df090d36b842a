"""What an image says of the machines that it runs on: a label for people and tools, a variable for NVIDIA's hook. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpuinstall.export.needs import neighbours

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.export.needs import GpuNeeds, MachineNeeds

NEEDS_LABEL = "gpuinstall.needs"
REQUIRE_VARIABLE = "NVIDIA_REQUIRE_GPUINSTALL"


def oci(needs: MachineNeeds, names: Mapping[str, str]) -> str:  # noqa: ARG001
    """Return the lines of a Dockerfile.

    NVIDIA's container hook refuses a container whose variable no visible GPU meets. With CDI it looks at no variable:
    only a check at start does then.
    """
    document = needs.to_dict()
    # What an image holds need not be fetched.
    del document["download"], document["disk"]
    label = json.dumps(document, separators=(",", ":"))
    lines = f"LABEL {NEEDS_LABEL}='{label}'\n"
    if needs.maker == "nvidia":
        lines += f'ENV {REQUIRE_VARIABLE}="{requirement(needs)}"\n'
    return lines


def requirement(needs: MachineNeeds) -> str:
    """Return the value for NVIDIA's hook: a space is an OR, a comma an AND, so that each GPU's drivers are repeated."""
    alternatives = []
    for gpus in needs.gpus:
        drivers = _cudas(gpus) if needs.arch == "aarch64" else _drivers(gpus)
        for first, last in neighbours(gpus.codes, needs.known_codes):
            chips = [f"arch={first}"] if first == last else [f"arch>={first}", f"arch<={last}"]
            alternatives.append(",".join((*drivers, *chips)))
    return " ".join(alternatives)


def _drivers(gpus: GpuNeeds) -> list[str]:
    conditions = [f"driver>={gpus.driver}"]
    if gpus.before:
        conditions.append(f"driver<{gpus.before}")
    return conditions


def _cudas(gpus: GpuNeeds) -> list[str]:
    """Return the same by what the drivers report: on a Jetson the hook knows the CUDA alone, and fails for a driver."""
    conditions = [f"cuda>={gpus.cudas[0]}"]
    if gpus.before:
        conditions.append(f"cuda<={gpus.cudas[-1]}")
    return conditions
