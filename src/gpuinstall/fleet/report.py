"""What became of every node at every step, from the records alone, and what an administrator takes of it.

Pure, but for the reading; nothing is done to a node here. Nodes that fared alike are one row.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import UsageError
from gpuinstall.fleet.documents import WrittenPlan
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.fleet.reconcile import NEVER, OK, NodeState, reconcile
from gpuinstall.fleet.search import JobGroup, read_together
from gpuinstall.shell import joined
from gpuinstall.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.fleet.run_folder import RunFolder


REPORT_SCHEMA = "gpuinstall.fleet-report/1"
STEPS = ("survey", "plan", "install", "verify", "together")
_REACHED = {"survey": "surveyed", "plan": "planned", "install": "installed", "verify": "proven"}
_STATES = ("ok", "failed", "lost", "never started", "stale")


@dataclass(frozen=True)
class ReportRow:
    """Nodes that fared alike: what became of them, step by step, as far as they came."""

    nodes: tuple[NodeName, ...]
    steps: Mapping[str, NodeState]

    @cached_property
    def worst(self) -> NodeState:
        """The first step that did not end well, or else the last one."""
        states = list(self.steps.values())
        return next((state for state in states if state.state != "ok"), states[-1])


@dataclass(frozen=True)
class FleetReport:
    """Rows for all nodes, those that need somebody first, then the largest; the plan, and what came of all together.

    ``step`` is the last that the run has taken, ``faults`` is what cannot be read in its folder.
    """

    rows: tuple[ReportRow, ...]
    step: str = "verify"
    plan: WrittenPlan = field(default_factory=WrittenPlan)
    together: tuple[JobGroup, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def bad(self) -> tuple[ReportRow, ...]:
        """The rows of nodes that a step did not end well on."""
        return tuple(row for row in self.rows if row.worst.state != "ok")

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many nodes are in each state."""
        states: Counter[str] = Counter()
        for row in self.rows:
            states[row.worst.state] += len(row.nodes)
        return dict(states)

    @property
    def summary(self) -> str:
        """How far the nodes have come: no further than the step that was taken."""
        total = sum(self.counts.values())
        nodes = "node is" if total == 1 else "nodes are"
        return f"{self.counts.get('ok', 0)} of {total} {nodes} {_REACHED[self.step]}"

    def hosts(self, state: str) -> str:
        """List the nodes in a state."""
        return compress(node for row in self.rows if row.worst.state == state for node in row.nodes)

    @property
    def exit_code(self) -> int:
        """0 where all are well, 7 where some are, else what the first failure was."""
        if not self.bad:
            return UsageError.exit_code if self.faults else 0
        if self.counts.get("ok"):
            return 7
        return next((row.worst.exit_code for row in self.bad if row.worst.exit_code), 4)

    @property
    def error(self) -> str | None:
        """What is not well, in a line."""
        bad = compress(node for row in self.bad for node in row.nodes)
        return "; ".join(filter(None, (bad and f"not {_REACHED[self.step]}: {bad}", *self.faults))) or None

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        steps = [(row.nodes, {step: state.to_dict() for step, state in row.steps.items()}) for row in self.rows]
        return {
            "schema": REPORT_SCHEMA,
            "nodes": {node: states for nodes, states in steps for node in nodes},
            "counts": self.counts,
            "hosts": {state: self.hosts(state) for state in sorted(self.counts)},
            "locks": [group.to_dict() for group in self.plan.groups],
            "apart": self.plan.apart,
            "together": [group.to_dict() for group in self.together],
            **({"faults": list(self.faults)} if self.faults else {}),
        }


def read_report(folder: RunFolder) -> FleetReport:
    """Read all records of a run; raise UsageError where there is no run.

    A document that is malformed is a fault of the report, a record that is malformed a failure of its node.
    """
    run, faults = folder.read(), [f"survey/{name}.json is not the name of a node" for name in folder.strangers()]
    plan, together = WrittenPlan(), read_together({})
    try:
        plan = folder.plan() if folder.holds("plan") else plan
        together = folder.document("together", read_together) if folder.holds("together") else together
    except UsageError as error:
        faults.append(error.message)
    surveys = reconcile(run.nodes, folder.records("survey", run.nodes), run.id)
    for node, hint in run.hints.items():
        if hint and surveys.get(node) is NEVER:
            surveys[node] = replace(NEVER, message=f"{NEVER.message}; the engine says: {hint}")
    digests = {node: group.sha256 for group in plan.groups for node in group.nodes}
    steps = [step for step in ("install", "verify") if digests and folder.place(step).is_dir()]
    taken = {step: reconcile(digests, folder.records(step, digests), run.id, digests) for step in steps}
    report = build_report(surveys, plan, taken, together)
    return replace(report, faults=tuple(faults))


