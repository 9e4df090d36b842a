"""Nodes that a choice cannot tell apart, put together: thousands of nodes come to a handful of classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuinstall.machine import MAKERS_WITH_FACTS, Machine

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

_OF_A_GPU = ("index", "name", "compute_capability", "vendor", "architecture", "memory_mib", "mig")
"""What tells GPUs apart for a choice."""


@dataclass(frozen=True)
class NodeClass:
    """Nodes of one kind: the machine that stands for all of them, and their names in order."""

    machine: Machine
    nodes: tuple[str, ...]

    @property
    def gpus(self) -> str:
        """The GPUs as people name them: ``8 × H100 80GB HBM3 (sm_90)``."""
        kinds = Counter((gpu.label, gpu.code_name) for gpu in self.machine.gpus)
        return ", ".join(f"{count} × {name} ({chip or 'unknown'})" for (name, chip), count in kinds.items()) or "no GPU"

    @property
    def label(self) -> str:
        """The class in a line: GPUs, driver, and the platform where it is not the usual one."""
        driver, platform = self.machine.driver, f"{self.machine.os} {self.machine.arch}"
        said = f"driver {driver.version or driver.cuda}" if driver else None
        return " · ".join(filter(None, (self.gpus, said, platform if platform != "linux x86_64" else None)))


def classify(surveyed: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[NodeClass, ...]:
    """Put nodes, each with its Machine document, into classes, the largest first.

    Only one machine of each class is read as a whole. Raise UsageError where that is malformed.
    """
    nodes: dict[Hashable, list[str]] = {}
    documents: dict[Hashable, Mapping[str, Any]] = {}
    for node, document in surveyed:
        key = _kind(document)
        if key not in nodes:
            nodes[key], documents[key] = [], document
        nodes[key].append(node)
    found = [NodeClass(Machine.from_dict(documents[key]), tuple(names)) for key, names in nodes.items()]
    return tuple(sorted(found, key=lambda one: (-len(one.nodes), one.nodes[0])))


def _kind(document: Mapping[str, Any]) -> Hashable:
    """All that a choice depends on: not the names of single cards, nor where they are on the bus."""
    driver = document.get("driver") or {}
    return (
        document.get("os"),
        document.get("arch"),
        document.get("libc"),
        document.get("glibc"),
        driver.get("version"),
        driver.get("cuda"),
        str(document.get("environment")),
        _minors(document.get("pythons")),
        tuple(tuple(gpu.get(key) for key in _OF_A_GPU) for gpu in document.get("gpus") or ()),
        tuple(
            (problem.get("code"), tuple(problem.get("gpus") or ()))
            for problem in document.get("problems") or ()
            if problem.get("blocking")
        ),
        *(str(document[maker]) for maker in MAKERS_WITH_FACTS if maker in document),
    )


def _minors(pythons: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if pythons is None else tuple(dict.fromkeys(".".join(each.split(".")[:2]) for each in pythons))
