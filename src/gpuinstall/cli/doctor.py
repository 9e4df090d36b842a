"""``gpuinstall doctor``: examine the machine, environment, and project."""

from __future__ import annotations

from contextlib import suppress
from os.path import isfile
from pathlib import Path

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.cli.active import find_environment, report_active_environment
from gpuinstall.cli.install import find_existing_interpreter
from gpuinstall.cli.machine_text import format_machine
from gpuinstall.cli.options import (
    VARIABLE_OPTIONS,
    CommandOptions,
    is_environment_given,
    is_on_command_line,
)
from gpuinstall.cli.outcome import Outcome, define_command
from gpuinstall.cli.terminal import Terminal
from gpuinstall.cli.verify import format_build
from gpuinstall.diagnose.examination import Examination, examine
from gpuinstall.install.inspection import read_state
from gpuinstall.install.state import InstallOptions, inspect_environment
from gpuinstall.machine.probe import read_machine
from gpuinstall.project.run import read_paths
from gpuinstall.sources import OFFICIAL


@define_command(
    "venv",
    hidden=VARIABLE_OPTIONS,
)
def doctor_command(options: CommandOptions) -> Outcome:
    """Examine the machine, the environment, and the project."""
    folder = find_environment(options)
    if is_on_command_line("venv") or isfile(folder):
        # Treat a mistyped path as an error, not as a missing environment.
        find_existing_interpreter("", folder)
    report_active_environment(["doctor"], folder, options.terminal)
    examination = _examine_project(options, folder)
    exit_code = examination.exit_code
    faults = tuple(finding for finding in examination.findings if finding.blocking)
    return Outcome(
        examination.to_dict(),
        lambda screen: _show_examination(screen, examination),
        exit_code,
        errors=faults if exit_code else (),
        is_partial=bool(faults),
    )


def _examine_project(options: CommandOptions, venv: Path) -> Examination:
    """Examine the project folder, even if its settings are malformed."""
    state = None
    torch_index = OFFICIAL
    gate = None
    paths = read_paths(venv, Path.cwd(), is_read_only=True)
    machine = read_machine(options.terminal)
    with (
        suppress(UsageError, LockError),
        options.open_project(here=machine, venv=venv, is_read_only=True) as project,
    ):
        torch_index = project.sources.addresses.torch_index
        gate = project.lock_gate
        state = read_state(project.silence(), InstallOptions(), check_ownership=False)
    return examine(
        Path.cwd(),
        paths.venv,
        machine,
        request=state.lock_request.request if state else None,
        refuse=state.find_refusal if state else None,
        torch_index=torch_index,
        gate=gate,
        reporter=options.terminal,
        named=is_environment_given(),
        stamp=inspect_environment(paths, machine).stamp,
    )


def _show_examination(terminal: Terminal, examination: Examination) -> None:
    if terminal.quiet:
        for finding in examination.findings:
            if finding.blocking:
                terminal.print_finding(finding)
        return
    terminal.print_field("Machine", format_machine(examination.machine))
    if examination.preflight.summary:
        terminal.print_field("Preflight", examination.preflight.summary)
    terminal.print_field("Environment", _format_environment(examination))
    if examination.verdict and examination.is_last:
        devices = examination.verdict.devices
        outcomes = " · ".join(f"{one.label}: {one.outcome}" for one in devices)
        terminal.print_field(
            "Verified",
            f"{outcomes}; unchanged since then (to repeat: verify)",
        )
    for finding in examination.findings:
        terminal.print_line()
        terminal.print_finding(finding)
    # A note without a fix is not a problem.
    if not any(finding.blocking or finding.fix for finding in examination.findings):
        terminal.print_line()
        terminal.print_line("no problems found")


def _format_environment(examination: Examination) -> str:
    venv, verdict = examination.evidence.venv, examination.verdict
    if not examination.evidence.python:
        return "none in this folder; install creates one"
    if not examination.was_started:
        return f"{venv}: its Python was not started"
    if verdict is None:
        return f"{venv}: its Python does not start"
    return f"{format_build(verdict.environment)} · {venv}: {verdict.status}"
