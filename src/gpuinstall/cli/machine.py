"""``gpuinstall probe`` and ``gpuinstall report``: describe machines."""

from __future__ import annotations

from gpuinstall.base.advice import apply_to_install, make_command
from gpuinstall.base.errors import MachineError, SomeNodesError, UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.text import format_count, join_names
from gpuinstall.base.values import replace
from gpuinstall.cli.machine_text import format_machine, list_machine_facts
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, define_command
from gpuinstall.cli.terminal import Terminal


@define_command(
    "machine",
    "record",
    uses_project=False,
)
def probe_command(options: CommandOptions) -> Outcome:
    """Report the GPUs, the driver, and their problems."""
    from gpuinstall.machine.probe import read_machine

    probed = options.read_other_machine() or read_machine(options.terminal)
    options.read_machine = probed
    machine_refusals = explain_missing_builds(probed)
    faults = probed.fatal_problems or machine_refusals
    return Outcome(
        probed.to_dict(),
        lambda screen: show_machine(screen, probed.add_problems(machine_refusals)),
        exit_code=MachineError.exit_code if faults else 0,
        errors=faults,
        is_partial=any(problem.blocking for problem in probed.problems),
    )


def explain_missing_builds(machine: Machine) -> tuple[Finding, ...]:
    """Explain why no build of torch runs on a machine's GPUs.

    Returns:
        The reason. Empty if a build runs, if the machine has no GPU, or if the
        machine's problems already explain the failure.
    """
    from gpuinstall.plan import Plan, choose
    from gpuinstall.wheels.learned.store import load_extended_catalog

    if machine.fatal_problems or not machine.gpus:
        return ()
    plan = choose(machine, Request(), load_extended_catalog())
    if isinstance(plan, Plan) or plan.error_class is not MachineError:
        return ()
    error = plan.error(machine)
    return (replace(error.finding, fixes=apply_to_install(error.fixes)),)


def show_machine(terminal: Terminal, machine: Machine) -> None:
    """Print the facts about a machine and its problems."""
    terminal.print_field("Machine", format_machine(machine))
    for label, text in list_machine_facts(machine):
        terminal.print_field(label, text)
    for problem in machine.problems:
        terminal.print_line()
        terminal.print_finding(problem)


@define_command(
    "folder",
    "nodes",
    uses_project=False,
)
def report_command(options: CommandOptions) -> Outcome:
    """Summarize the records of cluster nodes."""
    from gpuinstall.cli.node_records import read_report, split_node_names

    folder = options.folder
    names = () if options.nodes is None else split_node_names(options.nodes)
    report = read_report(folder, names)
    if not (report.groups or report.failed or report.missing):
        raise UsageError(
            "no-records",
            f"{folder} has no records",
            hint=make_command("probe --record", str(folder), note="on each node"),
        )
    errors = [
        Finding(
            "node-failed",
            f"{failure.node}: {failure.command}: {failure.message}",
            fixes=(failure.hint,) if failure.hint else (),
        )
        for failure in report.failed
    ]
    errors += [Finding("node-missing", f"{node}: no record") for node in report.missing]

    def show(screen: Terminal) -> None:
        for group in report.groups:
            driver = f"driver {group.driver}" if group.driver else None
            known = filter(None, (group.gpus, driver, group.lock, group.verdict))
            text = f"{' · '.join(known)}: {join_names(group.nodes)}"
            screen.print_field(format_count(len(group.nodes), "node"), text)
        for error in errors:
            screen.print_finding(error)

    return Outcome(
        report.to_dict(),
        show,
        exit_code=SomeNodesError.exit_code if errors else 0,
        errors=tuple(errors),
    )
