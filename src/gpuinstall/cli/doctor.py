"""``gpuinstall doctor``: what is wrong with machine, environment and project, what to do first, and doing it."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gpuinstall.base.advice import NOTE, OURS, Advice
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import write_text
from gpuinstall.base.units import number_of
from gpuinstall.base.version import __version__
from gpuinstall.cli import options
from gpuinstall.cli.active import name_active
from gpuinstall.cli.outcome import Outcome, finding_entries, framed
from gpuinstall.environments.application import find_application

if TYPE_CHECKING:
    from gpuinstall.base.finding import Finding
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.diagnose.examination import Examination
    from gpuinstall.diagnose.repair import RepairResult
    from gpuinstall.sources import Sources


@click.command("doctor")
@options.venv
@click.option("--report", metavar="FILE", help="Write a Markdown report without secrets or names.")
@click.option(
    "--fix",
    "fixing",
    is_flag=True,
    help="Show the repairs, ask, make them and check again.",
)
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@framed("doctor")
def command(
    terminal: Terminal,
    *,
    venv: Path,
    report: str | None,
    fixing: bool,
    yes: bool,
) -> Outcome:
    """Examine machine, driver, environment and project."""
    from gpuinstall.base.request import Request
    from gpuinstall.diagnose.examination import examine
    from gpuinstall.diagnose.report import render_report
    from gpuinstall.project import Settings, open_project
    from gpuinstall.sources import Sources

    folder = venv.absolute()
    application = find_application(folder.parent)
    if application and not folder.exists():
        folder = application.environment
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            "environment-missing", f"{venv} is not a folder", hint="gpuinstall doctor --venv DIR"
        )
    name_active("doctor", folder, terminal)
    source = click.get_current_context().get_parameter_source("venv")
    # Who has activated an environment starts its Python with every command.
    is_active = os.environ.get("VIRTUAL_ENV") == str(folder)
    is_named = source is not ParameterSource.DEFAULT or is_active
    backend = os.environ.get("GPUINSTALL_BACKEND") or None
    settings = Settings(request=Request((), backend=backend), venv=folder)
    # Settings that are malformed are for the commands that install to refuse.
    with open_project(Path.cwd(), settings, terminal) as project:
        machine = project.machine
        try:
            sources = project.sources
        except UsageError:
            sources = Sources()
        try:
            request = project.environment_request(project.read_folder_request(quiet=True))
        except (UsageError, LockError):
            request = None
        examine_again = functools.partial(
            examine,
            Path.cwd(),
            folder,
            machine,
            request=request,
            sources=sources,
            reporter=terminal,
            named=is_named,
        )
        examination = examine_again()
        repairs = _repair(terminal, examination, folder, sources, yes=yes) if fixing else ()
        if repairs:
            examination = examine_again()
    if report:
        write_text(Path(report), render_report(examination, __version__))
    data = examination.to_dict()
    if fixing:
        data["repairs"] = [result.to_dict() for result in repairs]
    exit_code = examination.exit_code
    faults = [finding for finding in examination.findings if finding.blocking]
    return Outcome(
        data,
        lambda screen: _show_examination(screen, examination, report),
        exit_code,
        errors=finding_entries(faults) if exit_code else (),
        status="partial" if faults and not exit_code else None,
    )


def _repair(
    terminal: Terminal,
    examination: Examination,
    venv: Path,
    sources: Sources,
    *,
    yes: bool,
) -> tuple[RepairResult, ...]:
    """Show what is wrong and the repairs, ask, and make them.

    Raises:
        UsageError: if there is no terminal to ask in.
    """
    from gpuinstall.diagnose.repair import repair_steps, run_repairs
    from gpuinstall.sources.session import open_session

    for finding in examination.findings:
        terminal.step("Found", finding.message)
    steps = repair_steps(examination.findings, venv)
    for step in steps:
        terminal.step("Repair", str(step))
    if not steps:
        if examination.findings:
            terminal.warn("none of these problems can be repaired automatically")
        return ()
    if not yes:
        if not sys.stdin.isatty():
            hint = Advice(OURS, ("doctor", "--fix", "--yes", "--venv", str(venv)))
            raise UsageError(
                "nobody-to-ask", "--fix asks first, and there is no terminal to ask in", hint=hint
            )
        repairs = "this repair" if len(steps) == 1 else f"these {len(steps)} repairs"
        if not click.confirm(f"Make {repairs}?", err=True):
            terminal.warn("nothing was changed")
            return ()
    with open_session(sources, terminal) as session:
        results = run_repairs(steps, session.environment, terminal)
    for result in results:
        if result.message:
            terminal.warn(f"{result.step}: {' · '.join(result.message.splitlines())}")
    return results


def _show_examination(terminal: Terminal, examination: Examination, report: str | None) -> None:
    if terminal.quiet:
        for finding in examination.findings:
            if finding.blocking:
                _show_finding(terminal, finding)
        return
    from gpuinstall.cli.probe import machine_line

    terminal.field("Machine", machine_line(examination.machine))
    if examination.preflight.summary:
        terminal.field("Preflight", examination.preflight.summary)
    terminal.field("Environment", _environment_line(examination))
    for finding in examination.findings:
        terminal.line()
        _show_finding(terminal, finding)
    if report:
        terminal.line()
        terminal.field("Report", f"{report}, without secrets, host and user names")
    terminal.line()
    terminal.line(last_line(examination))


def _show_finding(terminal: Terminal, finding: Finding) -> None:
    terminal.line(terminal.headline(finding))
    terminal.rows([("why", finding.why or finding.evidence), ("do", finding.fix)])


def _environment_line(examination: Examination) -> str:
    from gpuinstall.cli.verify import tested_line

    environment = examination.environment
    if environment is None:
        return "none here"
    verdict = environment.verdict
    if not environment.was_started:
        return f"{environment.venv}: read, not started"
    if verdict is None:
        return f"{environment.venv}: its Python does not start"
    return f"{tested_line(verdict.environment)} · {environment.venv}: {verdict.status}"


def last_line(examination: Examination) -> str:
    """Return what to do first; if there is nothing to do, what was examined and is healthy."""
    for finding in examination.findings:
        # A note with nothing to do is no fault.
        if finding.blocking or finding.fix:
            line = (finding.fix or finding.message).splitlines()[0]
            return f"first: {line.partition(NOTE)[0]}"
    preflight = examination.preflight
    parts = []
    proven = len(preflight.cards) - len(preflight.with_outcome("unproven"))
    if proven:
        parts.append(f"the driver and {number_of(proven, 'GPU')}")
    environment = examination.environment
    if environment is None:
        missing = "no environment here: gpuinstall install makes one"
        return f"no problem found in {parts[0]}; {missing}" if parts else missing
    parts.append(f"{number_of(environment.packages, 'package')} in {environment.venv.name}")
    if examination.locks:
        parts.append(number_of(examination.locks, "lock"))
    return f"healthy: {', '.join(parts)}"
