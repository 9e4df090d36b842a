"""``gpuinstall doctor``: what is wrong with machine, environment and project, what to do first, and doing it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gpuinstall import __version__
from gpuinstall.advice import quoted
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.doctor.check import exit_code
from gpuinstall.errors import UsageError
from gpuinstall.files import write_text

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.doctor.examination import Examination
    from gpuinstall.doctor.repair import RepairResult, RepairStep
    from gpuinstall.finding import Finding
    from gpuinstall.sources import Sources


@click.command("doctor")
@options.venv
@click.option("--report", metavar="FILE", help="Write a Markdown report without secrets and names.")
@click.option("--fix", "fixing", is_flag=True, help="Show the repairs of the environment, ask, make them, look again.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@framed("doctor")
def command(terminal: Terminal, *, venv: str, report: str | None, fixing: bool, yes: bool) -> Outcome:
    """Examine machine, driver, environment and project."""
    from gpuinstall.doctor.examination import examine

    folder = Path(venv).absolute()
    if folder.exists() and not folder.is_dir():
        raise UsageError("environment-missing", f"{venv} is not a folder", hint="gpuinstall doctor --venv DIR")
    named = click.get_current_context().get_parameter_source("venv") is not ParameterSource.DEFAULT
    sources = _sources(terminal)
    found = examine(Path.cwd(), folder, sources, terminal, named=named)
    repairs = _repaired(terminal, found, folder, sources, yes=yes) if fixing else ()
    if repairs:
        found = examine(Path.cwd(), folder, sources, terminal, named=named)
    if report:
        from gpuinstall.doctor.report import report as written

        write_text(Path(report), written(found, __version__))
    code = exit_code(found.findings, found.machine.with_problems(found.preflight.problems))
    faults = [each for each in found.findings if each.blocking]
    return Outcome(
        found.to_dict() | ({"repairs": [each.to_dict() for each in repairs]} if fixing else {}),
        lambda screen: show(screen, found, report),
        status="error" if code else "partial" if faults else "success",
        exit_code=code,
        errors=tuple({"code": each.code, "message": each.message, "hint": each.fix} for each in faults if code),
    )


def _sources(terminal: Terminal) -> Sources:
    """Read where packages come from; settings that are malformed are for the commands that install to refuse."""
    from gpuinstall.project import open_project
    from gpuinstall.sources import Sources

    try:
        with open_project(Path.cwd(), reporter=terminal) as project:
            return project.sources
    except UsageError:
        return Sources()


def _repaired(
    terminal: Terminal, found: Examination, venv: Path, sources: Sources, *, yes: bool
) -> tuple[RepairResult, ...]:
    """Show the steps, ask, and make them; raise UsageError where nobody can answer."""
    from gpuinstall.doctor.repair import carry_out, repair_steps
    from gpuinstall.session import open_session

    steps = repair_steps(found.findings, venv)
    for step in steps:
        terminal.step("Repair", step.line)
    if not steps or not (yes or _agreed(steps, venv)):
        terminal.warn("nothing was changed" if steps else "there is no repair that could be made from here")
        return ()
    with open_session(sources, terminal) as session:
        results = carry_out(steps, session.environment, terminal)
    for result in results:
        if result.message:
            terminal.warn(f"{result.line}\n{result.message}")
    return results


def _agreed(steps: tuple[RepairStep, ...], venv: Path) -> bool:
    if not sys.stdin.isatty():
        hint = f"gpuinstall doctor --fix --yes --venv {quoted(venv)}"
        raise UsageError("nobody-to-ask", "--fix asks before it changes anything, and nobody can answer", hint=hint)
    return click.confirm(f"Make {'this repair' if len(steps) == 1 else f'these {len(steps)} repairs'}?", err=True)


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
        return f"first: {(first.fix or first.message).splitlines()[0].partition('   #')[0]}"
    return "healthy" if found.environment else "healthy; for an environment: gpuinstall install"


def _show_finding(terminal: Terminal, finding: Finding) -> None:
    word = terminal.style("error:", "red") if finding.blocking else terminal.style("note:", "yellow")
    terminal.prose(f"{word} {finding.message}" + (f"   [{finding.id}]" if finding.id else ""), 6)
    terminal.rows([("why", finding.why or finding.evidence), ("do", finding.fix)])
