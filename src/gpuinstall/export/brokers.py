"""Machines in the words of those who rent them out. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.export.needs import GpuNeeds, MachineNeeds

_VAST_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
_DSTACK_ARCH = {"x86_64": "x86", "aarch64": "arm"}


def runpod(needs: MachineNeeds, names: Mapping[str, str]) -> str:
    """Return the ``gpu`` of a request for a pod, one line of JSON for each type of GPU: a request takes one type.

    Of a driver it knows the CUDA: the oldest, or a list, which is matched exactly, and not both.
    """
    lines = []
    for gpus in needs.gpus:
        for name, code in names.items():
            if code in gpus.codes:
                gpu = {"id": name, "count": 1, **_runpod_cuda(gpus)}
                lines.append(json.dumps({"gpu": gpu}) + "\n")
    return "".join(lines)


def _runpod_cuda(gpus: GpuNeeds) -> dict[str, object]:
    if not gpus.cudas:
        return {}
    if gpus.last_branch is None:
        return {"minCudaVersion": str(gpus.cudas[0])}
    return {"allowedCudaVersions": list(map(str, gpus.cudas))}


def vast(needs: MachineNeeds, names: Mapping[str, str]) -> str:  # noqa: ARG001
    """Return a search for offers for each set of GPUs that need the same drivers: its conditions are all ANDed."""
    lines = []
    for gpus in needs.gpus:
        capabilities = map(ComputeCapability.parse, gpus.codes)
        codes = [str(capability.major * 100 + capability.minor * 10) for capability in capabilities]
        conditions = [
            "gpu_arch=nvidia",
            f"cpu_arch={_VAST_ARCH[needs.arch]}",
            f"compute_cap in [{','.join(codes)}]",
        ]
        if gpus.driver:
            conditions.append(f"driver_version>={_three_parts(gpus.driver.parts)}")
        if gpus.before:
            conditions.append(f"driver_version<{_three_parts((gpus.before,))}")
        lines.append(f"vastai search offers '{' '.join(conditions)}'\n")
    return "".join(lines)


def _three_parts(numbers: tuple[int, ...]) -> str:
    """Return a driver's version as vast.ai's client reads it: of one number it makes text, two it refuses."""
    padded = (*numbers, 0, 0)[:3]
    return ".".join(f"{number:02}" for number in padded)


def skypilot(needs: MachineNeeds, names: Mapping[str, str]) -> str:  # noqa: ARG001
    """Return the ``resources`` of a task: any of these GPUs."""
    if not names:
        return ""
    accelerators = ", ".join(f"{name}: 1" for name in names)
    return f"resources:\n  accelerators: {{{accelerators}}}\n"


def dstack(needs: MachineNeeds, names: Mapping[str, str]) -> str:
    """Return the ``resources`` of a configuration: any of these GPUs.

    Its ``compute_capability`` is a minimum, and is compared with a table of its own by the name.
    """
    if not names:
        return ""
    lines = [
        "resources:",
        f"  cpu: {{arch: {_DSTACK_ARCH[needs.arch]}}}",
        "  gpu:",
        f"    vendor: {needs.maker}",
        f"    name: [{', '.join(names)}]",
        "    count: 1",
    ]
    return "\n".join(lines) + "\n"


def modal(needs: MachineNeeds, names: Mapping[str, str]) -> str:  # noqa: ARG001
    """Return the value of ``gpu``: a list is tried in its order."""
    return f"GPU = {json.dumps(list(names))}  # @app.function(gpu=GPU)\n" if names else ""
