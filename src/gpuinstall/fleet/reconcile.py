"""What became of the expected nodes, from the records of this run alone.

A launcher's status is never believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from gpuinstall.fleet.documents import MALFORMED, NodeRecord
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.values import dataclass

NodeStatus = Literal["ok", "failed", "lost", "never started", "stale", "running", "waiting"]
RETRIED = frozenset({"network", "unreachable", "transfer", "too-slow", "standstill", "busy"})
"""What may be another time: a server that was slow, another run in the way."""
_PROVEN = ("passed", "unproven")
"""The verdicts with which a step ends well."""


@dataclass(frozen=True)
class NodeState:
    """What became of one step on a node; of a failure also what, why and how to repair it."""

    state: NodeStatus
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0

    @property
    def may_be_retried(self) -> bool:
        """Whether the same once more can help."""
        return self.state == "failed" and self.code in RETRIED

    def __str__(self) -> str:
        return f"failed ({self.code})" if self.state == "failed" else self.state

    def to_dict(self) -> dict[str, Any]:
        """Return it for the report's document."""
        return {
            "state": self.state,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
        }


OK = NodeState("ok")
WAITING = NodeState("waiting")
RUNNING = NodeState("running")
NEVER = NodeState(
    "never started",
    message="it did not start: it is down, or the engine did not reach it",
)
LOST = NodeState(
    "lost",
    message="it started and never reported a result",
    exit_code=4,
)


def reconcile(
    expected: Iterable[NodeName],
    records: Iterable[NodeRecord],
    run: str,
    digests: Mapping[NodeName, str] | None = None,
    *,
    ended: bool = True,
) -> dict[NodeName, NodeState]:
    """Return what became of every expected node.

    Args:
        run: The id of the run.
        digests: The locks that the nodes should have by now.
        ended: Whether the step has. If not, a node that has begun is running, and not lost; any
            other is waiting.
    """
    states = dict.fromkeys(expected, NEVER if ended else WAITING)
    for record in records:
        state = _state(record, run, digests)
        if state is LOST and not ended:
            state = RUNNING
        states[record.node] = state
    return states


def counts(states: Iterable[NodeState]) -> str:
    """Return ``6 ok, 1 failed, 1 lost``."""
    names = Counter(state.state for state in states)
    return ", ".join(f"{count} {name}" for name, count in names.most_common())


def mixed_tools(records: Iterable[NodeRecord]) -> str | None:
    """Return a message if nodes have different releases of the tool, else None."""
    nodes: dict[str, list[str]] = {}
    for record in records:
        nodes.setdefault(record.tool, []).append(record.node)
    if len(nodes) < 2:
        return None
    releases = ", ".join(f"{tool} on {compress(names)}" for tool, names in sorted(nodes.items()))
    return f"the nodes have different releases of gpuinstall: {releases}"


def _state(
    record: NodeRecord,
    run: str,
    digests: Mapping[NodeName, str] | None,
) -> NodeState:
    if record.run != run and record.code != MALFORMED:
        return NodeState("stale", message="its record belongs to another run")
    match record.status:
        case "failed":
            return NodeState("failed", record.code, record.message, record.hint, record.exit_code)
        case "started":
            return LOST
    if digests is None:
        return OK
    if record.data.get("sha256") != digests.get(record.node):
        return NodeState("stale", message="it has another lock than the plan")
    return _proven_state(record)


def _proven_state(record: NodeRecord) -> NodeState:
    verdict = record.data.get("verdict")
    if isinstance(verdict, dict):
        verdict = verdict.get("status")
    if verdict in _PROVEN:
        return OK
    file = f"{record.step}/{record.node}.json"
    message = f"{file}: its verdict is {verdict!r}, not one of {', '.join(_PROVEN)}"
    return NodeState(
        "failed",
        MALFORMED,
        message,
        exit_code=2,
    )
