"""``gpuinstall plan``: select a torch build, and explain the selection."""

from __future__ import annotations

from collections.abc import Iterator

from gpuinstall.base.advice import Advice, Hint, make_command
from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.values import replace
from gpuinstall.catalog import PAIRED
from gpuinstall.cli.commands import format_hint
from gpuinstall.cli.machine_text import format_machine
from gpuinstall.cli.options import MACHINE_OPTIONS, REQUEST_OPTIONS, CommandOptions
from gpuinstall.cli.outcome import Outcome, define_command, make_error_outcome
from gpuinstall.cli.terminal import Terminal, apply_hints
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.alternatives import (
    choose_locked_torch,
    find_minimum_cuda,
)
from gpuinstall.plan.values import PlanInput
from gpuinstall.project import Project
from gpuinstall.project.extras import select_extras
from gpuinstall.project.request import read_request
from gpuinstall.sources.sources import report_ignored_settings


@define_command(
    *[name for name in REQUEST_OPTIONS if name != "relax"],
    "only",
    "machine",
    *MACHINE_OPTIONS,
    "all_builds",
)
def plan_command(options: CommandOptions) -> Outcome:
    """Select a torch build for this machine or another one."""
    selected = options.read_other_machine(assumes_driver=True)
    with options.open_project(machine=selected, is_read_only=True) as project:
        machine = project.machine
        if selected is None:
            from gpuinstall.environments.records import find_unfinished_change

            unfinished = find_unfinished_change(project.paths.venv)
            if unfinished:
                project.reporter.warn(unfinished.message, *unfinished.fixes)
        requested = select_extras(project, project.wants(read_request(project)))
        report_ignored_settings(project.sources, project.reporter)
        wanted = PlanInput(machine, requested, project.catalog)
        plan = choose_locked_torch(wanted)
        reasons = [*plan.reasons]
        if isinstance(plan, Plan):
            reasons += filter(None, [_find_kept_torch(plan, requested, project)])
            if options.gpu_names:
                reasons += filter(None, [find_minimum_cuda(plan, wanted)])
            warnings = _find_warnings(plan, project)
            applied = (one._replace(fixes=apply_hints(one.fixes)) for one in warnings)
            plan = replace(plan, warnings=tuple(applied))
            outcome = Outcome(None, (), is_partial=plan.status == "partial")
        else:
            changes = [_resolve_instead(one, machine) for one in plan.changes]
            plan = replace(plan, changes=tuple(changes))
            outcome = make_error_outcome(plan.error(machine))
    if machine.driver and machine.driver.found_via == "assumed":
        labels = [gpu.label for gpu in machine.gpus]
        message = f"assuming driver {machine.driver.version}, the latest for {', '.join(labels)}; select another with --driver"
        reasons.append(Reason("driver-assumed", message))
    plan = replace(plan, reasons=tuple(reasons))

    def show(screen: Terminal) -> None:
        if options.all_builds:
            _show_rejected(plan, screen)
        elif isinstance(plan, Plan):
            _show_plan(plan, machine, screen)
        for error in outcome.errors:
            screen.fault(error)

    return replace(outcome, data=plan.to_dict(format_hint), show=show)


def _find_kept_torch(plan: Plan, request: Request, project: Project) -> Reason | None:
    """Return a note if ``install`` would keep a locked torch."""
    # The commands that install packages report a lock file with merge conflicts.
    locks = project.contents.locks.valid
    # install uses the lock files only on this machine.
    if project.settings.machine or not locks:
        return None
    # The module is slow to import.
    from gpuinstall.lock.file.fit import check_lock, find_best_lock
    from gpuinstall.project.targets import make_environment_request

    request = make_environment_request(project.silence(), request)
    wanted = PlanInput(project.machine, request, project.catalog)
    gate = project.lock_gate
    kept = find_best_lock(
        [check_lock(lock, wanted, gate=gate, exact=True) for lock in locks], wanted
    )
    if kept is None or kept.choice.build.name == plan.choice.build.name:
        return None
    message = f"install keeps torch {kept.choice.build.name}, which is locked in {kept.lock.name}"
    return Reason("torch-locked", message)


def _resolve_instead(change: Hint, machine: Machine) -> Hint:
    """Replace ``--relax``, which plan lacks, with ``lock --dry-run``."""
    if isinstance(change, str) or "--relax" not in change.arguments:
        return change
    return replace(_make_dry_run(machine, *change.arguments), note=change.note)


def _make_dry_run(machine: Machine, *options: str) -> Advice:
    """Return a dry run of ``lock``, which has the request of this command."""
    driver = machine.driver
    if driver and driver.found_via == "assumed":
        options += "--driver", str(driver.version)
    return make_command("lock --dry-run", *options)


def _show_rejected(plan: Plan | Rejected, terminal: Terminal) -> None:
    """Print the rejected builds, grouped by reason and torch version."""
    if isinstance(plan, Plan):
        selected = f"torch {plan.choice.build.name} is selected"
        terminal.print_line(f"{selected}; {len(plan.rejected)} builds were rejected")
    groups: dict[str, dict[str, list[str]]] = {}
    for rejection in plan.rejected:
        build = rejection.candidate
        torches = groups.setdefault(rejection.reason.message, {})
        torches.setdefault(str(build.torch), []).append(build.backend.tag)
    for message, torches in groups.items():
        terminal.print_line(message)
        for torch, tags in torches.items():
            terminal.print_line(f"  {torch:<9} {', '.join(tags)}")


def _show_plan(plan: Plan, machine: Machine, terminal: Terminal) -> None:
    choice = plan.choice
    gpus = tuple(gpu for gpu in machine.gpus if gpu.index in plan.covered_gpus)
    if gpus:
        machine = replace(machine, gpus=gpus)
    terminal.print_line(
        f"        for {format_machine(machine)}",
        head=f"torch {choice.build.name} · Python {choice.python}",
    )
    for reason in plan.reasons:
        terminal.print_line(f"  {reason.message}")
    terminal.print_line(f"  run    {format_hint(choice.command)}")
    if plan.rejected:
        terminal.print_line(
            f"  more   --all shows the {len(plan.rejected)} rejected builds"
        )
    for warning in plan.warnings:
        terminal.warn(warning.message, *warning.fixes)


def _find_warnings(plan: Plan, project: Project) -> Iterator[Reason]:
    """Yield the warnings of a plan, and about facts that were not checked."""
    yield from plan.warnings
    if not requirement_names(plan.choice.requirements) <= PAIRED:
        message = "the request was not resolved, and may require an older torch"
        fixes = (_make_dry_run(project.machine),)
        yield Reason("programs-not-looked-at", message, fixes=fixes)
