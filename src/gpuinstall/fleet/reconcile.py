"""What became of the nodes that were expected, from the records of this run alone: never from a launcher's status."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.fleet.hostlist import compress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.fleet.run_folder import NodeRecord

Standing = Literal["ok", "failed", "lost", "never started", "stale", "running", "waiting"]
RETRIED = frozenset({"network", "unreachable", "transfer", "too-slow", "standstill", "busy"})
"""What may be another time: a server that was slow, another run in the way."""


@dataclass(frozen=True)
class NodeState:
    """What became of one step on one node; the rest says of a failure what, why and how to repair it."""

    node: str
    state: Standing
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0

    @property
    def may_be_retried(self) -> bool:
        """Say whether the same once more can help."""
        return self.state == "failed" and self.code in RETRIED

    def __str__(self) -> str:
        return f"failed ({self.code})" if self.state == "failed" else self.state

    def to_dict(self) -> dict[str, Any]:
        """Write it for the report's document."""
        return {"state": self.state, "code": self.code, "message": self.message, "hint": self.hint}


def reconcile(
    expected: Iterable[str],
    records: Mapping[str, NodeRecord],
    run: str,
    digests: Mapping[str, str | None] | None = None,
    *,
    ended: bool = True,
) -> dict[str, NodeState]:
    """Say of every expected node what became of it; ``digests`` are the locks that the nodes should have by now.

    While a step has not ``ended``, a node that has begun is running, not lost, and any other is waiting.
    """
    return {node: _state(node, records.get(node), run, (digests or {}).get(node), ended=ended) for node in expected}


def counts(states: Iterable[NodeState]) -> str:
    """Write ``6 ok, 1 failed, 1 lost``."""
    found = Counter(state.state for state in states)
    return ", ".join(f"{count} {name}" for name, count in found.most_common())


def mixed_tools(records: Iterable[NodeRecord]) -> str | None:
    """Say that nodes have different releases of the tool: what one writes the other may not understand."""
    nodes: dict[str, list[str]] = {}
    for record in records:
        nodes.setdefault(record.tool, []).append(record.node)
    if len(nodes) < 2:
        return None
    said = ", ".join(f"{tool} on {compress(names)}" for tool, names in sorted(nodes.items()))
    return f"the nodes have different releases of gpuinstall: {said}"


def _state(node: str, record: NodeRecord | None, run: str, digest: str | None, *, ended: bool) -> NodeState:
    if record is None:
        never = NodeState(node, "never started", message="it has not begun: it is down, or the engine did not reach it")
        return never if ended else NodeState(node, "waiting")
    if record.run != run:
        return NodeState(node, "stale", message="its record is another run's")
    if record.status == "started":
        lost = NodeState(node, "lost", message="it began and never said how it ended", exit_code=4)
        return lost if ended else NodeState(node, "running")
    if record.status == "failed":
        return NodeState(node, "failed", record.code, record.message, record.hint, record.exit_code)
    if digest is not None and record.data.get("sha256") != digest:
        return NodeState(node, "stale", message="what it has is of another lock than the plan's")
    return NodeState(node, "ok")