def build_report(
    surveys: Mapping[NodeName, NodeState],
    plan: WrittenPlan,
    taken: Mapping[str, Mapping[NodeName, NodeState]],
    together: tuple[JobGroup, ...] = (),
) -> FleetReport:
    """Put the steps of every node together, each as far as it came."""
    planned = dict.fromkeys((node for group in plan.groups for node in group.nodes), OK)
    for entry in plan.uncovered:
        refused = NodeState("failed", entry.code, entry.message, entry.hint, exit_code=8)
        planned.update(dict.fromkeys(entry.nodes, refused))
    late = NodeState("stale", message="it joined after the plan was made")
    jobs = {node: OK for group in together for node in group.good}
    for culprit in (culprit for group in together for culprit in group.culprits):
        spoiled = NodeState("failed", "collective", culprit.why, exit_code=5)
        jobs.update(dict.fromkeys(culprit.nodes, spoiled))
    alike: dict[tuple[tuple[str, NodeState], ...], list[NodeName]] = {}
    for node, survey in surveys.items():
        steps = [("survey", survey)]
        if planned and survey.state == "ok":
            steps.append(("plan", planned.get(node, late)))
        for step, states in taken.items():
            if node in states and steps[-1][1].state == "ok":
                steps.append((step, states[node]))
        if node in jobs:
            steps.append(("together", jobs[node]))
        alike.setdefault(tuple(steps), []).append(node)
    rows = [ReportRow(tuple(nodes), dict(steps)) for steps, nodes in alike.items()]
    rows.sort(key=lambda row: (row.worst.state == "ok", -len(row.nodes), row.nodes[0]))
    step = [*("survey", "plan")[: 1 + bool(planned)], *taken][-1]
    return FleetReport(tuple(rows), step, plan, together)


def scontrol_lines(report: FleetReport, name: str, *, drain: bool) -> list[str]:
    """Write the lines that set bad nodes apart: a reservation for maintenance first, then a drain if meant."""
    bad = [row for row in report.bad if row.worst.state in {"failed", "lost"}]
    if not bad:
        return []
    reservation = (
        *("create", "reservation", f"ReservationName=gpuinstall_{_plain(name)}", "StartTime=now"),
        *("Duration=1-00:00:00", "Users=root", "Flags=maint,ignore_jobs"),
        f"Nodes={compress(node for row in bad for node in row.nodes)}",
    )
    commands: list[tuple[str, ...]] = [reservation]
    if drain:
        causes: dict[str, list[str]] = {}
        for row in bad:
            causes.setdefault(_plain(f"{row.worst}: {row.worst.message}"), []).extend(row.nodes)
        commands += [
            ("update", f"NodeName={compress(nodes)}", "State=DRAIN", f"Reason=gpuinstall: {why}")
            for why, nodes in causes.items()
        ]
    return [joined(("scontrol", *words)) for words in commands]


def metrics(report: FleetReport) -> str:
    """Write the report as OpenMetrics text, for a node exporter's folder or a push."""
    return "\n".join([*_metrics(report), "# EOF", ""])


def _metrics(report: FleetReport) -> Iterator[str]:
    yield "# TYPE gpuinstall_nodes gauge"
    yield "# HELP gpuinstall_nodes Nodes of the run by what became of them."
    for state in _STATES:
        yield f'gpuinstall_nodes{{state="{state}"}} {report.counts.get(state, 0)}'
    yield "# TYPE gpuinstall_node_ok gauge"
    yield "# HELP gpuinstall_node_ok 1 where every step of a node ended well."
    for row in report.rows:
        step = next((step for step, state in row.steps.items() if state.state != "ok"), "")
        labels = f'step="{step}",code="{row.worst.code or ""}"'
        well = int(row.worst.state == "ok")
        yield from (f'gpuinstall_node_ok{{node="{node}",{labels}}} {well}' for node in row.nodes)
    yield "# TYPE gpuinstall_lock info"
    yield "# HELP gpuinstall_lock The locks of the plan."
    for group in report.plan.groups:
        yield f'gpuinstall_lock_info{{name="{group.name}",torch="{group.torch}",sha256="{group.sha256}"}} 1'


def _plain(text: str) -> str:
    """What Slurm takes as a word of its own."""
    return re.sub(r"[^\w .,:()+-]", " ", visible(text), flags=re.ASCII)[:160].strip()
