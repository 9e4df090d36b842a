"""``gpuinstall verify``: run kernels on every GPU of any environment."""

from __future__ import annotations

from pathlib import Path

from gpuinstall.base.advice import environment_advice, make_command
from gpuinstall.base.environment_paths import environment_folder, packages_folders
from gpuinstall.base.errors import MachineError, VerificationError
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import replace
from gpuinstall.cli.active import (
    find_environment,
    report_active_environment,
)
from gpuinstall.cli.install import find_trusted_interpreter
from gpuinstall.cli.machine import explain_missing_builds
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, define_command
from gpuinstall.cli.terminal import Terminal
from gpuinstall.environments.damage import find_damage, is_configuration_lost
from gpuinstall.environments.environment import read_origin
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import (
    check_finished,
    locate_environment,
    record_environment,
    was_created_here,
)
from gpuinstall.install.state import (
    check_libcuda,
    inspect_environment,
    record_failure,
)
from gpuinstall.machine.probe import read_machine
from gpuinstall.verify.kernels.programs import PROGRAMS
from gpuinstall.verify.runner import measure, verify_environment
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment

STYLES = {
    "passed": "green",
    "failed": "red",
    "unproven": "yellow",
}
PRINTED_STATUSES: dict[str, tuple[str, ...]] = {
    "peer-to-peer": ("passed", "skipped"),
    "compile": ("passed", "skipped"),
    **{program.name: ("skipped",) for program in PROGRAMS},
}
"""The check statuses for which a message is printed, by check."""


@define_command(
    "interpreter",
    "venv",
    "deep",
    "require_gpu",
    "bench",
    "record",
)
def verify_command(options: CommandOptions) -> Outcome:
    """Verify an environment, and measure GPU speed with ``--bench``."""
    if not options.interpreter:
        venv = find_environment(options)
        report_active_environment(["verify"], venv, options.terminal)
    target = find_trusted_interpreter(options, options.interpreter)
    folder = environment_folder(target)
    machine = read_machine(options.terminal)
    options.read_machine = machine
    check_libcuda(folder, machine)
    origin = read_origin(folder, machine)
    others = [
        f"GPU {gpu.index} ({gpu.label})"
        for gpu in machine.gpus
        if origin.gpus and gpu.index not in origin.gpus
    ]
    if others:
        options.terminal.warn(
            f"this environment was created without {', '.join(others)}"
        )
    for problem in machine.problems:
        # Kernels select their GPUs themselves.
        if problem.code == "visible-devices-hide-gpus":
            options.terminal.warn(problem.message)
    check_finished(folder)
    _warn_about_damage(folder, options.terminal, is_deep=options.deep)
    measured: tuple[Device, ...] = ()
    verdict = verify_environment(
        target,
        machine,
        origin,
        deep=options.deep,
        requested=(),
        reporter=options.terminal,
    )
    existing = inspect_environment(locate_environment(folder))
    if verdict.status == "passed" and existing.intact_lock and existing.marker:
        # Adopt the environment, because its packages match its lock file.
        is_created = was_created_here(folder)
        record_environment(folder, existing.marker.id, is_created=is_created)
    if verdict.status == "failed":
        # One cause is that no build of torch runs on this machine.
        reasons = () if origin.for_cpu else explain_missing_builds(machine)
        if reasons:
            machine = machine.add_problems(reasons)
            verdict = verdict.add_machine_fault(reasons[0])
        record_failure(folder, machine, verdict.to_dict())
    elif options.require_gpu and not verdict.verifies_gpus:
        raise _make_no_gpu_error(verdict)
    elif options.bench:
        measured = measure(target, machine, origin, options.terminal)
    return _make_outcome(verdict, machine, target, measured)


def _warn_about_damage(venv: Path, terminal: Terminal, *, is_deep: bool) -> None:
    """Warn about damaged files that the kernels may not load.

    Args:
        venv: The environment.
        terminal: Receives the warnings.
        is_deep: Whether to compare the files of all packages with RECORD.
    """
    messages = []
    if is_configuration_lost(venv):
        messages.append(f"{venv / 'pyvenv.cfg'} is empty")
    if is_deep:
        damage = find_damage(read_packages(packages_folders(venv)))
        messages += [one.message for one in damage]
    if messages:
        terminal.warn("; ".join(messages), environment_advice(venv, "doctor"))


def _make_no_gpu_error(verdict: Verdict) -> VerificationError:
    devices = [
        f"{device.label}: {device.unproven or device.status}"
        for device in verdict.devices
    ]
    return VerificationError(
        "no-gpu-proven",
        "no kernel ran on a GPU",
        evidence="\n".join(devices),
        hint=make_command("probe", note="shows the GPUs of this machine"),
        data=verdict.to_dict(),
    )


def _make_outcome(
    verdict: Verdict,
    machine: Machine,
    python: Path,
    measured: tuple[Device, ...],
) -> Outcome:
    errors = []
    for device in verdict.devices:
        for fault in device.faults:
            code = fault.code
            # Programs identify a machine fault by the code of the problem.
            if fault.where == "machine":
                code = machine.fatal_problems[0].code
            message = f"{device.label}: {fault.message}"
            errors.append(replace(fault, code=code, message=message))
    exit_code = 0
    if verdict.status == "failed":
        error = MachineError if verdict.refused else VerificationError
        exit_code = error.exit_code
    data = verdict.to_dict()
    if measured:
        data["bench"] = [device.to_dict() for device in measured]

    def show(screen: Terminal) -> None:
        _show_verdict(screen, verdict, python)
        for device in measured:
            screen.print_line()
            screen.print_field("Measured", device.name)
            for check in device.checks[1:]:  # the first check is the import of torch
                prefix = "" if check.status == "passed" else "skipped: "
                screen.print_line(f"  {check.name:<24} {prefix}{check.message}")

    return Outcome(data, show, exit_code=exit_code, errors=tuple(errors))


def _show_verdict(
    terminal: Terminal,
    verdict: Verdict,
    python: Path,
) -> None:
    terminal.print_field(
        "Environment", f"{format_build(verdict.environment)} · {python}"
    )
    for device in verdict.devices:
        _show_device(terminal, device)
        for fault in device.faults:
            terminal.print_finding(fault)
    unproven = [
        device.label for device in verdict.devices if device.status == "unproven"
    ]
    if unproven:
        terminal.warn(
            f"unproven: {', '.join(unproven)}",
            make_command("verify", note="once they are available"),
        )


def format_build(environment: VerifiedEnvironment) -> str:
    """Format versions such as ``torch 2.15.0+cu132 · Python 3.12``."""
    torch = environment.torch or "cannot be imported"
    return f"torch {torch} · Python {environment.python}"


def _show_device(terminal: Terminal, device: Device) -> None:
    name = f"{device.name}: " if device.kind == "gpu" else ""
    text = f" {name}{device.outcome}"
    if device.status == "passed":
        text += f", {sum(check.seconds for check in device.checks):.1f} s"
    terminal.print_line(text, head=f"{device.label:<11}", fg=STYLES[device.status])
    for check in device.checks:
        message = check.message or ""
        if terminal.verbose:
            line = f"  {check.name:<22} {check.status:<8} {check.seconds:7.3f} s  {message}"
            terminal.print_line(line.rstrip())
        elif check.status in PRINTED_STATUSES.get(check.name, ()) and message:
            terminal.print_line(f"  {check.name:<16} {message}")
