"""What schedulers and brokers are told of the machine that locks need: one table, a tool's words for each property. Pure.

What a tool has no words for stands above them as a comment, with the command that finds it out when a program starts.
"""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

import tomli

from gpuinstall.base.errors import UsageError
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.export.needs import MachineNeeds

MACHINE_TOOLS: dict[str, dict[str, str]] = {
    "slurm": {
        "GPU": "#SBATCH --gres=gpu:1\n# GPUs of a node: {codes}; a site has features for them\n"
    },
    "kubernetes": {
        "processor": """\
        - matchExpressions:
            - {{key: kubernetes.io/arch, operator: In, values: ["{node_arch}"]}}
""",
        "GPU": """\
            - {{key: nvidia.com/gpu.compute.major, operator: In, values: ["{major}"]}}
            - {{key: nvidia.com/gpu.compute.minor, operator: In, values: {minors}}}
""",
        "driver": """\
            - {{key: nvidia.com/cuda.driver-version.major, operator: Gt, values: ["{below}"]}}
""",
    },
    "skypilot": {"GPU": "resources:\n  accelerators: {{{counts}}}\n"},
    "dstack": {
        "processor": "resources:\n  cpu: {{arch: {arch}}}\n",
        "GPU": "  gpu: {{vendor: {maker}, name: [{names}], count: 1}}\n",
    },
}
"""The words of each tool for what it can be told; those of Kubernetes once for each kind of node."""
_AFFINITY = """\
# In the container: resources: {limits: {nvidia.com/gpu: 1}}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
"""


def words_for(tool: str, needs: Sequence[MachineNeeds]) -> str:
    """Return what to tell a tool so that it takes a machine on which one of some locks runs.

    Raises:
        UsageError: if they are for different machines, or no GPU that the tool has words for runs one.
    """
    words = MACHINE_TOOLS[tool]
    for_gpus = [one for one in needs if one.maker and one.os == "linux"]
    if len({(one.maker, one.arch) for one in for_gpus}) > 1:
        raise UsageError(
            "several-machines",
            f"the locks are for different machines: {_names(for_gpus, 'and')}",
            hint=f"Run it again with --lock {quoted(for_gpus[0].lock)}",
        )
    codes = list(dict.fromkeys(code for one in for_gpus for code in one.codes))
    names = [name for name, code in names_of(tool).items() if code in codes]
    has_labels = tool == "kubernetes" and any(one.maker == "nvidia" for one in for_gpus)
    if not (names or has_labels or (tool == "slurm" and codes)):
        raise UsageError(
            "not-exportable",
            f"no GPU that {tool} has words for runs {_names(needs, 'or')}",
            hint="gpuinstall export needs",
        )
    one = for_gpus[0]
    values = {
        "maker": one.maker,
        "names": ", ".join(names),
        "counts": ", ".join(f"{name}: 1" for name in names),
        "codes": ", ".join(codes),
        "arch": "x86" if one.arch == "x86_64" else "arm",
        "node_arch": "amd64" if one.arch == "x86_64" else "arm64",
    }
    unsaid = dict.fromkeys(fact for one in for_gpus for fact in _unsaid(words, one))
    text = f"# A machine for {_names(for_gpus, 'or')}.\n"
    text += f"# {tool} has no words for: {'; '.join(unsaid)}.\n"
    text += "# A start with this finds it out: gpuinstall run --any COMMAND\n"
    form = "".join(words.values())
    if not has_labels:
        return text + form.format(**values)
    nodes = [form.format(**values, **node) for one in for_gpus for node in _nodes(one)]
    return "".join([text, _AFFINITY, *nodes])


def _names(needs: Sequence[MachineNeeds], word: str) -> str:
    return visible(f" {word} ".join(one.lock for one in needs))


def _unsaid(words: Mapping[str, str], needs: MachineNeeds) -> Iterator[str]:
    if "processor" not in words:
        yield f"the processor, {needs.arch}"
    if needs.glibc:
        yield f"glibc {needs.glibc} or newer"
    for gpus in needs.gpus:
        # Of a driver, the branch alone is a number that can be compared.
        if gpus.driver and ("driver" not in words or len(gpus.driver.parts) > 1):
            yield f"driver {gpus.driver} or newer, for {', '.join(gpus.codes)}"


def _nodes(needs: MachineNeeds) -> Iterator[dict[str, Any]]:
    """Yield what a node may be, by the major of its GPUs and their drivers: all labels of one have to hold."""
    for gpus in needs.gpus:
        for major, codes in groupby(
            gpus.codes, key=lambda code: code.partition(".")[0]
        ):
            yield {
                "major": major,
                "minors": json.dumps([code.partition(".")[2] for code in codes]),
                "below": gpus.driver.branch - 1 if gpus.driver else 0,
            }


def names_of(tool: str) -> dict[str, str]:
    """Return what the GPUs of a tool execute by the tool's own names for them; nothing if it has none."""
    table = tomli.loads(
        (files("gpuinstall.export") / "data" / "gpu_names.toml").read_text("utf-8")
    )
    return dict(table.get(tool, {}))
