"""``gpuinstall doctor``: what is wrong with machine, environment and project, what to do first, and doing it."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gpuinstall import __version__
from gpuinstall.advice import NOTE, OURS, Advice
from gpuinstall.cli import options
from gpuinstall.cli.active import name_active
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.errors import LockError, UsageError
from gpuinstall.files import write_text

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.doctor.examination import Examination
    from gpuinstall.doctor.repair import RepairResult
    from gpuinstall.sources import Sources


@click.command("doctor")
@options.venv
@click.option("--report", metavar="FILE", help="Write a Markdown report without secrets or names.")
@click.option(
    "--fix", "fixing", is_flag=True, help="Show the repairs, ask, make them and check again."
)
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@framed("doctor")
def command(
    terminal: Terminal, *, venv: str, report: str | None, fixing: bool, yes: bool
) -> Outcome:
    """Examine machine, driver, environment and project."""
    from gpuinstall.doctor.examination import examine
    from gpuinstall.doctor.report import render_report
    from gpuinstall.project import Settings, open_project
    from gpuinstall.request import Request
    from gpuinstall.sources import Sources

    folder = Path(venv).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            "environment-missing", f"{venv} is not a folder", hint="gpuinstall doctor --venv DIR"
        )
    name_active("doctor", folder, terminal)
    named = click.get_current_context().get_parameter_source("venv") is not ParameterSource.DEFAULT
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
    look = functools.partial(
        examine,
        Path.cwd(),
        folder,
        machine,
        request=request,
        sources=sources,
        reporter=terminal,
        named=named,
    )
    examination = look()
    repairs = _repair(terminal, examination, folder, sources, yes=yes) if fixing else ()
    if repairs:
        examination = look()
    if report:
        write_text(Path(report), render_report(examination, __version__))
    code = examination.exit_code
    faults = [finding for finding in examination.findings if finding.blocking]
    return Outcome(
        examination.to_dict()
        | ({"repairs": [result.to_dict() for result in repairs]} if fixing else {}),
        lambda screen: _show_examination(screen, examination, report),
        status="error" if code else "partial" if faults else "success",
        exit_code=code,
        errors=tuple(
            {"code": fault.code, "message": fault.message, "hint": fault.fix}
            for fault in faults
            if code
        ),
    )


def _repair(
    terminal: Terminal, examination: Examination, venv: Path, sources: Sources, *, yes: bool
) -> tuple[RepairResult, ...]:
    """Show what is wrong and the repairs, ask, and make them; raise UsageError where nobody can answer."""
    from gpuinstall.doctor.repair import repair_steps, run_repairs
    from gpuinstall.session import open_session

    for finding in examination.findings:
        terminal.step("Found", finding.message)
    steps = repair_steps(examination.findings, venv)
    for step in steps:
        terminal.step("Repair", str(step))
    if not steps:
        terminal.warn("none of these problems can be repaired automatically")
        return ()
    if not yes:
        if not sys.stdin.isatty():
            hint = Advice(OURS, ("doctor", "--fix", "--yes", "--venv", str(venv)))
            raise UsageError(
                "nobody-to-ask", "--fix asks first, and there is no terminal to ask in", hint=hint
            )
        if not click.confirm(
            f"Make {'this repair' if len(steps) == 1 else f'these {len(steps)} repairs'}?", err=True
        ):
            terminal.warn("nothing was changed")
            return ()
    with open_session(sources, terminal) as session:
        results = run_repairs(steps, session.environment, terminal)
    for result in results:
        if result.message:
            terminal.warn(f"{result.step}: {' · '.join(result.message.splitlines())}")
    return results


def _show_examination(terminal: Terminal, examination: Examination, report: str | None) -> None:
    from gpuinstall.cli.probe import machine_line

    terminal.field("Machine", machine_line(examination.machine))
    if examination.preflight.summary:
        terminal.field("Preflight", examination.preflight.summary)
    terminal.field("Environment", _environment_line(examination))
    for finding in examination.findings:
        word = (
            terminal.style("error:", "red")
            if finding.blocking
            else terminal.style("note:", "yellow")
        )
        terminal.line()
        terminal.prose(
            f"{word} {finding.message}" + (f"   [{finding.id}]" if finding.id else ""), 6
        )
        terminal.rows([("why", finding.why or finding.evidence), ("do", finding.fix)])
    if report:
        terminal.line()
        terminal.field("Report", f"{report}, without secrets, host and user names")
    terminal.line()
    terminal.line(last_line(examination))


def _environment_line(examination: Examination) -> str:
    if examination.environment is None:
        return "none here"
    verdict = examination.environment.verdict
    if verdict is None:
        return f"{examination.environment.venv}: its Python does not start"
    tested = verdict.environment
    torch = f"torch {tested.torch}" if tested.torch else "torch cannot be imported"
    return f"{torch} · Python {tested.python} · {examination.environment.venv}: {verdict.status}"


def last_line(examination: Examination) -> str:
    """Say what to do first; else what was examined and is healthy. A note with nothing to do is no fault."""
    for finding in examination.findings:
        if finding.blocking or finding.fix:
            return f"first: {(finding.fix or finding.message).splitlines()[0].partition(NOTE)[0]}"
    proven = len(examination.preflight.cards) - len(examination.preflight.with_outcome("unproven"))
    parts = [f"the driver and {proven} GPU{'s' * (proven > 1)}"] if proven else []
    if examination.environment is None:
        missing = "no environment here: gpuinstall install makes one"
        return f"no problem found in {parts[0]}; {missing}" if parts else missing
    packages, locks = examination.environment.packages, examination.locks
    parts += [f"{packages} package{'s' * (packages > 1)} in {examination.environment.venv.name}"]
    parts += [f"{locks} lock{'s' * (locks > 1)}"] if locks else []
    return f"healthy: {', '.join(parts)}"
