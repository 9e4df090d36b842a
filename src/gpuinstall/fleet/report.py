"""What became of every node at every step, from the records alone, and what an administrator takes of it.

Pure, but for the reading; nothing is done to a node here.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.hostlist import compress, expand
from gpuinstall.fleet.reconcile import NodeState, reconcile
from gpuinstall.fleet.together import culprits_in, good_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.fleet.run_folder import LockGroup, RunFolder

SCHEMA = "gpuinstall.fleet-report/1"
STEPS = ("survey", "plan", "install", "verify", "together")
_STATES = ("ok", "failed", "lost", "never started", "stale")


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


def scontrol_lines(report: FleetReport, name: str, *, drain: bool) -> list[str]:
    """Write the lines that set bad nodes apart: a reservation for maintenance first, then a drain if meant."""
    bad = [row for row in report.bad if row.worst.state in {"failed", "lost"}]
    if not bad:
        return []
    nodes = compress(row.node for row in bad)
    words = f"ReservationName=gpuinstall_{_plain(name)} StartTime=now Duration=1-00:00:00 Users=root"
    lines = [f"scontrol create reservation {words} Flags=maint,ignore_jobs Nodes={nodes}"]
    if drain:
        causes: dict[str, list[str]] = {}
        for row in bad:
            causes.setdefault(_plain(f"{row.worst}: {row.worst.message}"), []).append(row.node)
        lines += [
            f'scontrol update NodeName={compress(nodes)} State=DRAIN Reason="gpuinstall: {why}"'
            for why, nodes in causes.items()
        ]
    return lines


def metrics(report: FleetReport) -> str:
    """Write the report as OpenMetrics text, for a node exporter's folder or a push."""
    return "\n".join([*_metrics(report), "# EOF", ""])


def _planned(node: str, refused: Mapping[str, Any] | None, *, is_planned: bool) -> NodeState:
    if is_planned:
        return NodeState(node, "ok")
    if refused:
        return NodeState(node, "failed", refused["code"], refused["message"], refused["hint"], exit_code=8)
    return NodeState(node, "stale", message="it came after the plan was made")


def _metrics(report: FleetReport) -> Iterator[str]:
    found: Counter[str] = Counter(row.worst.state for row in report.rows)
    yield "# TYPE gpuinstall_nodes gauge"
    yield "# HELP gpuinstall_nodes Nodes of the run by what became of them."
    for state in _STATES:
        yield f'gpuinstall_nodes{{state="{state}"}} {found.get(state, 0)}'
    yield "# TYPE gpuinstall_node_ok gauge"
    yield "# HELP gpuinstall_node_ok 1 where every step of a node ended well."
    for row in report.rows:
        step = next((step for step, state in row.steps.items() if state.state != "ok"), "")
        labels = f'node="{_escaped(row.node)}",step="{step}",code="{_escaped(row.worst.code or "")}"'
        yield f"gpuinstall_node_ok{{{labels}}} {int(row.worst.state == 'ok')}"
    yield "# TYPE gpuinstall_lock info"
    yield "# HELP gpuinstall_lock The locks of the plan."
    for group in report.groups:
        labels = f'name="{_escaped(group.name)}",torch="{_escaped(group.torch)}",sha256="{group.sha256 or ""}"'
        yield f"gpuinstall_lock_info{{{labels}}} 1"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _plain(text: str) -> str:
    """What a shell and Slurm take as one harmless word in quotes."""
    return re.sub(r"[^\w .,:()+-]", " ", text, flags=re.ASCII)[:160].strip()
