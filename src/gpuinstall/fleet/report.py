"""What became of every node at every step, from the records alone.

Pure, but for the reading; nothing is done to a node here. Nodes that fared alike are one row.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import UsageError
from gpuinstall.fleet.documents import WrittenPlan
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.fleet.reconcile import NEVER, OK, NodeState, reconcile
from gpuinstall.fleet.search import JobGroup, read_together
from gpuinstall.shell import joined
from gpuinstall.text import visible
from gpuinstall.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.fleet.run_folder import RunFolder


REPORT_SCHEMA = "gpuinstall.fleet-report/1"
STEPS = ("survey", "plan", "install", "verify", "together")
_REACHED = {
    "survey": "surveyed",
    "plan": "planned",
    "install": "installed",
    "verify": "proven",
}
_STATES = ("ok", "failed", "lost", "never started", "stale")


@dataclass(frozen=True)
class ReportRow:
    """Nodes that fared alike."""

    nodes: tuple[NodeName, ...]
    steps: Mapping[str, NodeState]
    """What became of them, step by step, as far as they came."""

    @cached_property
    def worst(self) -> NodeState:
        """The first step that did not end well, or else the last one."""
        for state in self.steps.values():
            if state.state != "ok":
                break
        return state


@dataclass(frozen=True)
class FleetReport:
    """What became of a run."""

    rows: tuple[ReportRow, ...]
    """All nodes: those that need care first, then the largest rows."""
    step: str = "verify"
    """The last step that the run has taken."""
    plan: WrittenPlan = field(default_factory=WrittenPlan)
    together: tuple[JobGroup, ...] = ()
    faults: tuple[str, ...] = ()
    """What cannot be read in the folder of the run."""

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
        good = self.counts.get("ok", 0)
        total = sum(self.counts.values())
        nodes = "node is" if total == 1 else "nodes are"
        return f"{good} of {total} {nodes} {_REACHED[self.step]}"

    def hosts(self, state: str) -> str:
        """Return the nodes in a state."""
        return _hosts(row for row in self.rows if row.worst.state == state)

    @property
    def exit_code(self) -> int:
        """0 if all are well, 7 if some are, else what the first failure was."""
        if not self.bad:
            return UsageError.exit_code if self.faults else 0
        if self.counts.get("ok"):
            return 7
        codes = [row.worst.exit_code for row in self.bad if row.worst.exit_code]
        return codes[0] if codes else 4

    @property
    def error(self) -> str | None:
        """What is not well, in a line."""
        errors = list(self.faults)
        if self.bad:
            errors.insert(0, f"not {_REACHED[self.step]}: {_hosts(self.bad)}")
        return "; ".join(errors) or None

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        nodes: dict[NodeName, Any] = {}
        for row in self.rows:
            steps = {step: state.to_dict() for step, state in row.steps.items()}
            nodes.update(dict.fromkeys(row.nodes, steps))
        document: dict[str, Any] = {
            "schema": REPORT_SCHEMA,
            "nodes": nodes,
            "counts": self.counts,
            "hosts": {state: self.hosts(state) for state in sorted(self.counts)},
            "locks": [group.to_dict() for group in self.plan.groups],
            "apart": self.plan.apart,
            "together": [group.to_dict() for group in self.together],
        }
        if self.faults:
            document["faults"] = list(self.faults)
        return document


def _hosts(rows: Iterable[ReportRow]) -> str:
    return compress(node for row in rows for node in row.nodes)


def read_report(folder: RunFolder) -> FleetReport:
    """Read all records of a run.

    A document that is malformed is a fault of the report, a malformed record a failure of its node.

    Raises:
        UsageError: if there is no run.
    """
    run = folder.read()
    faults = [f"survey/{name}.json is not the name of a node" for name in folder.strangers()]
    plan = WrittenPlan()
    together = read_together({})
    try:
        if folder.holds("plan"):
            plan = folder.plan()
        if folder.holds("together"):
            together = folder.document("together", read_together)
    except UsageError as error:
        faults.append(error.message)
    surveys = reconcile(run.nodes, folder.records("survey", run.nodes), run.id)
    for node, hint in run.hints.items():
        if hint and surveys.get(node) is NEVER:
            message = f"{NEVER.message}; the engine says: {hint}"
            surveys[node] = replace(NEVER, message=message)
    report = build_report(surveys, plan, _taken(folder, run.id, plan), together)
    return replace(report, faults=tuple(faults))


def _taken(
    folder: RunFolder,
    run: str,
    plan: WrittenPlan,
) -> dict[str, dict[NodeName, NodeState]]:
    """Return what became of the planned nodes at the steps that have begun."""
    digests: dict[NodeName, str] = {}
    for group in plan.groups:
        digests.update(dict.fromkeys(group.nodes, group.sha256))
    taken = {}
    for step in ("install", "verify"):
        if digests and folder.place(step).is_dir():
            records = folder.records(step, digests)
            taken[step] = reconcile(digests, records, run, digests)
    return taken


def build_report(
    surveys: Mapping[NodeName, NodeState],
    plan: WrittenPlan,
    taken: Mapping[str, Mapping[NodeName, NodeState]],
    together: tuple[JobGroup, ...] = (),
) -> FleetReport:
    """Return the steps of every node, each as far as it came."""
    planned = _planned(plan)
    jobs = _jobs(together)
    late = NodeState("stale", message="it joined after the plan was made")
    alike: dict[tuple[tuple[str, NodeState], ...], list[NodeName]] = {}
    for node, survey in surveys.items():
        steps = {"survey": survey}
        state = survey
        if planned and state.state == "ok":
            state = planned.get(node, late)
            steps["plan"] = state
        for step, states in taken.items():
            if node in states and state.state == "ok":
                state = states[node]
                steps[step] = state
        if node in jobs:
            steps["together"] = jobs[node]
        alike.setdefault(tuple(steps.items()), []).append(node)
    rows = [ReportRow(tuple(nodes), dict(steps)) for steps, nodes in alike.items()]
    rows.sort(key=lambda row: (row.worst.state == "ok", -len(row.nodes), row.nodes[0]))
    steps_taken = ["survey", "plan", *taken] if planned else ["survey", *taken]
    return FleetReport(tuple(rows), steps_taken[-1], plan, together)


def _planned(plan: WrittenPlan) -> dict[NodeName, NodeState]:
    """Return the nodes of a plan, those that no lock serves as failed."""
    planned = {}
    for group in plan.groups:
        planned.update(dict.fromkeys(group.nodes, OK))
    for entry in plan.uncovered:
        refused = NodeState(
            "failed",
            entry.code,
            entry.message,
            entry.hint,
            exit_code=8,
        )
        planned.update(dict.fromkeys(entry.nodes, refused))
    return planned


def _jobs(together: Iterable[JobGroup]) -> dict[NodeName, NodeState]:
    """Return the nodes that were proven together, those that spoiled it as failed."""
    jobs = {}
    for group in together:
        jobs.update(dict.fromkeys(group.good, OK))
    for group in together:
        for culprit in group.culprits:
            spoiled = NodeState(
                "failed",
                "collective",
                culprit.why,
                exit_code=5,
            )
            jobs.update(dict.fromkeys(culprit.nodes, spoiled))
    return jobs


def scontrol_lines(
    report: FleetReport,
    name: str,
    *,
    drain: bool,
) -> list[str]:
    """Return the commands that set bad nodes apart: a reservation for maintenance, then a drain.

    Args:
        name: What the reservation is called after.
        drain: Whether the nodes are to be drained too.
    """
    bad = [row for row in report.bad if row.worst.state in {"failed", "lost"}]
    if not bad:
        return []
    commands: list[tuple[str, ...]] = [
        (
            "scontrol",
            "create",
            "reservation",
            f"ReservationName=gpuinstall_{_plain(name)}",
            "StartTime=now",
            "Duration=1-00:00:00",
            "Users=root",
            "Flags=maint,ignore_jobs",
            f"Nodes={_hosts(bad)}",
        )
    ]
    causes: dict[str, list[ReportRow]] = {}
    for row in bad if drain else ():
        causes.setdefault(_plain(f"{row.worst}: {row.worst.message}"), []).append(row)
    for cause, rows in causes.items():
        reason = f"Reason=gpuinstall: {cause}"
        commands.append(("scontrol", "update", f"NodeName={_hosts(rows)}", "State=DRAIN", reason))
    return list(map(joined, commands))


def metrics(report: FleetReport) -> str:
    """Return the report as OpenMetrics text, for a node exporter's folder or a push."""
    return "\n".join([*_metrics(report), "# EOF", ""])


