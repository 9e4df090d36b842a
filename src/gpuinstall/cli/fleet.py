"""``gpuinstall fleet``: survey, plan, install, verify and report on every node, by Slurm, Ray or this machine.

Below the commands, a fleet as people see it: how a step goes on, the plan, the report as a table.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, error_entry, framed
from gpuinstall.errors import MachineError, SomeNodesError, UsageError
from gpuinstall.fleet.hostlist import NodeName, compress, expand
from gpuinstall.fleet.reconcile import NodeState, counts
from gpuinstall.fleet.report import STEPS, FleetReport, metrics, read_report, scontrol_lines
from gpuinstall.fleet.run_folder import RunFolder
from gpuinstall.shell import quoted
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.live import Live

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.fleet.environment import Mode
    from gpuinstall.fleet.fleet import Fleet
    from gpuinstall.fleet.search import JobGroup

PLAIN_S = 10.0
MOST_ROWS = 20
LONGEST = 300
_STYLES = {
    "ok": "green",
    "failed": "red",
    "lost": "red",
    "never started": "yellow",
    "stale": "yellow",
}
_OPTIONS = {
    "engine": click.option(
        "--engine",
        type=click.Choice(["slurm", "ray", "local"]),
        default="slurm",
        help="What starts them.",
    ),
    "nodes": click.option(
        "--nodes", metavar="LIST", help="Such as n[1-64] (default: the allocation or cluster)."
    ),
    "run_dir": click.option(
        "--run-dir",
        required=True,
        envvar="GPUINSTALL_RUN_DIR",
        metavar="DIR",
        type=options.PATH,
        help="The folder of the run, shared by all nodes.",
    ),
    "resume": click.option(
        "--resume", is_flag=True, help="Continue the run in that folder; skip what is done."
    ),
    "mode": click.option(
        "--mode", type=click.Choice(["node", "shared"]), help="Where environments go."
    ),
    "root": click.option(
        "--root", metavar="DIR", help="The folder of environments, the same on every node."
    ),
    "deep": click.option("--deep", is_flag=True, help="Run more checks on every GPU."),
    "alone": click.option("--alone", is_flag=True, help="Skip the all-reduce across nodes."),
}


class FleetOptions(NamedTuple):
    """What a command is told of a run, as far as it takes it."""

    run_dir: Path
    engine: str = "slurm"
    nodes: str | None = None
    resume: bool = False
    mode: Mode | None = None
    root: str | None = None
    deep: bool = False
    alone: bool = False


def _run_options(*names: str) -> options.Decorator:
    return options.bundled("run", FleetOptions, {name: _OPTIONS[name] for name in names})


@click.group("fleet", help="Install and verify on every node of a cluster, through Slurm or Ray.")
def command() -> None:
    """Work on a fleet."""


@command.command("survey", help="Show what each node is.")
@_run_options("engine", "nodes", "run_dir", "resume")
@framed("fleet")
def _survey(terminal: Terminal, run: FleetOptions) -> Outcome:
    fleet = _begin(terminal, run)
    fleet.survey()
    return _report_of(terminal, fleet.folder)


@command.command("plan", help="Write the fewest locks that serve all nodes.")
@options.request_options
@click.option("--fetch", is_flag=True, help="Also download the files, for nodes without a network.")
@_run_options("run_dir")
@framed("fleet")
def _plan(
    terminal: Terminal,
    request: options.RequestOptions,
    run: FleetOptions,
    *,
    fetch: bool,
) -> Outcome:
    fleet = _open(terminal, run)
    with options.open_requested(request, options.MachineOptions(), terminal) as project:
        document = fleet.plan(project.request, project.catalog, project.session)
        if fetch:
            fleet.fetch(project.session)
    uncovered = ",".join(entry["nodes"] for entry in document["uncovered"])
    exit_code = 0
    if uncovered:
        error = SomeNodesError if document["locks"] else MachineError
        exit_code = error.exit_code
    return Outcome(
        document,
        lambda screen: show_fleet_plan(screen, document),
        exit_code=exit_code,
        errors=_errors(f"not planned: {uncovered}" if uncovered else None, run.run_dir),
    )


@command.command("install", help="Install each node's lock where that is not done yet.")
@options.fetching
@_run_options("run_dir", "mode", "root")
@framed("fleet")
def _install(terminal: Terminal, run: FleetOptions, *, sourcing: Sourcing) -> Outcome:
    fleet = _open(terminal, run)
    with options.open_folder(sourcing, terminal) as project:
        fleet.fetch(project.session)
    fleet.install(run.mode)
    return _report_of(terminal, fleet.folder)


@command.command("verify", help="Run kernels on every GPU of every node, then across nodes.")
@_run_options("run_dir", "root", "deep", "alone")
@framed("fleet")
def _verify(terminal: Terminal, run: FleetOptions) -> Outcome:
    fleet = _open(terminal, run)
    fleet.verify(["--deep"] if run.deep else [], alone=run.alone)
    return _report_of(terminal, fleet.folder)


@command.command("report", help="Show the result of every node, from the records.")
@_OPTIONS["run_dir"]
@click.option(
    "--hosts",
    metavar="STATE",
    help="Print the nodes in a state (ok, failed, lost, …) as a list for srun.",
)
@click.option(
    "--openmetrics",
    type=options.PATH,
    metavar="FILE",
    help="Write metrics for Prometheus.",
)
@click.option(
    "--scontrol", is_flag=True, help="Print the scontrol commands that reserve the bad nodes."
)
@click.option("--yes", is_flag=True, help="With --scontrol: also those that drain them.")
@framed("fleet")
def _report(
    terminal: Terminal,
    *,
    run_dir: Path,
    hosts: str | None,
    openmetrics: Path | None,
    scontrol: bool,
    yes: bool,
) -> Outcome:
    from gpuinstall.files import write_text

    folder = RunFolder.at(run_dir, terminal)
    report = read_report(folder)
    if openmetrics:
        write_text(openmetrics, metrics(report))
    if hosts is not None:
        nodes = report.hosts(hosts.replace("-", " "))
        return Outcome({"hosts": nodes}, lambda screen: screen.line(nodes))
    if scontrol:
        lines = scontrol_lines(report, run_dir.name, drain=yes)
        return Outcome({"lines": lines}, lambda screen: screen.block("\n".join(lines)))
    return _outcome_of(terminal, report, run_dir)


@command.command("up", help="Survey, plan, install, verify and report.")
@options.request_options
@_run_options("engine", "nodes", "run_dir", "resume", "mode", "root", "deep", "alone")
@framed("fleet")
def _up(terminal: Terminal, request: options.RequestOptions, run: FleetOptions) -> Outcome:
    fleet = _begin(terminal, run)
    fleet.survey()
    with options.open_requested(request, options.MachineOptions(), terminal) as project:
        document = fleet.plan(project.request, project.catalog, project.session)
        # The report alone goes to stdout.
        show_fleet_plan(replace(terminal, out=terminal.err), document)
        fleet.fetch(project.session)
    fleet.install(run.mode)
    fleet.verify(["--deep"] if run.deep else [], alone=run.alone)
    return _report_of(terminal, fleet.folder)


def _begin(terminal: Terminal, run: FleetOptions) -> Fleet:
    from gpuinstall.fleet.fleet import begin

    nodes = expand(run.nodes) if run.nodes else None
    if not run.resume:
        begin(RunFolder.at(run.run_dir, terminal), run.engine, nodes, terminal)
    return _open(terminal, run)


def _open(terminal: Terminal, run: FleetOptions) -> Fleet:
    from gpuinstall.fleet.fleet import Fleet

    root: tuple[str, ...] = ()
    if run.root is not None:
        if not Path(run.root).is_absolute():
            raise UsageError(
                "usage",
                "--root must be an absolute path, as it is used on every node",
            )
        root = ("--root", run.root)
    folder = RunFolder.at(run.run_dir, terminal)
    return Fleet(folder, folder.read(), StepView(terminal), root)


def _report_of(terminal: Terminal, folder: RunFolder) -> Outcome:
    return _outcome_of(terminal, read_report(folder), folder.path)


def _outcome_of(terminal: Terminal, report: FleetReport, run_dir: Path) -> Outcome:
    return Outcome(
        # The document takes longer than all the rest.
        report.to_dict() if terminal.as_json else {},
        lambda screen: show_report(screen, report),
        exit_code=report.exit_code,
        errors=_errors(report.error, run_dir),
    )


def _errors(message: str | None, run_dir: Path) -> tuple[dict[str, Any], ...]:
    if not message:
        return ()
    hint = f"gpuinstall fleet up --resume --run-dir {quoted(run_dir)}"
    return (error_entry(SomeNodesError("some-nodes", message, hint=hint)),)


class StepView:
    """How a step goes on: a live table on a terminal; in a log a line now and then if something has changed."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: Live | None = None
        self._written = ""
        """The last line in a log."""
        self._written_at = 0.0
        self._last: tuple[str, str] | None = None
        """The step and its progress."""

    def show(self, step: str, states: Mapping[NodeName, NodeState]) -> None:
        """Show what is known now."""
        terminal = self._terminal
        running = sum(state.state in {"running", "waiting"} for state in states.values())
        progress = f"{counts(states.values())} of {len(states)}"
        self._last = (step, progress)
        if terminal.quiet:
            return
        if terminal.err.isatty():
            self._draw(f"{step} {len(states) - running}/{len(states)}", states)
            return
        now = time.monotonic()
        if running and progress != self._written and now - self._written_at > PLAIN_S:
            terminal.wait(f"{step}: {progress}")
            self._written, self._written_at = progress, now

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
        """Write at once who spoiled a round: the others may take long."""
        self._terminal.step("Together", _cut_list(text, LONGEST))

    def _draw(self, title: str, states: Mapping[NodeName, NodeState]) -> None:
        from rich.live import Live
        from rich.table import Table

        groups: dict[str, list[str]] = {}
        for node, state in states.items():
            groups.setdefault(str(state), []).append(node)
        table = Table(title, "nodes", box=None, pad_edge=False)
        for name, nodes in list(groups.items())[:MOST_ROWS]:
            table.add_row(f"{len(nodes)} {name}", _cut_list(compress(nodes)))
        if self._live is None:
            self._live = Live(
                console=self._terminal.console(self._terminal.err),
                transient=True,
                auto_refresh=False,
            )
            self._live.start()
        self._live.update(table, refresh=True)


