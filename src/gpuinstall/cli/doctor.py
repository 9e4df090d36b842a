"""``gpuinstall doctor``: what is wrong with machine, environment and project, and what to do first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gpuinstall import __version__
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.doctor.finding import exit_code
from gpuinstall.errors import UsageError
from gpuinstall.files import write_text

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.doctor.examination import Examination
    from gpuinstall.doctor.finding import Finding


@click.command("doctor")
@options.venv
@click.option("--report", metavar="FILE", help="Write a Markdown report without secrets and names.")
@framed("doctor")
def command(terminal: Terminal, *, venv: str, report: str | None) -> Outcome:
    """Examine machine, driver, environment and project."""
    from gpuinstall.doctor.examination import examine

    folder = Path(venv).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError("environment-missing", f"{venv} is not a folder", hint="gpuinstall doctor --venv DIR")
    named = click.get_current_context().get_parameter_source("venv") is not ParameterSource.DEFAULT
    found = examine(Path.cwd(), folder, terminal, named=named)
    if report:
        from gpuinstall.doctor.report import report as written

        write_text(Path(report), written(found, __version__))
    code = exit_code(found.findings, found.machine.with_problems(found.preflight.problems))
    faults = [each for each in found.findings if each.blocking]
    return Outcome(
        found.to_dict(),
        lambda screen: show(screen, found, report),
        status="error" if code else "partial" if faults else "success",
        exit_code=code,
        errors=tuple({"code": each.code, "message": each.title, "hint": each.fix} for each in faults if code),
    )


def show(terminal: Terminal, found: Examination, report: str | None) -> None:
    """Print the examination for a person; the last line is the first thing to do."""
    from gpuinstall.cli.probe import machine_line

    terminal.field("Machine", machine_line(found.machine))
    if found.preflight.summary:
        terminal.field("Preflight", found.preflight.summary)
    terminal.field("Environment", environment_line(found))
    for finding in found.findings:
        terminal.line()
        _show_finding(terminal, finding)
    if report:
        terminal.line()
        terminal.field("Report", f"{report}, without secrets, host and user names")
    terminal.line()
    terminal.line(last_line(found))


def environment_line(found: Examination) -> str:
    """Say in one line what the environment is and how its proof ended."""
    if found.environment is None:
        return "none here"
    verdict = found.environment.verdict
    if verdict is None:
        return f"{found.environment.venv}: its Python does not run"
    tested = verdict.environment
    torch = f"torch {tested.torch}" if tested.torch else "no torch"
    return f"{torch} · Python {tested.python} · {found.environment.venv}: {verdict.status}"


def last_line(found: Examination) -> str:
    """Say that all is well, or what to do first; a note with nothing to do is no fault."""
    first = next((finding for finding in found.findings if finding.blocking or finding.fix), None)
    if first is not None:
        return f"first: {(first.fix or first.title).splitlines()[0]}"
    return "healthy" if found.environment else "healthy; for an environment: gpuinstall install"


def _show_finding(terminal: Terminal, finding: Finding) -> None:
    word = terminal.style("error:", "red") if finding.blocking else terminal.style("note:", "yellow")
    terminal.line(f"{word} {finding.title}" + (f"   [{finding.id}]" if finding.id else ""))
    terminal.rows([("why", finding.why), ("do", finding.fix)])
