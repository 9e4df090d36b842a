"""A fleet as people see it: how a step goes on, the plan, the report as a table."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.hostlist import compress
from gpuinstall.fleet.reconcile import counts
from gpuinstall.fleet.report import STEPS
from gpuinstall.fleet.search import Culprit, described

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.live import Live

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.fleet.reconcile import NodeState
    from gpuinstall.fleet.report import FleetReport

PLAIN_S = 10.0
MOST_ROWS = 20
LONGEST = 300
_STYLES = {"ok": "green", "failed": "red", "lost": "red", "never started": "yellow", "stale": "yellow"}


class StepView:
    """How a step goes on: a live table on a terminal; in a log a line when something has changed, and the last one."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._said, self._when = "", 0.0
        self._last: tuple[str, str] | None = None

    def show(self, step: str, states: Mapping[str, NodeState]) -> None:
        """Show what is known now."""
        terminal, total = self._terminal, len(states)
        done = sum(state.state not in {"running", "waiting"} for state in states.values())
        said = f"{counts(states.values())} of {total}"
        self._last = (step, said)
        if terminal.quiet:
            return
        if terminal.bars and terminal.err.isatty():
            self._draw(step, states, done)
        elif said != self._said and time.monotonic() - self._when > PLAIN_S and done < total:
            terminal.wait(f"{step}: {said}")
            self._said, self._when = said, time.monotonic()

    def end(self) -> None:
        """Take the table away, and leave one line."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._last is not None:
            step, said = self._last
            self._terminal.step(step.partition("-")[0].capitalize(), said)
            self._last = None

    def said(self, text: str) -> None:
        """Say at once who spoiled a round: the others may take long."""
        self._terminal.step("Together", shortened(text, LONGEST))

    def _draw(self, step: str, states: Mapping[str, NodeState], done: int) -> None:
        from rich.live import Live
        from rich.table import Table

        groups: dict[str, list[str]] = {}
        for node, state in states.items():
            groups.setdefault(str(state), []).append(node)
        table = Table(f"{step} {done}/{len(states)}", "nodes", box=None, pad_edge=False)
        for name, nodes in list(groups.items())[:MOST_ROWS]:
            table.add_row(f"{len(nodes)} {name}", shortened(compress(nodes)))
        if self._live is None:
            self._live = Live(console=self._terminal.console(self._terminal.err), transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(table, refresh=True)


def show_plan(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """Print the locks with their classes, the nodes without one, and what newer drivers would give."""
    for lock in document["locks"]:
        terminal.field("Lock", f"{lock['name']} · Python {lock['python']} for {lock['count']}: {lock['nodes']}")
        for one in document["classes"]:
            if one["build"] and one["build"].partition("+")[2] == lock["backend"]:
                terminal.line(f"{'':11}   {one['count']:>5} × {one['label']}")
    for one in document["uncovered"]:
        terminal.field("No lock", f"{one['nodes']}: {one['message']}")
        terminal.rows([("do", one["hint"])])
    if document["apart"]:
        terminal.warn(document["apart"])
    for update in document["updates"]:
        terminal.field("Update", f"{update['message']}: {update['nodes']}")


def show_report(terminal: Terminal, report: FleetReport) -> None:
    """Print nodes that fared alike as one row, those that need somebody first."""
    from rich.table import Table
    from rich.text import Text

    table = Table("nodes", "", *STEPS, box=None, pad_edge=False)
    for row, nodes in report.alike()[:MOST_ROWS]:
        cells = [row.steps.get(step) for step in STEPS]
        texts = [Text(str(cell), style=_STYLES.get(cell.state, "")) if cell else Text("") for cell in cells]
        table.add_row(shortened(compress(nodes)), str(len(nodes)), *texts)
    terminal.console(terminal.out).print(table)
    for row, nodes in report.alike():
        if row.worst.state != "ok":
            terminal.line(f"{terminal.style('error:', 'red')} {shortened(compress(nodes))}: {row.worst.message}")
            terminal.rows([("do", row.worst.hint)])
    for group in report.groups:
        installed = sum(row.node in group.nodes and row.worst.state == "ok" for row in report.rows)
        digest = (group.sha256 or "")[:12]
        terminal.field("Lock", f"{group.name} · {group.lock} {digest}, the same on {installed} of {len(group.nodes)}")
    for one in report.together.get("groups", ()):
        terminal.field("Together", _together(one))
    found = Counter(row.worst.state for row in report.rows)
    terminal.field("Nodes", f"{found['ok']} of {len(report.rows)} are proven")


def shortened(text: str, most: int = 60) -> str:
    """Cut a long list of nodes; the whole one is in the document."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _together(one: Mapping[str, Any]) -> str:
    speed = f"{one['gb_s']} GB/s" if one["gb_s"] is not None else "no result"
    link = f" (the slowest link carries {one['link_gb_s']})" if one["link_gb_s"] and one["gb_s"] else ""
    bad = described([Culprit(tuple(each["nodes"]), each["why"]) for each in one["culprits"]])
    return f"{shortened(one['good'])}: all-reduce by {one['backend']}, {speed}{link}" + (f"; {bad}" if bad else "")
