"""Machines in the words of schedulers. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING

from gpuinstall.shell import quoted
from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.export.needs import GpuNeeds, MachineNeeds

    Expressions = list[dict[str, object]]

_KUBERNETES_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
_CONDOR_ARCH = {"x86_64": "X86_64", "aarch64": "aarch64"}
_RESOURCES = {
    "nvidia": "nvidia.com/gpu: 1}}",
    "amd": "amd.com/gpu: 1}}",
    "intel": "gpu.intel.com/xe: 1}}, or gpu.intel.com/i915 where that drives the GPU",
}
_GPU_LABELS = {"amd": "amd.com/gpu.device-id", "intel": "gpu.intel.com/product"}


def kubernetes(needs: MachineNeeds, names: Mapping[str, str]) -> str:
    """Return the ``affinity`` of a pod, and the GPU of its container as a comment.

    The labels are those that GPU feature discovery and the labellers of AMD and Intel write. Expressions of a term are
    ANDed, terms are ORed; ``Gt`` and ``Lt`` take one integer and exclude it.
    """
    if needs.maker == "nvidia":
        terms = [term for gpus in needs.gpus for term in _nvidia_terms(gpus, needs.known_codes)]
    else:
        terms = [[_in(_GPU_LABELS[str(needs.maker)], names)]] if names else []
    if not terms:
        return ""
    arch = _in("kubernetes.io/arch", [_KUBERNETES_ARCH[needs.arch]])
    lines = [
        f"# In the container: resources: {{limits: {{{_RESOURCES[str(needs.maker)]}",
        "affinity:",
        "  nodeAffinity:",
        "    requiredDuringSchedulingIgnoredDuringExecution:",
        "      nodeSelectorTerms:",
    ]
    for term in terms:
        lines.append("        - matchExpressions:")
        for expression in (arch, *term):
            values = json.dumps(expression["values"])
            lines.append(
                f"            - {{key: {expression['key']}, operator: {expression['operator']},"
                f" values: {values}}}"
            )
    return "\n".join(lines) + "\n"


def _in(key: str, values: Iterable[str]) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": list(values)}


def _compared(key: str, operator: str, number: int) -> dict[str, object]:
    return {"key": key, "operator": operator, "values": [str(number)]}


def _nvidia_terms(gpus: GpuNeeds, known_codes: Sequence[str]) -> Iterator[Expressions]:
    """Yield the terms, one of which is to hold: a label has one number, so that what has several needs several."""
    for chips, drivers in product(
        _capability_expressions(gpus.codes, known_codes),
        _driver_expressions(gpus),
    ):
        yield [*chips, *drivers]


def _capability_expressions(
    codes: Iterable[str], known_codes: Iterable[str]
) -> Iterator[Expressions]:
    """Yield the majors that are whole together, and each of the others with its minors."""
    known = _minors_by_major(known_codes)
    whole = []
    for major, minors in _minors_by_major(codes).items():
        if minors == known[major]:
            whole.append(str(major))
            continue
        yield [
            _in("nvidia.com/gpu.compute.major", [str(major)]),
            _in("nvidia.com/gpu.compute.minor", map(str, minors)),
        ]
    if whole:
        yield [_in("nvidia.com/gpu.compute.major", whole)]


def _minors_by_major(codes: Iterable[str]) -> dict[int, list[int]]:
    minors: dict[int, list[int]] = defaultdict(list)
    for capability in map(ComputeCapability.parse, codes):
        minors[capability.major].append(capability.minor)
    return minors


def _driver_expressions(gpus: GpuNeeds) -> Iterator[Expressions]:
    """Yield the ways in which a driver is new enough: by its branch, or in the oldest branch by its release."""
    last: Expressions = []
    label = "nvidia.com/cuda.driver-version"
    if gpus.before:
        last = [_compared(f"{label}.major", "Lt", gpus.before)]
    numbers = str(gpus.driver or 0).split(".")
    equal: Expressions = []
    for name, number in zip(("major", "minor", "revision"), numbers, strict=False):
        is_last = len(equal) + 1 == len(numbers)
        excluded = int(number) - 1 if is_last else int(number)
        yield [*equal, _compared(f"{label}.{name}", "Gt", excluded), *last]
        equal.append(_in(f"{label}.{name}", [number]))


def slurm(needs: MachineNeeds, names: Mapping[str, str]) -> str:  # noqa: ARG001
    """Return the lines of a batch script: any of the site's features whose GPUs run a lock."""
    if not names:
        return ""
    constraint = quoted("|".join(names))
    return (
        f"# srun --gres=gpu:1 --constraint={constraint} gpuinstall run --any COMMAND\n"
        f"#SBATCH --gres=gpu:1\n#SBATCH --constraint={constraint}\n"
    )


def htcondor(needs: MachineNeeds, names: Mapping[str, str]) -> str:  # noqa: ARG001
    """Return the lines of a submit file.

    The bounds are ANDed with ``require_gpus``, which alone can say gaps and drivers that differ by GPU. A driver is
    known by its CUDA: what HTCondor calls ``DriverVersion`` is that, too.
    """
    capabilities = [ComputeCapability.parse(code) for code in needs.codes]
    oldest = min(gpus.cudas[0] for gpus in needs.gpus)
    lines = [
        "request_gpus = 1",
        f"gpus_minimum_capability = {min(capabilities)}",
        f"gpus_maximum_capability = {max(capabilities)}",
        f"gpus_minimum_runtime = {oldest}",
    ]
    alternatives = []
    for gpus in needs.gpus:
        chips = " || ".join(f"Capability == {code}" for code in gpus.codes)
        cuda = f"MaxSupportedVersion >= {_number(gpus.cudas[0])}"
        if gpus.last_branch:
            cuda += f" && MaxSupportedVersion <= {_number(gpus.cudas[-1])}"
        alternatives.append(f"({chips}) && {cuda}")
    lines.append(f"require_gpus = {' || '.join(f'({text})' for text in alternatives)}")
    lines.append(f'requirements = OpSys == "LINUX" && Arch == "{_CONDOR_ARCH[needs.arch]}"')
    return "\n".join(lines) + "\n"


def _number(cuda: tuple[int, int]) -> int:
    """Return a CUDA as its runtime numbers it: 12020 for 12.2."""
    return cuda[0] * 1000 + cuda[1] * 10
