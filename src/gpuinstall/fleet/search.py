"""Which nodes spoil an all-reduce, by what their ranks say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuinstall.fields import Fields
from gpuinstall.fleet.documents import word
from gpuinstall.fleet.hostlist import NodeName, compress, node_list, node_name
from gpuinstall.values import dataclass

Nodes = tuple[NodeName, ...]


@dataclass(frozen=True)
class GroupResult:
    """One try of a group."""

    wrong: Mapping[NodeName, str]
    """What went wrong, by node; empty: nothing."""
    suspects: Mapping[NodeName, str]
    """What of that is the node's own fault."""
    gb_s: float | None = None
    """The bus bandwidth in GB/s."""


@dataclass(frozen=True)
class Culprit:
    """A node that spoiled an all-reduce, or a group in which no node is known to have."""

    nodes: Nodes
    why: str

    def __str__(self) -> str:
        return f"{compress(self.nodes)}: {self.why}"


@dataclass(frozen=True)
class JobGroup:
    """Nodes that may share a job, and what came of their all-reduce."""

    nodes: Nodes
    backend: str
    good: Nodes
    gb_s: float | None
    """Its bandwidth in GB/s."""
    link_gb_s: float | None
    """What the slowest link carries, in GB/s."""
    culprits: tuple[Culprit, ...]

    @classmethod
    def read(cls, fields: Fields) -> JobGroup:
        """Read an entry of the document; raise MalformedError."""
        return cls(
            nodes=fields.needed("nodes", node_list),
            backend=fields.needed("backend", word),
            good=fields.parsed("good", node_list) or (),
            gb_s=fields.quantity("gb_s"),
            link_gb_s=fields.quantity("link_gb_s"),
            culprits=tuple(map(_culprit, fields.each("culprits"))),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of the document."""
        return {
            **asdict(self),
            "nodes": compress(self.nodes),
            "good": compress(self.good),
        }


def _culprit(fields: Fields) -> Culprit:
    return Culprit(fields.each_parsed("nodes", node_name), fields.text("why") or "")


def read_together(document: object) -> tuple[JobGroup, ...]:
    """Return what became of the nodes together; raise ValueError."""
    return tuple(map(JobGroup.read, Fields(document).each("groups")))


@dataclass(frozen=True)
class Findings:
    """The largest group that went well at last, and who spoiled the others."""

    good: Nodes
    culprits: tuple[Culprit, ...] = ()
    gb_s: float | None = None
    """The bandwidth of the good in GB/s."""


def search(nodes: Nodes, run: Callable[[Nodes], GroupResult]) -> Findings:
    """Return who spoils a group by what the ranks say.

    What is left is tried again, so that a name is a proof.
    """
    culprits: list[Culprit] = []
    while len(nodes) > 1:
        result = run(nodes)
        if not result.wrong:
            return Findings(nodes, tuple(culprits), result.gb_s)
        if not result.suspects:
            why = next(iter(result.wrong.values()))
            advice = "no rank is at fault by itself: run nccl-tests on parts of this group"
            culprits.append(Culprit(nodes, f"{why}; {advice}"))
            return Findings((), tuple(culprits))
        culprits += [Culprit((node,), why) for node, why in result.suspects.items()]
        nodes = tuple(node for node in nodes if node not in result.suspects)
    return Findings(nodes, tuple(culprits))


def result_of(
    nodes: Sequence[NodeName],
    ranks: Mapping[NodeName, Sequence[Mapping[str, Any]] | str],
) -> GroupResult:
    """Return what came of a try; a node without a word is a suspect.

    A rank that waited in vain is a victim: at fault is one that died, stood still, or failed before
    it met the others.

    Args:
        ranks: What the ranks of each node said, or why it is not known.
    """
    wrong: dict[NodeName, str] = {}
    suspects: dict[NodeName, str] = {}
    speeds: list[float] = []
    for node in nodes:
        answer = ranks.get(node, "it never responded")
        if isinstance(answer, str):
            wrong[node] = answer
            suspects[node] = answer
            continue
        for rank in answer:
            if rank["status"] == "ok":
                speeds.append(rank["gb_s"])
                continue
            wrong[node] = f"rank {rank['rank']} {rank['status']}: {rank['message']}"
            if rank["status"] in {"died", "hung"} or rank["stage"] == "start":
                suspects[node] = wrong[node]
    if wrong and len(suspects) == len(nodes):
        suspects = {}
    speed = None if wrong else min(speeds, default=None)
    return GroupResult(wrong, suspects, speed)
