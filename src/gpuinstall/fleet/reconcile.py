"""What became of the nodes that were expected, from the records of this run alone: never from a launcher's status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpuinstall.fleet.documents import MALFORMED, NodeRecord
from gpuinstall.fleet.hostlist import NodeName, compress

NodeStatus = Literal["ok", "failed", "lost", "never started", "stale", "running", "waiting"]
RETRIED = frozenset({"network", "unreachable", "transfer", "too-slow", "standstill", "busy"})
"""What may be another time: a server that was slow, another run in the way."""
_PROVEN = ("passed", "unproven")
"""The verdicts with which a step ends well."""


@dataclass(frozen=True)
class NodeState:
    """What became of one step on a node; the rest says of a failure what, why and how to repair it."""

    state: NodeStatus
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


OK, WAITING, RUNNING = NodeState("ok"), NodeState("waiting"), NodeState("running")
NEVER = NodeState("never started", message="it did not start: it is down, or the engine did not reach it")
LOST = NodeState("lost", message="it started and never reported a result", exit_code=4)


def reconcile(
    expected: Iterable[NodeName],
    records: Iterable[NodeRecord],
    run: str,
    digests: Mapping[NodeName, str] | None = None,
    *,
    ended: bool = True,
) -> dict[NodeName, NodeState]:
    """Say of every expected node what became of it; ``digests`` are the locks that the nodes should have by now.

    While a step has not ``ended``, a node that has begun is running, not lost, and any other is waiting.
    """
    states = dict.fromkeys(expected, NEVER if ended else WAITING)
    for record in records:
        state = _state(record, run, digests)
        states[record.node] = RUNNING if state is LOST and not ended else state
    return states


def counts(states: Iterable[NodeState]) -> str:
    """Write ``6 ok, 1 failed, 1 lost``."""
    return ", ".join(f"{count} {name}" for name, count in Counter(state.state for state in states).most_common())


def mixed_tools(records: Iterable[NodeRecord]) -> str | None:
    """Say that nodes have different releases of the tool: what one writes the other may not understand."""
    nodes: dict[str, list[str]] = {}
    for record in records:
        nodes.setdefault(record.tool, []).append(record.node)
    if len(nodes) < 2:
        return None
    releases = ", ".join(f"{tool} on {compress(names)}" for tool, names in sorted(nodes.items()))
    return f"the nodes have different releases of gpuinstall: {releases}"


def _state(record: NodeRecord, run: str, digests: Mapping[NodeName, str] | None) -> NodeState:
    if record.run != run and record.code != MALFORMED:
        return NodeState("stale", message="its record belongs to another run")
    if record.status == "failed":
        return NodeState("failed", record.code, record.message, record.hint, record.exit_code)
    if record.status == "started" or digests is None:
        return LOST if record.status == "started" else OK
    if record.data.get("sha256") != digests.get(record.node):
        return NodeState("stale", message="it has another lock than the plan")
    verdict = record.data.get("verdict")
    status = verdict.get("status") if isinstance(verdict, dict) else verdict
    if status in _PROVEN:
        return OK
    message = f"{record.step}/{record.node}.json: its verdict is {status!r}, not one of {', '.join(_PROVEN)}"
    return NodeState("failed", MALFORMED, message, exit_code=2)
