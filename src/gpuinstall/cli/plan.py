"""``gpuinstall plan``: choose the build, with reasons; change nothing."""

from __future__ import annotations

import re
from dataclasses import replace

import click

from gpuinstall.backend import CPU
from gpuinstall.catalog import Catalog
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, Status, error_entry, framed
from gpuinstall.cli.probe import machine_line
from gpuinstall.cli.terminal import Terminal, columns
from gpuinstall.errors import InstallationError
from gpuinstall.finding import Reason
from gpuinstall.machine import Machine
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.compat import compat_offer, with_compat_reason
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.project import Project
from gpuinstall.request import Request


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
@options.cuda_compat
@click.option("--live", is_flag=True, help="Ask the indexes what they list today, and resolve.")
@framed("plan")
def command(
    terminal: Terminal,
    request: options.RequestOptions,
    machine: options.MachineOptions,
    *,
    everything: bool,
    why: str | None,
    cuda_compat: bool,
    live: bool,
) -> Outcome:
    """Plan."""
    with options.open_requested(request, machine, terminal) as project:
        selected_machine = project.machine
        requested = project.request_for(project.read_folder_request().listed)
        if cuda_compat:
            offer = compat_offer(selected_machine, requested, project.catalog, choose)
            selected_machine = offer.machine if offer else selected_machine
        if live:
            plan = _live_plan(project, selected_machine, requested)
        else:
            plan = _choose(selected_machine, requested, project.catalog)
            plan = _with_warning_of_programs(plan)

    def show(screen: Terminal) -> None:
        if why is not None:
            screen.prose(answer(why, plan))
        elif everything:
            _show_rejected(plan, selected_machine, screen)
        else:
            _show_plan(plan, selected_machine, screen)

    if isinstance(plan, Plan):
        status: Status = "partial" if plan.status == "partial" else "success"
        return Outcome(plan.to_dict(), show, status=status)
    error = plan.error(selected_machine)
    return Outcome(plan.to_dict(), show, exit_code=error.exit_code, errors=(error_entry(error),))


def _show_plan(plan: Plan | Rejected, machine: Machine, terminal: Terminal) -> None:
    if isinstance(plan, Rejected):
        terminal.fault(plan.error(machine))
        return
    choice = plan.choice
    title = f"torch {choice.build.name} · Python {choice.python}"
    _show_title(title, machine_line(machine), terminal)
    for reason in plan.reasons:
        terminal.prose(f"  {reason.message}", 4)
    terminal.line(f"  index  {choice.index or 'the default index'}")
    if len(choice.requirements) > 1:
        terminal.line(f"  with   {', '.join(choice.requirements[1:])}")
    if plan.rejected:
        example = ""
        for rejection in plan.rejected:
            if rejection.reason.code not in NOT_THERE:
                example = f", --why {rejection.candidate.backend} one of them"
                break
        text = f"  more   --all shows the {len(plan.rejected)} rejected builds{example}"
        terminal.prose(text, 9)
    for warning in plan.warnings:
        terminal.warn(warning.message)


def _show_title(title: str, machine: str, terminal: Terminal) -> None:
    """Write the choice and for whom it is, in one line if the terminal is wide enough."""
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
    # torch==2.13.*+CU130 is 2.13+cu130.
    name = re.sub(r"\A\s*(torch)?[=\s]*v?|\s|\.\*", "", question.lower())
    if isinstance(plan, Plan) and plan.choice.build.is_called(name):
        reasons = "; ".join(reason.message for reason in plan.reasons)
        return f"torch {plan.choice.build.name} is chosen: {reasons}"
    rejected = [rejection for rejection in plan.rejected if rejection.candidate.is_called(name)]
    if rejected:
        # That a build does not exist explains least.
        best = min(rejected, key=lambda rejection: rejection.reason.code in NOT_THERE)
        return f"not torch {best.candidate.name}: {best.reason.message}"
    if isinstance(plan, Rejected):
        return f"no build was chosen: {plan.reasons[0].message}"
    if name.endswith(CPU.tag) and plan.choice.build.backend != CPU:
        return "the CPU build is chosen only without a usable GPU, or with --backend cpu"
    return f"no such build for this platform: {question}"


def _choose(machine: Machine, request: Request, catalog: Catalog) -> Plan | Rejected:
    """Choose for a request, or, if it may be relaxed and cannot be met, for the nearest that can."""
    plan = choose(machine, request, catalog)
    if isinstance(plan, Plan):
        if plan.status == "cpu":
            return plan
        return with_compat_reason(plan, compat_offer(machine, request, catalog, choose))
    if not request.relax:
        return plan
    from gpuinstall.plan.relax import nearest_request

    nearest = nearest_request(request, catalog, lambda other: choose(machine, other, catalog))
    if nearest is None:
        return plan
    relaxed = choose(machine, nearest.request, catalog)
    if isinstance(relaxed, Rejected):
        return plan
    message = f"torch {nearest.torch} is the nearest to {', '.join(nearest.moved)}: {plan.reasons[0].message}"
    # It is the newest of the relaxed request alone, which is not the user's.
    others = [reason for reason in relaxed.reasons if not reason.code.startswith("newest")]
    return replace(
        relaxed,
        reasons=(Reason("relaxed", message), *others),
    )


def _with_warning_of_programs(plan: Plan | Rejected) -> Plan | Rejected:
    """Warn that the programs, which come before torch, have not been resolved."""
    if isinstance(plan, Rejected):
        return plan
    programs = []
    for text in plan.choice.requirements:
        # The pins of torch's own are passed over unparsed: a plan of torch alone need not load the parser.
        if text.partition("==")[0] in PAIRED:
            continue
        name = parse_requirement(text).name
        if name not in PAIRED:
            programs.append("the project" if name == "." else name)
    if not programs:
        return plan
    were, them = ("were", "them") if len(programs) > 1 else ("was", "it")
    message = (
        f"{', '.join(programs)} {were} not resolved: "
        f"plan --live resolves {them}, and may choose an older torch"
    )
    return replace(plan, warnings=(*plan.warnings, Reason("programs-not-looked-at", message)))


def _live_plan(project: Project, machine: Machine, request: Request) -> Plan | Rejected:
    """Choose as install does: from what the sources list today, with the programs resolved."""
    from gpuinstall.learned.live import learned_catalog
    from gpuinstall.lock.making import resolve_locks
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.reporter import SilentReporter

    session = project.session
    catalog = learned_catalog(
        project.catalog,
        machine,
        request,
        SilentReporter(),
        sources=session.sources,
        client=session.client,
    )
    plan = choose(machine, request, catalog)
    # If a source does not answer, resolving the request tells whether that is the reason.
    if isinstance(plan, Rejected) and plan.error_class is not InstallationError:
        return plan
    lock_request = LockRequest(
        machine,
        request,
        project.catalog,
        builds_here=project.settings.machine is None,
    )
    return resolve_locks([lock_request], session)[0].plan