def _metrics(report: FleetReport) -> Iterator[str]:
    yield "# TYPE gpuinstall_nodes gauge"
    yield "# HELP gpuinstall_nodes Nodes of the run by what became of them."
    for state in _STATES:
        yield f'gpuinstall_nodes{{state="{state}"}} {report.counts.get(state, 0)}'
    yield "# TYPE gpuinstall_node_ok gauge"
    yield "# HELP gpuinstall_node_ok 1 where every step of a node ended well."
    for row in report.rows:
        bad_steps = [step for step, state in row.steps.items() if state.state != "ok"]
        step = bad_steps[0] if bad_steps else ""
        labels = f'step="{step}",code="{row.worst.code or ""}"'
        for node in row.nodes:
            yield f'gpuinstall_node_ok{{node="{node}",{labels}}} {0 if bad_steps else 1}'
    yield "# TYPE gpuinstall_lock info"
    yield "# HELP gpuinstall_lock The locks of the plan."
    for group in report.plan.groups:
        labels = f'name="{group.name}",torch="{group.torch}",sha256="{group.sha256}"'
        yield f"gpuinstall_lock_info{{{labels}}} 1"


def _plain(text: str) -> str:
    """Return what Slurm takes as a word of its own."""
    plain = re.sub(
        r"[^\w .,:()+-]",
        " ",
        visible(text),
        flags=re.ASCII,
    )
    return plain[:160].strip()
