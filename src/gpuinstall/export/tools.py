"""The tools that rent or schedule GPU machines, each with what it can say of one: a row, and a small pure function.

What a tool cannot say stands above its words as a comment, with the command that finds it out when a program starts.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from importlib.resources import files
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import tomli

from gpuinstall.catalog.gpu_names import find_gpu
from gpuinstall.errors import UsageError
from gpuinstall.export import brokers, clusters, image_needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpuinstall.export.needs import MachineNeeds

    Names = Mapping[str, str]

_CHECK = "gpuinstall run --any COMMAND"


class Property(Enum):
    """What a lock may need of a machine."""

    ARCH = "the processor"
    GLIBC = "glibc"
    GPUS = "the GPUs"
    DRIVER = "the driver"
    """Its branch at least, or the CUDA that the branch reports."""
    RELEASE = "the release of the driver"
    LAST_DRIVER = "the last driver"


_ARCH, _GLIBC, _GPUS = Property.ARCH, Property.GLIBC, Property.GPUS
_DRIVER, _RELEASE, _LAST = Property.DRIVER, Property.RELEASE, Property.LAST_DRIVER


class Tool(NamedTuple):
    """A tool that is told which machine to take."""

    name: str
    """As on the command line."""

    title: str
    """As people call it."""

    write: Callable[[MachineNeeds, Names], str]
    """Takes what the locks need, and what the GPUs execute by the tool's own names for them, if it has such names."""

    says: Mapping[str, frozenset[Property]]
    """What it can say, for each maker whose GPUs it can ask for."""

    needs_features: bool = False
    """Whether a site names its GPUs itself."""


_NAMES_ONLY = frozenset({_GPUS})

MACHINE_TOOLS = (
    Tool(
        "runpod",
        "RunPod",
        brokers.runpod,
        {"nvidia": frozenset({_GPUS, _DRIVER, _LAST}), "amd": _NAMES_ONLY},
    ),
    Tool(
        "vast",
        "vast.ai",
        brokers.vast,
        {"nvidia": frozenset({_ARCH, _GPUS, _DRIVER, _RELEASE, _LAST})},
    ),
    Tool("skypilot", "SkyPilot", brokers.skypilot, {"nvidia": _NAMES_ONLY}),
    Tool(
        "dstack",
        "dstack",
        brokers.dstack,
        {"nvidia": frozenset({_ARCH, _GPUS}), "amd": frozenset({_ARCH, _GPUS})},
    ),
    Tool("modal", "Modal", brokers.modal, {"nvidia": _NAMES_ONLY}),
    Tool(
        "kubernetes",
        "Kubernetes",
        clusters.kubernetes,
        {
            "nvidia": frozenset({_ARCH, _GPUS, _DRIVER, _RELEASE, _LAST}),
            "amd": frozenset({_ARCH, _GPUS}),
            "intel": frozenset({_ARCH, _GPUS}),
        },
    ),
    Tool(
        "slurm",
        "Slurm",
        clusters.slurm,
        {"nvidia": _NAMES_ONLY, "amd": _NAMES_ONLY, "intel": _NAMES_ONLY},
        needs_features=True,
    ),
    Tool(
        "htcondor",
        "HTCondor",
        clusters.htcondor,
        {"nvidia": frozenset({_ARCH, _GPUS, _DRIVER, _LAST})},
    ),
    Tool(
        "oci",
        "an OCI image",
        image_needs.oci,
        {
            "nvidia": frozenset({_GPUS, _DRIVER, _RELEASE, _LAST}),
            "amd": frozenset(),
            "intel": frozenset(),
        },
    ),
)