def show_fleet_plan(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """Write the locks with their classes, and the nodes without one."""
    for lock in document["locks"]:
        text = f"{lock['name']} · Python {lock['python']} for {lock['count']}: {lock['nodes']}"
        terminal.field("Lock", text)
        for kind in document["classes"]:
            _, _, backend = (kind["build"] or "").partition("+")
            if kind["build"] and backend == lock["backend"]:
                terminal.line(f"{'':11}   {kind['count']:>5} × {kind['label']}")
    for entry in document["uncovered"]:
        terminal.field("No lock", f"{entry['nodes']}: {entry['message']}")
        terminal.rows([("do", entry["hint"])])
    if document["apart"]:
        terminal.warn(document["apart"])


def show_report(terminal: Terminal, report: FleetReport) -> None:
    """Write nodes that fared alike as one row, those that need repair first."""
    _show_nodes(terminal, report)
    error = terminal.style("error:", "red")
    for row in report.bad:
        terminal.line(f"{error} {_cut_list(compress(row.nodes))}: {row.worst.message}")
        terminal.rows([("do", row.worst.hint)])
    for fault in report.faults:
        terminal.line(f"{error} {fault}")
    proven_nodes: set[NodeName] = set()
    for row in report.rows:
        if row.worst.state == "ok":
            proven_nodes.update(row.nodes)
    for group in report.plan.groups:
        count = sum(node in proven_nodes for node in group.nodes)
        text = f"{group.name} · {group.lock} {group.sha256[:12]} on {count} of {len(group.nodes)}"
        terminal.field("Lock", text)
    for job in report.together:
        terminal.field("Together", _together_line(job))
    terminal.field("Nodes", report.summary)


def _show_nodes(terminal: Terminal, report: FleetReport) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("nodes", "", *STEPS, box=None, pad_edge=False)
    for row in report.rows[:MOST_ROWS]:
        texts = []
        for step in STEPS:
            state = row.steps.get(step)
            if state:
                texts.append(Text(str(state), style=_STYLES.get(state.state, "")))
            else:
                texts.append(Text(""))
        table.add_row(_cut_list(compress(row.nodes)), str(len(row.nodes)), *texts)
    terminal.console(terminal.out).print(table)


def _together_line(job: JobGroup) -> str:
    text = f"{_cut_list(compress(job.good))}: all-reduce by {job.backend}, "
    text += "no result" if job.gb_s is None else f"{job.gb_s} GB/s"
    if job.link_gb_s and job.gb_s:
        text += f" (the slowest link carries {job.link_gb_s})"
    return "; ".join([text, *map(str, job.culprits)])


def _cut_list(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
