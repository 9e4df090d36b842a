"""Nodes that a choice cannot tell apart, put together: thousands of nodes come to a handful of classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import UsageError
from gpuinstall.fleet.documents import UnservedNodes
from gpuinstall.machine import MAKERS_WITH_FACTS, Machine

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from gpuinstall.fleet.hostlist import NodeName

_OF_A_GPU = ("index", "name", "compute_capability", "vendor", "architecture", "memory_mib", "mig")
"""What tells GPUs apart for a choice."""


@dataclass(frozen=True)
class NodeClass:
    """Nodes of one kind: the machine that stands for all of them, and their names in order."""

    machine: Machine
    nodes: tuple[NodeName, ...]

    @property
    def gpus(self) -> str:
        """The GPUs as people name them: ``8 × H100 80GB HBM3 (sm_90)``."""
        kinds = Counter((gpu.label, gpu.code_name) for gpu in self.machine.gpus)
        return ", ".join(f"{count} × {name} ({chip or 'unknown'})" for (name, chip), count in kinds.items()) or "no GPU"

    @property
    def label(self) -> str:
        """The class in a line: GPUs, driver, and the platform where it is not the usual one."""
        driver, platform = self.machine.driver, f"{self.machine.os} {self.machine.arch}"
        version = f"driver {driver.version or driver.cuda}" if driver else None
        return " · ".join(filter(None, (self.gpus, version, platform if platform != "linux x86_64" else None)))


def node_classes(surveyed: Iterable[tuple[NodeName, Any]]) -> tuple[tuple[NodeClass, ...], tuple[UnservedNodes, ...]]:
    """Put nodes, each with its Machine document, into classes, the largest first; those that have none are apart.

    Only one machine of each class is read as a whole.
    """
    members: dict[Hashable, list[NodeName]] = {}
    documents: dict[Hashable, Any] = {}
    for node, document in surveyed:
        kind = _kind(document)
        key = node if kind is None else kind
        documents.setdefault(key, document)
        members.setdefault(key, []).append(node)
    kinds = [_read(documents[key], tuple(nodes)) for key, nodes in members.items()]
    classes = sorted(
        (kind for kind in kinds if isinstance(kind, NodeClass)), key=lambda kind: (-len(kind.nodes), kind.nodes[0])
    )
    return tuple(classes), tuple(kind for kind in kinds if isinstance(kind, UnservedNodes))


def _read(document: Any, nodes: tuple[NodeName, ...]) -> NodeClass | UnservedNodes:
    try:
        return NodeClass(Machine.from_dict(document), nodes)
    except UsageError as error:
        return UnservedNodes(nodes, error.code, error.message, "gpuinstall fleet survey --resume")


def _kind(document: Any) -> Hashable:
    """All that a choice depends on, not single cards nor where they are on the bus; None for what is no machine."""
    try:
        kind = _facts(document)
        hash(kind)
    except (AttributeError, TypeError):
        return None
    return kind


def _facts(document: Mapping[str, Any]) -> tuple[Hashable, ...]:
    driver, pythons = document.get("driver") or {}, document.get("pythons")
    return (
        document.get("os"),
        document.get("arch"),
        document.get("libc"),
        document.get("glibc"),
        driver.get("version"),
        driver.get("cuda"),
        str(document.get("environment")),
        None if pythons is None else tuple(dict.fromkeys(".".join(python.split(".")[:2]) for python in pythons)),
        tuple(tuple(gpu.get(key) for key in _OF_A_GPU) for gpu in document.get("gpus") or ()),
        tuple(
            (problem.get("code"), tuple(problem.get("gpus") or ()))
            for problem in document.get("problems") or ()
            if problem.get("blocking")
        ),
        *(str(document[maker]) for maker in MAKERS_WITH_FACTS if maker in document),
    )
