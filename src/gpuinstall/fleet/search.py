"""Which nodes spoil an all-reduce, by what their ranks say. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpuinstall.fields import Fields
from gpuinstall.fleet.documents import word
from gpuinstall.fleet.hostlist import NodeName, compress, node_list, node_name

Nodes = tuple[NodeName, ...]


@dataclass(frozen=True)
class GroupResult:
    """One try of a group: what went wrong by node (empty: nothing), and what is each node's own fault of that.

    ``gb_s`` is the bus bandwidth in GB/s.
    """

    wrong: Mapping[NodeName, str]
    suspects: Mapping[NodeName, str]
    gb_s: float | None = None


@dataclass(frozen=True)
class Culprit:
    """A node that spoiled an all-reduce, or a group in which nobody is known to."""

    nodes: Nodes
    why: str

    def __str__(self) -> str:
        return f"{compress(self.nodes)}: {self.why}"


@dataclass(frozen=True)
class JobGroup:
    """Nodes that may share a job, and what came of their all-reduce.

    ``gb_s`` is its bandwidth and ``link_gb_s`` what the slowest link carries, both in GB/s.
    """

    nodes: Nodes
    backend: str
    good: Nodes
    gb_s: float | None
    link_gb_s: float | None
    culprits: tuple[Culprit, ...]

    @classmethod
    def read(cls, fields: Fields) -> JobGroup:
        """Read an entry of the document; raise MalformedError."""
        every, good = fields.needed("nodes", node_list), fields.parsed("good", node_list) or ()
        rows = fields.each("culprits")
        culprits = tuple(Culprit(row.each_parsed("nodes", node_name), row.text("why") or "") for row in rows)
        bandwidths = fields.quantity("gb_s"), fields.quantity("link_gb_s")
        return cls(every, fields.needed("backend", word), good, *bandwidths, culprits)

    def to_dict(self) -> dict[str, Any]:
        """Write an entry of the document."""
        return asdict(self) | {"nodes": compress(self.nodes), "good": compress(self.good)}


def read_together(document: object) -> tuple[JobGroup, ...]:
    """Read what became of the nodes together; raise ValueError."""
    return tuple(map(JobGroup.read, Fields(document).each("groups")))


@dataclass(frozen=True)
class Findings:
    """The largest group that went well at last, with its bandwidth, and who spoiled the others."""

    good: Nodes
    culprits: tuple[Culprit, ...] = ()
    gb_s: float | None = None


def search(nodes: Nodes, run: Callable[[Nodes], GroupResult]) -> Findings:
    """Find who spoils a group by what the ranks say; what is left is tried again, so that a name is a proof."""
    culprits: list[Culprit] = []
    while len(nodes) > 1:
        result = run(nodes)
        if not result.wrong:
            return Findings(nodes, tuple(culprits), result.gb_s)
        if not result.suspects:
            why = next(iter(result.wrong.values()))
            group = Culprit(nodes, f"{why}; no rank is at fault by itself: run nccl-tests on parts of this group")
            return Findings((), (*culprits, group))
        culprits += [Culprit((node,), why) for node, why in result.suspects.items()]
        nodes = tuple(node for node in nodes if node not in result.suspects)
    return Findings(nodes, tuple(culprits))


def result_of(nodes: Sequence[NodeName], ranks: Mapping[NodeName, Sequence[Mapping[str, Any]] | str]) -> GroupResult:
    """Read what the ranks of each node said; a node without a word, or with a reason instead, is a suspect.

    A rank that waited in vain is a victim: at fault is who died, stood still, or failed before it met the others.
    """
    wrong: dict[NodeName, str] = {}
    suspects: dict[NodeName, str] = {}
    speeds: list[float] = []
    for node in nodes:
        answer = ranks.get(node, "it never responded")
        if isinstance(answer, str):
            wrong[node] = suspects[node] = answer
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
    return GroupResult(wrong, suspects, min(speeds, default=None) if not wrong else None)
