"""``gpuinstall fleet``: survey, plan, install, verify and report on every node, by Slurm, Ray or this machine.

Below the commands, a fleet as people see it: how a step goes on, the plan, the report as a table.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, error_entry, framed
from gpuinstall.errors import SomeNodesError, UsageError
from gpuinstall.fleet.hostlist import NodeName, compress, expand
from gpuinstall.fleet.reconcile import NodeState, counts
from gpuinstall.fleet.report import STEPS, FleetReport, metrics, read_report, scontrol_lines
from gpuinstall.fleet.run_folder import RunFolder
from gpuinstall.project import Project, open_project
from gpuinstall.shell import quoted
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from rich.live import Live

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.fleet.environment import Mode
    from gpuinstall.fleet.fleet import Fleet

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
_PLACE = click.Path(path_type=Path)
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
        type=_PLACE,
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


def _taking(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    decorators = tuple(map(_OPTIONS.__getitem__, names))
    return partial(
        options.bundled, name="run", kind=FleetOptions, fields=names, decorators=decorators
    )


@click.group("fleet", help="Install and verify on every node of a cluster, through Slurm or Ray.")
def command() -> None:
    """Work on a fleet."""


@command.command("survey", help="Show what each node is.")
@_taking("engine", "nodes", "run_dir", "resume")
@framed("fleet")
def _survey(terminal: Terminal, run: FleetOptions) -> Outcome:
    fleet = _begun(terminal, run)
    fleet.survey()
    return _reported(terminal, fleet.folder)


@command.command("plan", help="Write the fewest locks that serve all nodes.")
@options.request_options
@click.option("--fetch", is_flag=True, help="Also download the files, for nodes without a network.")
@_taking("run_dir")
@framed("fleet")
def _plan(
    terminal: Terminal, request: options.RequestOptions, run: FleetOptions, *, fetch: bool
) -> Outcome:
    fleet = _opened(terminal, run)
    with _project(terminal, request) as project:
        session = project.session
        document = fleet.plan(project.request, project.catalog, session)
        if fetch:
            fleet.fetch(session)
    uncovered = ",".join(entry["nodes"] for entry in document["uncovered"])
    exit_code = (SomeNodesError.exit_code if document["locks"] else 8) if uncovered else 0
    errors = _errors(f"not planned: {uncovered}" if uncovered else None, run.run_dir)
    return Outcome(
        document,
        lambda screen: show_fleet_plan(screen, document),
        "error" if errors else "success",
        exit_code,
        errors,
    )


@command.command("install", help="Install each node's lock where that is not done yet.")
@options.fetching
@_taking("run_dir", "mode", "root")
@framed("fleet")
def _install(terminal: Terminal, run: FleetOptions, *, sourcing: Sourcing) -> Outcome:
    fleet = _opened(terminal, run)
    with _project(terminal, options.RequestOptions(sourcing=sourcing)) as project:
        fleet.fetch(project.session)
    fleet.install(run.mode)
    return _reported(terminal, fleet.folder)


@command.command("verify", help="Run kernels on every GPU of every node, then across nodes.")
@_taking("run_dir", "root", "deep", "alone")
@framed("fleet")
def _verify(terminal: Terminal, run: FleetOptions) -> Outcome:
    fleet = _opened(terminal, run)
    fleet.verify(["--deep"] if run.deep else [], alone=run.alone)
    return _reported(terminal, fleet.folder)


@command.command("report", help="Show the result of every node, from the records.")
@_OPTIONS["run_dir"]
@click.option(
    "--hosts",
    metavar="STATE",
    help="Print the nodes in a state (ok, failed, lost, …) as a list for srun.",
)
@click.option("--openmetrics", type=_PLACE, metavar="FILE", help="Write metrics for Prometheus.")
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

    fleet = read_report(RunFolder.at(run_dir, terminal))
    if openmetrics:
        write_text(openmetrics, metrics(fleet))
    if hosts is not None:
        nodes = fleet.hosts(hosts.replace("-", " "))
        return Outcome({"hosts": nodes}, lambda screen: screen.line(nodes))
    if scontrol:
        lines = scontrol_lines(fleet, run_dir.name, drain=yes)
        return Outcome({"lines": lines}, lambda screen: screen.block("\n".join(lines)))
    return _outcome(terminal, fleet, run_dir)


@command.command("up", help="Survey, plan, install, verify and report.")
@options.request_options
@_taking("engine", "nodes", "run_dir", "resume", "mode", "root", "deep", "alone")
@framed("fleet")
def _up(terminal: Terminal, request: options.RequestOptions, run: FleetOptions) -> Outcome:
    fleet = _begun(terminal, run)
    fleet.survey()
    with _project(terminal, request) as project:
        session = project.session
        show_fleet_plan(
            replace(terminal, out=terminal.err),
            fleet.plan(project.request, project.catalog, session),
        )
        fleet.fetch(session)
    fleet.install(run.mode)
    fleet.verify(["--deep"] if run.deep else [], alone=run.alone)
    return _reported(terminal, fleet.folder)


def _begun(terminal: Terminal, run: FleetOptions) -> Fleet:
    from gpuinstall.fleet.fleet import begin

    wanted = expand(run.nodes) if run.nodes else None
    if not run.resume:
        begin(RunFolder.at(run.run_dir, terminal), run.engine, wanted, terminal)
    return _opened(terminal, run)


def _opened(terminal: Terminal, run: FleetOptions) -> Fleet:
    from gpuinstall.fleet.fleet import Fleet

    if run.root is not None and not Path(run.root).is_absolute():
        raise UsageError("usage", "--root must be an absolute path, as it is used on every node")
    folder = RunFolder.at(run.run_dir, terminal)
    return Fleet(
        folder, folder.read(), StepView(terminal), ("--root", run.root) if run.root else ()
    )


def _project(
    terminal: Terminal, request: options.RequestOptions
) -> AbstractContextManager[Project]:
    settings = options.read_settings(request, options.MachineOptions(), terminal)
    return open_project(Path.cwd(), settings, terminal)


def _reported(terminal: Terminal, folder: RunFolder) -> Outcome:
    return _outcome(terminal, read_report(folder), folder.path)


def _outcome(terminal: Terminal, fleet: FleetReport, run_dir: Path) -> Outcome:
    errors = _errors(fleet.error, run_dir)
    return Outcome(
        fleet.to_dict() if terminal.as_json else {},  # which takes longer than all the rest
        lambda screen: show_report(screen, fleet),
        "error" if errors else "success",
        fleet.exit_code,
        errors,
    )


def _errors(message: str | None, run_dir: Path) -> tuple[dict[str, Any], ...]:
    hint = f"gpuinstall fleet up --resume --run-dir {quoted(run_dir)}"
    return (error_entry(SomeNodesError("some-nodes", message, hint=hint)),) if message else ()


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
        elif (
            progress != self._progress and time.monotonic() - self._when > PLAIN_S and done < total
        ):
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
            self._live = Live(
                console=self._terminal.console(self._terminal.err),
                transient=True,
                auto_refresh=False,
            )
            self._live.start()
        self._live.update(table, refresh=True)


def show_fleet_plan(terminal: Terminal, document: Mapping[str, Any]) -> None:
    """Print the locks with their classes, and the nodes without one."""
    for lock in document["locks"]:
        terminal.field(
            "Lock", f"{lock['name']} · Python {lock['python']} for {lock['count']}: {lock['nodes']}"
        )
        for kind in document["classes"]:
            if kind["build"] and kind["build"].partition("+")[2] == lock["backend"]:
                terminal.line(f"{'':11}   {kind['count']:>5} × {kind['label']}")
    for entry in document["uncovered"]:
        terminal.field("No lock", f"{entry['nodes']}: {entry['message']}")
        terminal.rows([("do", entry["hint"])])
    if document["apart"]:
        terminal.warn(document["apart"])


def show_report(terminal: Terminal, report: FleetReport) -> None:
    """Print nodes that fared alike as one row, those that need somebody first."""
    from rich.table import Table
    from rich.text import Text

    table = Table("nodes", "", *STEPS, box=None, pad_edge=False)
    for row in report.rows[:MOST_ROWS]:
        cells = [row.steps.get(step) for step in STEPS]
        texts = [
            Text(str(cell), style=_STYLES.get(cell.state, "")) if cell else Text("")
            for cell in cells
        ]
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