def words_for(tool: Tool, needs: MachineNeeds, features: Names) -> str:
    """Return what to tell a tool so that it takes a machine on which a lock runs.

    Args:
        tool: The tool.
        needs: What the locks need.
        features: A site's own names of GPUs, and what they execute.

    Raises:
        UsageError: if the tool has no words for such machines, or none of its GPUs runs a lock.
    """
    maker = needs.maker
    if needs.os != "linux" or maker is None:
        reason = "needs no GPU" if maker is None else f"is for {needs.os}, and {tool.title} is not"
        raise _not_exportable(f"{', '.join(needs.locks)} {reason}")
    if tool.needs_features and not features:
        raise UsageError(
            "features-missing",
            f"each {tool.title} site has its own names for GPUs: --feature tells them",
            hint="sinfo --format='%f %G'   # shows those of the nodes\nthe same with --feature a100=8.0",
        )
    if maker not in tool.says:
        raise _not_exportable(f"{tool.title} has no words for GPUs of {maker}")
    known = features or names_of(tool.name)
    names = {name: code for name, code in known.items() if code in needs.codes}
    if names:
        needs = needs.limited_to(names.values())
    text = tool.write(needs, names)
    if not text:
        raise _not_exportable(f"no GPU that {tool.title} offers runs {', '.join(needs.locks)}")
    lines: list[str] = []
    for remark in _remarks(tool, needs):
        lines += wrap(remark, 116, initial_indent="# ", subsequent_indent="# ")
    return "\n".join(lines) + f"\n{text}"


def _not_exportable(message: str) -> UsageError:
    return UsageError("not-exportable", message, hint="gpuinstall export needs")


def _remarks(tool: Tool, needs: MachineNeeds) -> Iterator[str]:
    """Yield what stands above the words of a tool."""
    builds = [
        f"{lock} (torch {torch})" for lock, torch in zip(needs.locks, needs.torch, strict=True)
    ]
    yield f"For {tool.title}: a machine for {' or '.join(builds)}."
    unsaid = "; ".join(unsaid_needs(tool, needs))
    if unsaid:
        yield f"It has no words for {unsaid}."
        yield f"What it cannot say is checked by a start with: {_CHECK}"


def unsaid_needs(tool: Tool, needs: MachineNeeds) -> Iterator[str]:
    """Yield what locks need and a tool has no word for."""
    says = tool.says.get(str(needs.maker), frozenset())
    if _ARCH not in says:
        yield f"the processor, {needs.arch}"
    if needs.glibc and _GLIBC not in says:
        yield f"glibc {needs.glibc} or newer"
    if _GPUS not in says:
        yield f"the GPUs, {', '.join(needs.codes)}"
    for gpus in needs.gpus:
        whose = f"for {', '.join(gpus.codes)}"
        if gpus.driver and _DRIVER not in says:
            yield f"driver {gpus.drivers}, {whose}"
            continue
        if gpus.driver and len(gpus.driver.parts) > 1 and _RELEASE not in says:
            yield f"driver {gpus.driver}, for which CUDA {gpus.cudas[0]} stands, {whose}"
        if gpus.last_branch and _LAST not in says:
            yield f"driver {gpus.last_branch} at most, {whose}"


@cache
def names_of(tool: str) -> Mapping[str, str]:
    """Return what the GPUs of a tool execute by the tool's own names for them; nothing if it has none."""
    table = tomli.loads((files("gpuinstall.export") / "data" / "gpu_names.toml").read_text("utf-8"))
    row = table.get(tool, {"names": []})
    meanings = row.get("means", {})
    codes = {}
    for name in (*row["names"], *meanings):
        codes[name] = code_of_gpu(meanings.get(name, name))
    return codes


def code_of_gpu(name: str) -> str:
    """Return what the GPU of a name executes: ``8.9``, or its maker's own name, ``gfx942``; raise UsageError."""
    gpu = find_gpu(name)
    return str(gpu.capability or gpu.architecture)


def parse_features(pairs: Iterable[str]) -> dict[str, str]:
    """Return a site's own names of GPUs with what they execute, of ``a100=8.0`` or ``big="RTX 4090"``.

    Raises:
        UsageError: if a pair is malformed, or no GPU has the name.
    """
    features = {}
    for pair in pairs:
        name, equals, gpu = pair.partition("=")
        if not (name and equals and gpu):
            raise UsageError(
                "feature-malformed",
                f"{pair!r} is not a feature with what its GPUs execute",
                hint="the same with --feature a100=8.0",
            )
        is_code = re.fullmatch(r"\d+\.\d|gfx\w+|xe [\d.]+", gpu)
        features[name] = gpu if is_code else code_of_gpu(gpu)
    return features
