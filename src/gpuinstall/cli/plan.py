"""``gpuinstall plan``: choose the build, with reasons; change nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import click

from gpuinstall.backend import CPU
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, Status, error_entry, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.cli.terminal import Terminal, columns
from gpuinstall.errors import InstallationError
from gpuinstall.finding import Reason
from gpuinstall.machine import Machine
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import PlanStatus
from gpuinstall.project import Project, open_project
from gpuinstall.request import Request

_STATUS: dict[PlanStatus, Status] = {"ok": "success", "cpu": "success", "partial": "partial"}


@click.command("plan", help="Choose the build for a machine and explain why; change nothing.")
@options.request_options
@options.machine_options
@click.option("--all", "everything", is_flag=True, help="Show every rejected build, and why.")
@click.option(
    "--why",
    metavar="TAG",
    shell_complete=options.backend_tags,
    help="Explain why a backend, a torch version or a build was rejected.",
)
@click.option("--live", is_flag=True, help="Ask the indexes what they list today, and resolve.")
@framed("plan")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    machine: options.MachineOptions,
    *,
    everything: bool,
    why: str | None,
    live: bool,
) -> Outcome:
    """Plan."""
    settings = options.read_settings(request, machine, terminal)
    with open_project(Path.cwd(), settings, terminal) as project:
        meant = project.machine
        wanted = project.request_for(project.read_folder_request().listed)
        plan = (
            _live(project, wanted)
            if live
            else _with_what_is_open(choose(meant, wanted, project.catalog))
        )

    def show(screen: Terminal) -> None:
        if why is not None:
            screen.prose(answer(why, plan))
        elif everything:
            _show_rejected(plan, meant, screen)
        else:
            _show_plan(plan, meant, screen)

    if isinstance(plan, Rejected):
        error = plan.error(meant)
        return Outcome(plan.to_dict(), show, "error", error.exit_code, (error_entry(error),))
    return Outcome(plan.to_dict(), show, _STATUS[plan.status])


def _show_plan(plan: Plan | Rejected, machine: Machine, terminal: Terminal) -> None:
    if isinstance(plan, Rejected):
        terminal.fault(plan.error(machine))
        return
    _show_title(
        f"torch {plan.choice.build.name} · Python {plan.choice.python}",
        machine_line(machine),
        terminal,
    )
    for reason in plan.reasons:
        terminal.prose(f"  {reason.message}", 4)
    terminal.line(f"  index  {plan.choice.index or 'the default index'}")
    if len(plan.choice.requirements) > 1:
        terminal.line(f"  with   {', '.join(plan.choice.requirements[1:])}")
    if plan.rejected:
        names = (one.candidate.backend for one in plan.rejected if one.reason.code not in NOT_THERE)
        rest = "".join(f", --why {name} one of them" for name in islice(names, 1))
        terminal.prose(f"  more   --all shows the {len(plan.rejected)} rejected builds{rest}", 9)
    for warning in plan.warnings:
        terminal.warn(warning.message)


def _show_title(title: str, machine: str, terminal: Terminal) -> None:
    """Write the choice and for whom it is, in one line where a terminal is wide enough."""
    width = columns(terminal.out)
    styled = terminal.style(title, "bold")
    if width is None or len(title) + len(machine) + 12 <= width:
        terminal.line(f"{styled}        for {machine}")
    else:
        terminal.line(styled)
        terminal.prose(f"  for {machine}", 6)


def _show_rejected(plan: Plan | Rejected, machine: Machine, terminal: Terminal) -> None:
    if isinstance(plan, Plan):
        terminal.line(
            f"torch {plan.choice.build.name} is chosen; {len(plan.rejected)} builds were rejected"
        )
    if plan.rejected:
        from rich.table import Table

        table = Table("torch", "backend", "why not", box=None, pad_edge=False)
        for rejection in plan.rejected:
            build = rejection.candidate
            table.add_row(str(build.torch), build.backend.tag, rejection.reason.message)
        terminal.console(terminal.out).print(table)
    if isinstance(plan, Rejected):
        terminal.fault(plan.error(machine))


def answer(question: str, plan: Plan | Rejected) -> str:
    """Explain why a backend, a torch version or a build was rejected."""
    name = re.sub(
        r"\A\s*(torch)?[=\s]*v?|\s|\.\*", "", question.lower()
    )  # torch==2.13.*+CU130 is 2.13+cu130
    if isinstance(plan, Plan) and plan.choice.build.is_called(name):
        return f"torch {plan.choice.build.name} is chosen: {'; '.join(reason.message for reason in plan.reasons)}"
    rejected = [rejection for rejection in plan.rejected if rejection.candidate.is_called(name)]
    if rejected:
        best = next((one for one in rejected if one.reason.code not in NOT_THERE), rejected[0])
        return f"not torch {best.candidate.name}: {best.reason.message}"
    if isinstance(plan, Rejected):
        return f"no build was chosen: {plan.reasons[0].message}"
    if name.endswith(CPU.tag) and plan.choice.build.backend != CPU:
        return "the CPU build is chosen only without a usable GPU, or with --backend cpu"
    return f"no such build for this platform: {question}"


def _with_what_is_open(plan: Plan | Rejected) -> Plan | Rejected:
    """Warn that the programs, which come before torch, have not been looked at."""
    if isinstance(plan, Rejected):
        return plan
    # The pins of torch's own are passed over unparsed: a plan of torch alone need not load the parser.
    others = [text for text in plan.choice.requirements if text.partition("==")[0] not in PAIRED]
    names = [parse_requirement(text).name for text in others]
    programs = ["the project" if name == "." else name for name in names if name not in PAIRED]
    if not programs:
        return plan
    were, them = ("were", "them") if len(programs) > 1 else ("was", "it")
    message = f"{', '.join(programs)} {were} not resolved: plan --live resolves {them}, and may choose an older torch"
    return replace(plan, warnings=(*plan.warnings, Reason("programs-not-looked-at", message)))


def _live(project: Project, request: Request) -> Plan | Rejected:
    """Choose as install does: from what the sources list today, with the programs resolved."""
    from gpuinstall.learned.live import learned_catalog
    from gpuinstall.lock.making import resolve_locks
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.reporter import SilentReporter

    machine, session = project.machine, project.session
    catalog = learned_catalog(
        project.catalog,
        machine,
        request,
        SilentReporter(),
        sources=session.sources,
        client=session.client,
    )
    plan = choose(machine, request, catalog)
    # Where a source does not answer, what is made of the request tells whether that is the reason.
    if isinstance(plan, Rejected) and plan.error_class is not InstallationError:
        return plan
    wanted = LockRequest(
        machine, request, project.catalog, builds_here=project.settings.machine is None
    )
    return resolve_locks([wanted], session)[0].plan
