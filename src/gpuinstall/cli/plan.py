"""``gpuinstall plan``: choose the build, with reasons; change nothing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpuinstall.base.codec import write_object
from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.text import readable, some
from gpuinstall.base.values import replace
from gpuinstall.catalog import PAIRED, Catalog, load_catalog
from gpuinstall.cli.machine_text import machine_line
from gpuinstall.cli.options import MACHINE_WORDS, REQUEST, CommandOptions
from gpuinstall.cli.outcome import Outcome, failure, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.lock.request.declaration import locks_in
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.compat import compat_offer, with_compat_reason
from gpuinstall.plan.locked_torch import choose_as_locked, newer_torch
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.project import Project
from gpuinstall.project.request import read_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.base.request import Request
    from gpuinstall.catalog.extensions import Extension
    from gpuinstall.lock.solve.extensions import ExtensionChoice

    ExtensionChoices = Sequence[tuple[Extension, ExtensionChoice]]


@framed(
    "plan",
    "Choose the build for a machine and explain why; change nothing.",
    *REQUEST,
    "machine",
    *MACHINE_WORDS,
    "all_builds",
    "live",
)
def command(options: CommandOptions) -> Outcome:
    """Plan."""
    request = options.settings.request
    newest = None
    if options.gpu_names:
        from gpuinstall.plan.drivers import newest_branch

        newest = partial(newest_branch, catalog=load_catalog())
        # A machine in words has a Python like this one's.
        request = replace(request, preferred_pythons=(RUNNING_PYTHON,))
    extensions: ExtensionChoices = ()
    selected = options.other_machine(newest)
    with options.open(request=request, machine=selected, only_looks=True) as project:
        machine = project.machine
        requested = read_request(project)
        # Which pins give way is known only when the request has been resolved.
        if options.live or options.relax:
            plan, extensions = _live_plan(
                project, requested, everything=options.all_builds
            )
        else:
            plan = choose_as_locked(machine, requested, project.catalog)
            if isinstance(plan, Plan):
                plan = _with_remarks(plan, machine, requested, project.catalog)
        if isinstance(plan, Plan):
            newer = newer_torch(plan, machine, requested, project.catalog)
            kept = _kept_torch(plan, requested, project)
            reasons = (*plan.reasons, *filter(None, (newer, kept)))
            plan = replace(plan, reasons=reasons)
    if machine.driver and machine.driver.found_via == "assumed":
        gpus = ", ".join(gpu.label for gpu in machine.gpus)
        message = (
            f"driver {machine.driver.version} is assumed, the newest that drives {gpus}: "
            "--driver gives another"
        )
        assumption = Reason("driver-assumed", message)
        plan = replace(plan, reasons=(*plan.reasons, assumption))
    rows = [_extension_row(*choice) for choice in extensions]

    show = partial(_show, plan, machine, rows, options.all_builds)
    data = {**plan.to_dict(), "extensions": rows}
    if isinstance(plan, Plan):
        is_partial = plan.status == "partial"
        return Outcome(data, show, is_partial=is_partial, is_news=True)
    return replace(failure(plan.error(machine)), data=data, show=show)


def _kept_torch(plan: Plan, request: Request, project: Project) -> Reason | None:
    """Return which torch install keeps, because a lock here has it; None if it takes the plan's.

    Args:
        plan: What was chosen without the locks.
        request: What is requested.
        project: The folder.
    """
    folder = project.paths.folder
    # Of another machine nothing is kept: install is for this one.
    if project.settings.machine or not locks_in(folder):
        return None
    # Both take long to load.
    from gpuinstall.lock.file.fit import best, fit, readable_lock
    from gpuinstall.project.targets import environment_request

    request = environment_request(project, request)
    wanted = project.machine, request, project.catalog
    # A lock in conflict is for the commands that install to refuse.
    locks = filter(None, map(readable_lock, locks_in(folder)))
    gate = project.lock_gate
    kept = best([fit(lock, *wanted, gate=gate, exact=True) for lock in locks], *wanted)
    if kept is None or kept.choice.build.name == plan.choice.build.name:
        return None
    message = (
        f"install keeps torch {kept.choice.build.name}, which {kept.lock.name} has"
    )
    return Reason("torch-locked", message)


def _show(
    plan: Plan | Rejected,
    machine: Machine,
    extensions: Iterable[dict[str, Any]],
    everything: bool,
    terminal: Terminal,
) -> None:
    """Write a plan, on request with everything that was rejected.

    Args:
        plan: What was chosen, or why nothing was.
        machine: What it is for.
        extensions: The rows of what is compiled against torch, as documents have them.
        everything: Whether what was rejected is shown, and not only counted.
        terminal: Where it is written.
    """
    if isinstance(plan, Plan):
        if everything:
            count = len(plan.rejected)
            torch = plan.choice.build.name
            terminal.line(f"torch {torch} is chosen; {count} builds were rejected")
        else:
            _show_plan(plan, machine, terminal)
    if everything:
        for rejection in plan.rejected:
            build = rejection.candidate
            names = f"{build.torch!s:<9} {build.backend.tag:<8}"
            terminal.line(f"{names} {rejection.reason.message}")
    if isinstance(plan, Rejected):
        terminal.fault(plan.error(machine))
    for row in extensions:
        if row["fit"]:
            _show_extension(row, terminal, everything=everything)


def _show_plan(
    plan: Plan,
    machine: Machine,
    terminal: Terminal,
) -> None:
    choice = plan.choice
    served = {run.index for run in plan.gpus if run.how != "none"}
    gpus = tuple(gpu for gpu in machine.gpus if gpu.index in served)
    if plan.status == "partial":
        machine = replace(machine, gpus=gpus)
    terminal.line(
        f"        for {machine_line(machine)}",
        head=f"torch {choice.build.name} · Python {choice.python}",
    )
    for reason in plan.reasons:
        terminal.line(f"  {reason.message}")
    terminal.line(f"  index  {choice.index or 'the default index'}")
    if len(choice.requirements) > 1:
        terminal.line(f"  with   {some(choice.requirements[1:])}")
    if plan.rejected:
        terminal.line(f"  more   --all shows the {len(plan.rejected)} rejected builds")
    for warning in plan.warnings:
        terminal.warn(warning.message)


def _with_remarks(
    plan: Plan,
    machine: Machine,
    request: Request,
    catalog: Catalog,
) -> Plan:
    """Return a plan with what newer libraries above the driver would give, and whether it has not looked at programs.

    Args:
        plan: The plan, made without asking any index.
        machine: What it is for.
        request: What was requested.
        catalog: What was chosen from.
    """
    if plan.status != "cpu":
        choose_on = partial(choose, request=request, catalog=catalog)
        plan = with_compat_reason(plan, compat_offer(machine, catalog, choose_on))
    # The pins of torch's own are passed over unparsed: a plan of torch alone need not load the parser.
    others = [
        text
        for text in plan.choice.requirements
        if text.partition("==")[0] not in PAIRED
    ]
    if {parse_requirement(text).name for text in others} <= PAIRED:
        return plan
    message = "the request was not resolved: plan --live resolves it, and may choose an older torch"
    warning = Reason("programs-not-looked-at", message)
    return replace(plan, warnings=(*plan.warnings, warning))


def _live_plan(
    project: Project,
    request: Request,
    *,
    everything: bool,
) -> tuple[Plan | Rejected, ExtensionChoices]:
    """Choose as install does: from what the sources list today, with the programs resolved.

    Args:
        project: The folder.
        request: What is requested.
        everything: Whether a refusal names every file of an extension that was rejected.
    """
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.solve.extensions import prebuilt_choices
    from gpuinstall.lock.solve.live import learned_catalog
    from gpuinstall.lock.solve.problem import pose
    from gpuinstall.lock.solve.solve import resolve_locks

    machine = project.machine
    session = project.session
    lock_request = LockRequest(
        machine,
        request,
        project.catalog,
        builds_here=project.settings.machine is None,
    )
    live = learned_catalog(lock_request, session, Reporter())
    plan = choose(machine, request, live)
    # If a source does not answer, resolving the request tells whether that is the reason.
    if (
        isinstance(plan, Rejected)
        and not request.relax
        and plan.error_class is not InstallationError
    ):
        return plan, ()
    try:
        resolution = resolve_locks([lock_request], session)[0]
    except NoBuildError as refusal:
        if (
            everything
            and refusal.code == "no-prebuilt-extension"
            and isinstance(plan, Plan)
        ):
            problem = pose(lock_request, lock_request.plan)
            rejected = [
                f"{rejection.candidate[0].wheel.filename}: {rejection.reason.message}"
                for _, choice in prebuilt_choices(problem, session)
                for rejection in choice.rejected
            ]
            refusal.why = "\n".join(rejected) or refusal.why
        raise
    plan = resolution.plan
    problem = pose(resolution.request, plan)
    return plan, prebuilt_choices(problem, session, plan.choice.build)


def _show_extension(
    row: dict[str, Any],
    terminal: Terminal,
    *,
    everything: bool,
) -> None:
    """Write which prebuilt file of an extension is taken and, on request, why not the others.

    Args:
        row: The extension, as documents have it.
        terminal: Where it is written.
        everything: Whether the rejected files are shown, and not only counted.
    """
    fit, rejected = row["fit"], row["rejected"]
    code = " ".join(fit["architectures"]) or "GPU architectures not listed"
    size = readable(fit["size"])
    terminal.line(f"  file   {fit['file']} ({size}) from {fit['source']}: {code}")
    if everything:
        for rejection in rejected:
            terminal.line(f"  not    {rejection['file']}: {rejection['message']}")
    elif rejected:
        text = f"--all shows the {len(rejected)} rejected files of {row['name']}"
        terminal.line(f"  more   {text}")


def _extension_row(extension: Extension, choice: ExtensionChoice) -> dict[str, Any]:
    rejected = []
    for rejection in choice.rejected:
        file, build = rejection.candidate
        entry = {
            "file": file.wheel.filename,
            "source": file.source.id,
            "torch": build.name,
        }
        rejected.append(entry | rejection.reason._asdict())
    fit = None
    if choice.fit:
        file, row = choice.fit.file, choice.fit.row
        fit = {
            "version": str(file.wheel.version),
            "source": file.source.id,
            "file": file.wheel.filename,
            "url": file.wheel.url,
            "sha256": file.wheel.sha256,
            "size": row.size,
            "torch": choice.fit.build.name,
            "architectures": list(row.architectures),
            "read": write_object(row),
        }
    return {"name": extension.name, "fit": fit, "rejected": rejected}
