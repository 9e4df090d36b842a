"""The report of a run: what became of every node at every step, from the records alone. Pure, but for the reading."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.hostlist import compress, expand
from gpuinstall.fleet.reconcile import NodeState, reconcile
from gpuinstall.fleet.together import culprits_in, good_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.fleet.lock_groups import LockGroup
    from gpuinstall.fleet.run_folder import RunFolder

SCHEMA = "gpuinstall.fleet-report/1"
STEPS = ("survey", "plan", "install", "verify", "together")


@dataclass(frozen=True)
class NodeRow:
    """One node: what became of it, step by step, as far as it came."""

    node: str
    steps: Mapping[str, NodeState]

    @property
    def worst(self) -> NodeState:
        """The first step that did not end well, or else the last one."""
        states = list(self.steps.values())
        return next((state for state in states if state.state != "ok"), states[-1])

    @property
    def outcome(self) -> tuple[tuple[str, str, str | None], ...]:
        """What nodes share that fared alike."""
        return tuple((step, str(state), state.message) for step, state in self.steps.items())


@dataclass(frozen=True)
class FleetReport:
    """Every node's row, in the order of the run; the locks, what the plan says, and what came of all together."""

    rows: tuple[NodeRow, ...]
    groups: tuple[LockGroup, ...] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    together: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> tuple[str, ...]:
        """The nodes whose every step ended well."""
        return self.hosts("ok")

    @property
    def bad(self) -> tuple[NodeRow, ...]:
        """The rows of the others."""
        return tuple(row for row in self.rows if row.worst.state != "ok")

    def hosts(self, state: str) -> tuple[str, ...]:
        """The nodes in a state."""
        return tuple(row.node for row in self.rows if row.worst.state == state)

    def alike(self) -> list[tuple[NodeRow, tuple[str, ...]]]:
        """Rows that are alike in all, with their nodes: those that need somebody first, then the largest."""
        found: dict[object, tuple[NodeRow, list[str]]] = {}
        for row in self.rows:
            found.setdefault(row.outcome, (row, []))[1].append(row.node)
        order = sorted(found.values(), key=lambda each: (each[0].worst.state == "ok", -len(each[1]), each[1][0]))
        return [(row, tuple(nodes)) for row, nodes in order]

    @property
    def exit_code(self) -> int:
        """0 where all are well, 7 where some are, else what the first failure was."""
        if not self.bad:
            return 0
        return 7 if self.ok else next((row.worst.exit_code for row in self.bad if row.worst.exit_code), 4)

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        return {
            "schema": SCHEMA,
            "nodes": {row.node: {step: state.to_dict() for step, state in row.steps.items()} for row in self.rows},
            "counts": dict(Counter(row.worst.state for row in self.rows)),
            "hosts": {state: compress(self.hosts(state)) for state in sorted({row.worst.state for row in self.rows})},
            "locks": [group.to_dict() for group in self.groups],
            "updates": list(self.plan.get("updates", ())),
            "apart": self.plan.get("apart"),
            "together": list(self.together.get("groups", ())),
        }


def read_report(folder: RunFolder) -> FleetReport:
    """Read all records of a run; raise UsageError where there is no run."""
    run = folder.read()
    surveys = reconcile(run.nodes, folder.records("survey", run.nodes), run.id)
    plan = folder.document("plan") if (folder.path / "plan.json").exists() else {}
    together = folder.document("together") if (folder.path / "together.json").exists() else {}
    groups = folder.groups() if plan else []
    digests = {node: group.sha256 for group in groups for node in group.nodes}
    taken = {
        step: reconcile(digests, folder.records(step, digests), run.id, digests)
        for step in ("install", "verify")
        if (folder.path / step).is_dir()
    }
    for node, hint in run.hints.items():
        if hint and surveys[node].state == "never started":
            message = f"{surveys[node].message}; the engine says: {hint}"
            surveys[node] = replace(surveys[node], message=message)
    return build_report(surveys, plan, groups, taken, together)


def build_report(
    surveys: Mapping[str, NodeState],
    plan: Mapping[str, Any],
    groups: Sequence[LockGroup],
    taken: Mapping[str, Mapping[str, NodeState]],
    together: Mapping[str, Any],
) -> FleetReport:
    """Put the steps of every node together, each as far as it came."""
    planned = {node for group in groups for node in group.nodes}
    refused = {node: entry for entry in plan.get("uncovered", ()) for node in expand(entry["nodes"])}
    culprits, good = culprits_in(together), good_in(together)
    rows = []
    for node, survey in surveys.items():
        steps = {"survey": survey}
        if plan and survey.state == "ok":
            steps["plan"] = _planned(node, refused.get(node), is_planned=node in planned)
        for step, states in taken.items():
            if node in planned and all(state.state == "ok" for state in steps.values()):
                steps[step] = states[node]
        if node in culprits:
            steps["together"] = NodeState(node, "failed", "collective", culprits[node], exit_code=5)
        elif node in good:
            steps["together"] = NodeState(node, "ok")
        rows.append(NodeRow(node, steps))
    return FleetReport(tuple(rows), tuple(groups), plan, together)


def _planned(node: str, refused: Mapping[str, Any] | None, *, is_planned: bool) -> NodeState:
    if is_planned:
        return NodeState(node, "ok")
    if refused:
        return NodeState(node, "failed", refused["code"], refused["message"], refused["hint"], exit_code=8)
    return NodeState(node, "stale", message="it came after the plan was made")
