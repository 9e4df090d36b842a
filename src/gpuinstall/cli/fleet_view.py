"""A fleet as people see it: how a step goes on, the plan, the report as a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.fleet.reconcile import NodeState, counts
from gpuinstall.fleet.report import STEPS, FleetReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.live import Live

    from gpuinstall.cli.terminal import Terminal

PLAIN_S = 10.0
MOST_ROWS = 20
LONGEST = 300
_STYLES = {"ok": "green", "failed": "red", "lost": "red", "never started": "yellow", "stale": "yellow"}


class StepView:
    """How a step goes on: a live table on a terminal; in a log a line when something has changed, and the last one."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._progress, self._when = "", 0.0
        self._last: tuple[str, str] | None = None

    def show(self, step: str, states: Mapping[NodeName, NodeState]) -> None:
        """Show what is known now."""
        terminal, total = self._terminal, len(states)
        done = sum(state.state not in {"running", "waiting"} for state in states.values())
        progress = f"{counts(states.values())} of {total}"
        self._last = (step, progress)
        if terminal.quiet:
            return
        if terminal.bars and terminal.err.isatty():
            self._draw(step, states, done)
        elif progress != self._progress and time.monotonic() - self._when > PLAIN_S and done < total:
            terminal.wait(f"{step}: {progress}")
            self._progress, self._when = progress, time.monotonic()

    def end(self) -> None:
        """Take the table away, and leave one line."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._last is not None:
            step, progress = self._last
            self._terminal.step(step.partition("-")[0].capitalize(), progress)
            self._last = None

    def say(self, text: str) -> None:
        """Say at once who spoiled a round: the others may take long."""
        self._terminal.step("Together", _cut_list(text, LONGEST))

    def _draw(self, step: str, states: Mapping[NodeName, NodeState], done: int) -> None:
        from rich.live import Live
        from rich.table import Table

        groups: dict[str, list[str]] = {}
        for node, state in states.items():
            groups.setdefault(str(state), []).append(node)
        table = Table(f"{step} {done}/{len(states)}", "nodes", box=None, pad_edge=False)
        for name, nodes in list(groups.items())[:MOST_ROWS]:
            table.add_row(f"{len(nodes)} {name}", _cut_list(compress(nodes)))
        if self._live is None:
            self._live = Live(console=self._terminal.console(self._terminal.err), transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(table, refresh=True)


def show_fleet_plan(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """Print the locks with their classes, the nodes without one, and what newer drivers would give."""
    for lock in document["locks"]:
        terminal.field("Lock", f"{lock['name']} · Python {lock['python']} for {lock['count']}: {lock['nodes']}")
        for kind in document["classes"]:
            if kind["build"] and kind["build"].partition("+")[2] == lock["backend"]:
                terminal.line(f"{'':11}   {kind['count']:>5} × {kind['label']}")
    for entry in document["uncovered"]:
        terminal.field("No lock", f"{entry['nodes']}: {entry['message']}")
        terminal.rows([("do", entry["hint"])])
    if document["apart"]:
        terminal.warn(document["apart"])
    for update in document["updates"]:
        terminal.field("Update", f"{update['message']}: {update['nodes']}")


def show_report(terminal: Terminal, report: FleetReport) -> None:
    """Print nodes that fared alike as one row, those that need somebody first."""
    from rich.table import Table
    from rich.text import Text

    table = Table("nodes", "", *STEPS, box=None, pad_edge=False)
    for row in report.rows[:MOST_ROWS]:
        cells = [row.steps.get(step) for step in STEPS]
        texts = [Text(str(cell), style=_STYLES.get(cell.state, "")) if cell else Text("") for cell in cells]
        table.add_row(_cut_list(compress(row.nodes)), str(len(row.nodes)), *texts)
    terminal.console(terminal.out).print(table)
    error = terminal.style("error:", "red")
    for row in report.bad:
        terminal.line(f"{error} {_cut_list(compress(row.nodes))}: {row.worst.message}")
        terminal.rows([("do", row.worst.hint)])
    for fault in report.faults:
        terminal.line(f"{error} {fault}")
    well = {node for row in report.rows if row.worst.state == "ok" for node in row.nodes}
    for group in report.plan.groups:
        count = sum(node in well for node in group.nodes)
        text = f"{group.name} · {group.lock} {group.sha256[:12]} on {count} of {len(group.nodes)}"
        terminal.field("Lock", text)
    for job in report.together:
        speed = f"{job.gb_s} GB/s" if job.gb_s is not None else "no result"
        link = f" (the slowest link carries {job.link_gb_s})" if job.link_gb_s and job.gb_s else ""
        bad = "".join(f"; {culprit}" for culprit in job.culprits)
        text = f"{_cut_list(compress(job.good))}: all-reduce by {job.backend}, {speed}{link}{bad}"
        terminal.field("Together", text)
    terminal.field("Nodes", report.summary)


def _cut_list(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
