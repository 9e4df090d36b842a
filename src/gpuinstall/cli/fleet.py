"""``gpuinstall fleet``: survey, plan, install, verify and report on every node, by Slurm, Ray or this machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli import options
from gpuinstall.cli.fleet_view import StepView, show_plan, show_report
from gpuinstall.cli.outcome import Outcome, error_entry, framed
from gpuinstall.errors import SomeNodesError, UsageError
from gpuinstall.fleet.hostlist import compress, expand
from gpuinstall.fleet.run_folder import RunFolder
from gpuinstall.project import open_project

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.fleet.environment import Mode
    from gpuinstall.fleet.fleet import Fleet
    from gpuinstall.fleet.report import FleetReport
    from gpuinstall.project import Project

_run_dir = click.option(
    "--run-dir",
    required=True,
    envvar="GPUINSTALL_RUN_DIR",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder of the run, which every node sees.",
)
_engine = click.option("--engine", type=click.Choice(["slurm", "ray", "local"]), default="slurm", help="Who launches.")
_nodes = click.option("--nodes", metavar="LIST", help="Such as n[1-64]; default those of the allocation or cluster.")
_resume = click.option("--resume", is_flag=True, help="Go on with the run in that folder: what is done is skipped.")
_mode = click.option("--mode", type=click.Choice(["node", "shared", "image"]), help="Where environments are.")
_root = click.option("--root", metavar="DIR", help="Where environments lie, on every node.")
_deep = click.option("--deep", is_flag=True, help="Check more on every GPU.")
_alone = click.option("--alone", is_flag=True, help="Leave out the all-reduce over the nodes.")


@click.group("fleet", help="The same on every node of a cluster, by the engine that is already there.")
def command() -> None:
    """Work on a fleet."""


@command.command("survey", help="Say what every node is.")
@_engine
@_nodes
@_run_dir
@_resume
@framed("fleet")
def survey(terminal: Terminal, *, engine: str, nodes: str | None, run_dir: Path, resume: bool) -> Outcome:
    """Survey."""
    fleet = _begun(terminal, run_dir, engine, nodes, resume=resume)
    fleet.survey()
    return _reported(fleet.folder)


@command.command("plan", help="Find the fewest locks that serve all nodes, and make them.")
@options.request_options
@_run_dir
@click.option("--fetch", is_flag=True, help="Bring the files of the locks into the folder too: where the network is.")
@options.offline
@framed("fleet")
def plan(terminal: Terminal, request: options.RequestOptions, *, run_dir: Path, fetch: bool, offline: bool) -> Outcome:
    """Plan."""
    fleet = _opened(terminal, run_dir)
    with _project(terminal, request, offline=offline) as project:
        session = project.session
        fleet.plan(project.request, project.catalog, session)
        if fetch:
            fleet.fetch(session)
    document = fleet.folder.document("plan")
    uncovered = ",".join(one["nodes"] for one in document["uncovered"])
    error = _some_nodes(uncovered, run_dir) if uncovered else None
    return Outcome(
        document,
        lambda screen: show_plan(screen, document),
        "error" if error else "success",
        _exit_code(document) if error else 0,
        (error_entry(error),) if error else (),
    )


@command.command("install", help="Bring its lock to every node, as far as that has not been done.")
@_run_dir
@_mode
@_root
@options.offline
@framed("fleet")
def install(terminal: Terminal, *, run_dir: Path, mode: Mode | None, root: str | None, offline: bool) -> Outcome:
    """Install."""
    fleet = _opened(terminal, run_dir)
    with _project(terminal, options.RequestOptions(), offline=offline) as project:
        fleet.fetch(project.session)
    fleet.install(mode, _rooted(root))
    return _reported(fleet.folder)


@command.command("verify", help="Run kernels on every GPU of every node, and over all together.")
@_run_dir
@_deep
@_alone
@framed("fleet")
def verify(terminal: Terminal, *, run_dir: Path, deep: bool, alone: bool) -> Outcome:
    """Verify."""
    fleet = _opened(terminal, run_dir)
    fleet.verify(["--deep"] if deep else [], alone=alone)
    return _reported(fleet.folder)


@command.command("report", help="Say what became of every node, from the records alone.")
@_run_dir
@click.option("--hosts", metavar="STATE", help="Print the nodes in a state (ok, failed, lost, …) as a list for srun.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write one page that holds everything.")
@click.option("--openmetrics", type=click.Path(path_type=Path), metavar="FILE", help="Write metrics.")
@click.option("--scontrol", is_flag=True, help="Print the lines that set bad nodes apart: a reservation first.")
@click.option("--yes", is_flag=True, help="With --scontrol: print those that drain them too.")
@framed("fleet")
def report(
    _terminal: Terminal,
    *,
    run_dir: Path,
    hosts: str | None,
    html: Path | None,
    openmetrics: Path | None,
    scontrol: bool,
    yes: bool,
) -> Outcome:
    """Report."""
    from gpuinstall.files import write_text
    from gpuinstall.fleet.page import page
    from gpuinstall.fleet.report import metrics, read_report, scontrol_lines

    found = read_report(RunFolder(run_dir))
    if html:
        write_text(html, page(found, run_dir.name))
    if openmetrics:
        write_text(openmetrics, metrics(found))
    if hosts is not None:
        named = compress(found.hosts(hosts.replace("-", " ")))
        return Outcome({"hosts": named}, lambda screen: screen.line(named))
    if scontrol:
        lines = scontrol_lines(found, run_dir.name, drain=yes)
        return Outcome({"lines": lines}, lambda screen: screen.line("\n".join(lines)))
    return _outcome(found, run_dir)


@command.command("up", help="Survey, plan, install, verify, report.")
@options.request_options
@_engine
@_nodes
@_run_dir
@_resume
@_mode
@_root
@_deep
@_alone
@options.offline
@framed("fleet")
def up(
    terminal: Terminal,
    request: options.RequestOptions,
    *,
    engine: str,
    nodes: str | None,
    run_dir: Path,
    resume: bool,
    mode: Mode | None,
    root: str | None,
    deep: bool,
    alone: bool,
    offline: bool,
) -> Outcome:
    """All five."""
    fleet = _begun(terminal, run_dir, engine, nodes, resume=resume)
    fleet.survey()
    with _project(terminal, request, offline=offline) as project:
        session = project.session
        fleet.plan(project.request, project.catalog, session)
        show_plan(replace(terminal, out=terminal.err), fleet.folder.document("plan"))
        fleet.fetch(session)
    fleet.install(mode, _rooted(root))
    fleet.verify(["--deep"] if deep else [], alone=alone)
    return _reported(fleet.folder)


def _begun(terminal: Terminal, run_dir: Path, engine: str, nodes: str | None, *, resume: bool) -> Fleet:
    from gpuinstall.fleet.fleet import begin

    asked = expand(nodes) if nodes else None
    if resume:
        return _opened(terminal, run_dir)
    return begin(RunFolder(run_dir), engine, asked, StepView(terminal), terminal)


def _opened(terminal: Terminal, run_dir: Path) -> Fleet:
    from gpuinstall.fleet.fleet import Fleet

    folder = RunFolder(run_dir)
    return Fleet(folder, folder.read(), StepView(terminal))


def _project(terminal: Terminal, request: options.RequestOptions, *, offline: bool) -> AbstractContextManager[Project]:
    settings = options.read_settings(request, options.MachineOptions(), terminal)
    return open_project(Path.cwd(), replace(settings, offline=offline), terminal)


def _reported(folder: RunFolder) -> Outcome:
    from gpuinstall.fleet.report import read_report

    return _outcome(read_report(folder), folder.path)


def _outcome(found: FleetReport, run_dir: Path) -> Outcome:
    error = _some_nodes(compress(row.node for row in found.bad), run_dir) if found.bad else None
    return Outcome(
        found.to_dict(),
        lambda screen: show_report(screen, found),
        "error" if error else "success",
        found.exit_code,
        (error_entry(error),) if error else (),
    )


def _some_nodes(nodes: str, run_dir: Path) -> SomeNodesError:
    hint = f"gpuinstall fleet up --resume --run-dir {run_dir}"
    return SomeNodesError("some-nodes", f"not proven: {nodes}", hint=hint)


def _exit_code(document: dict[str, Any]) -> int:
    return SomeNodesError.exit_code if document["locks"] else 8


def _rooted(root: str | None) -> list[str]:
    if root is not None and not Path(root).is_absolute():
        raise UsageError("usage", "--root has to be an absolute path: it is meant on every node")
    return ["--root", root] if root else []
