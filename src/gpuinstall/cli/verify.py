"""``gpuinstall verify``: kernels on every GPU of any environment, and how fast they are."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.advice import OURS, Advice
from gpuinstall.cli import options
from gpuinstall.cli.active import command_for_active, name_active
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import refusals
from gpuinstall.environments.environment import read_marker, read_origin
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import LockError, MachineError, UsageError, VerificationError
from gpuinstall.files import read_json, write_text
from gpuinstall.verify.kernels.programs import PROGRAMS
from gpuinstall.verify.runner import fail_devices, verify_environment
from gpuinstall.verify.verdict import Device, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Machine
    from gpuinstall.verify.bench import Bench, BenchChange, Measurement


STYLES = {"passed": "green", "failed": "red", "unproven": "yellow"}
WORTH_A_WORD = ("ecc", "clocks", "pcie-link", "peer-to-peer", "compile", "build")
PROGRAM_CHECKS = {program.check for program in PROGRAMS}

BAR = 24


def _show_verdict(terminal: Terminal, verdict: Verdict, python: Path) -> None:
    tested = verdict.environment
    torch = f"torch {tested.torch}" if tested.torch else "torch cannot be imported"
    terminal.field("Environment", f"{torch} · Python {tested.python} · {python}")
    for device in verdict.devices:
        _show_device(terminal, device)
        for fault in device.faults:
            mark = f"   [{fault.id}]" if fault.id else ""
            terminal.prose(f"  {fault.message}{mark}", 4)
            if fault.why:
                terminal.prose(f"    why   {fault.why}", 10)
            for label, command in zip(
                ("do   ", "or   ", "or   "), map(str, fault.fixes), strict=False
            ):
                terminal.line(
                    f"    {label} " + command.removeprefix("or ").replace("\n", "\n" + " " * 10)
                )
    unproven = [device.label for device in verdict.devices if device.status == "unproven"]
    if unproven:
        terminal.warn(
            f"unproven: {', '.join(unproven)}; run gpuinstall verify when they are available"
        )


def _show_device(terminal: Terminal, device: Device) -> None:
    status = terminal.style(device.status, STYLES[device.status])
    name = "" if device.label == device.name else f"{device.name}: "
    terminal.field(device.label, f"{name}{status}{_detail(device)}")
    if terminal.verbose:
        for check in device.checks:
            terminal.line(
                f"  {check.name:<22} {check.status:<8} {check.seconds:7.3f} s  {check.message or ''}".rstrip()
            )
        return
    for check in device.checks:
        left_out = check.name in PROGRAM_CHECKS and check.status == "skipped"
        if (left_out or check.name in WORTH_A_WORD) and check.status != "failed" and check.message:
            terminal.prose(f"  {check.name:<16} {check.message}", 19)


def _detail(device: Device) -> str:
    if device.status == "unproven":
        return f": {device.unproven}"
    statuses = Counter(check.status for check in device.checks)
    if device.status == "failed":
        return f" in {statuses['failed']} of {len(device.checks)} checks"
    skipped = f", {statuses['skipped']} skipped" if statuses["skipped"] else ""
    return f", {statuses['passed']} checks{skipped}, {sum(check.seconds for check in device.checks):.1f} s"


def _show_bench(terminal: Terminal, bench: Bench) -> None:
    for device in bench.devices:
        terminal.line()
        terminal.field("Measured", f"{device.name}, torch {bench.torch}")
        for measurement in device.measurements:
            terminal.line(_line(measurement))
        for name, reason in device.left_out.items():
            terminal.line(f"  {name:<24} left out: {reason}")


def _show_bench_changes(terminal: Terminal, changes: Sequence[BenchChange], earlier: Bench) -> None:
    names = ", ".join(device.name for device in earlier.devices)
    other = "" if changes else ": the two runs have no measurement in common"
    terminal.line()
    terminal.field("Against", f"{names}, torch {earlier.torch}{other}")
    for change in changes:
        text = f"  {change.name:<24} {change.before:>10.4g} → {change.now:<10.4g} {change.unit:<8} {change.gain:+.0%}"
        terminal.line(terminal.style(text, "red") if change.worse else text)


def _line(measurement: Measurement) -> str:
    text = f"  {measurement.name:<24} {measurement.value:>10.4g} {measurement.unit:<8}"
    if measurement.settings:
        return f"{text} with {', '.join(f'{key}={value}' for key, value in measurement.settings.items())}"
    if measurement.share is None:
        return text.rstrip()
    filled = round(BAR * min(measurement.share, 1.0))
    return f"{text} {'█' * filled}{'░' * (BAR - filled)} {measurement.share:.0%} of {measurement.ceiling:.4g}"


@click.command("verify")
@click.option("--python", metavar="PATH", help="The interpreter of any environment.")
@options.venv
@click.option(
    "--deep",
    is_flag=True,
    help="Also check attention, FP8, sparsity, solvers, graphs, compiler, NCCL.",
)
@click.option(
    "--require-gpu", is_flag=True, help="Fail if no kernel ran on a GPU (for CI and cluster nodes)."
)
@click.option("--bench", is_flag=True, help="Measure speed, beside the GPU's published figures.")
@click.option("--against", metavar="FILE", help="With --bench: compare with an earlier run.")
@click.option("--save", metavar="FILE", help="With --bench: save the run for a later --against.")
@framed("verify")
def command(
    terminal: Terminal,
    *,
    python: str | None,
    venv: str,
    deep: bool,
    require_gpu: bool,
    bench: bool,
    against: str | None,
    save: str | None,
) -> Outcome:
    """Run kernels on every GPU of an environment; where it is for the CPU, on the CPU."""
    from gpuinstall.environments.records import say_stranger
    from gpuinstall.probe import read_machine
    from gpuinstall.verify.bench import bench_environment

    if (against or save) and not bench:
        raise UsageError(
            "usage", "--against and --save require --bench", hint="the same with --bench"
        )
    earlier = _read_bench(Path(against)) if against else None
    if save and (not Path(save).absolute().parent.is_dir() or Path(save).is_dir()):
        # Refused before the minutes of measuring that could not be written after them.
        raise UsageError("file-unwritable", f"{save} is not a writable file")
    if not python:
        name_active("verify", Path(venv), terminal)
    target = _interpreter(python, Path(venv))
    machine = read_machine(terminal)
    origin = read_origin(target.parent.parent, machine)
    left_out = [
        gpu for gpu in machine.gpus if origin.gpus is not None and gpu.index not in origin.gpus
    ]
    if left_out:
        names = ", ".join(f"GPU {gpu.index} ({gpu.label})" for gpu in left_out)
        terminal.warn(f"this environment was made without {names}")
    if not python:
        say_stranger(target.parent.parent, terminal)
    verdict = verify_environment(
        target,
        machine,
        asked_cpu=origin.for_cpu,
        gpus=origin.gpus,
        deep=deep,
        surroundings=True,
        wheels=_locked_wheels(target.parent.parent) if deep else None,
        reporter=terminal,
    )
    # What fails on a machine that runs no build at all fails by the machine.
    if verdict.status == "failed" and not origin.for_cpu and (refusing := refusals(machine)):
        machine = machine.with_problems(refusing)
        verdict = replace(verdict, devices=tuple(fail_devices(verdict.devices, refusing)))
    if require_gpu and verdict.status != "failed" and not verdict.proves_gpus:
        devices = "\n".join(
            f"{device.label}: {device.unproven or device.status}" for device in verdict.devices
        )
        hint = Advice(OURS, ("probe",), note="shows what this machine was given")
        message = "no kernel ran on a GPU"
        raise VerificationError(
            "no-gpu-proven", message, evidence=devices, hint=hint, data=verdict.to_dict()
        )
    outcome = _outcome(verdict, machine, target)
    if not bench or verdict.status == "failed":
        return outcome
    run = bench_environment(target, machine, for_cpu=origin.for_cpu, reporter=terminal)
    if save:
        write_text(Path(save), json.dumps(run.to_dict(), indent=2) + "\n")
    return _with_bench(outcome, run, earlier)


def _interpreter(python: str | None, venv: Path) -> Path:
    if python:
        program = shutil.which(python)
        if program is None:
            raise UsageError(
                "python-missing",
                f"no such interpreter: {python}",
                hint="gpuinstall verify --venv DIR",
            )
        return Path(program).absolute()
    target = interpreter(venv.absolute())
    if not (target.is_file() or (venv / "pyvenv.cfg").is_file()):
        other = command_for_active("verify", venv) or "gpuinstall verify --venv DIR"
        hint = f"gpuinstall install   # makes one\n{other}   # tries another, or with --python PATH"
        raise UsageError("environment-missing", f"there is no environment at {venv}", hint=hint)
    return target


def _locked_wheels(venv: Path) -> dict[str, Path]:
    """The wheels of an environment's lock as uv's cache holds them, unpacked."""
    from gpuinstall import uv
    from gpuinstall.lock.lock import read_lock
    from gpuinstall.lock.transfer import cached_wheel

    marker, cache = read_marker(venv), uv.cache_folder(os.environ)
    with suppress(LockError):
        files = read_lock(venv / marker.lock).files if marker else ()
        return {file.package: folder for file in files if (folder := cached_wheel(file, cache))}
    return {}


def _outcome(verdict: Verdict, machine: Machine, python: Path) -> Outcome:
    errors = tuple(
        {
            "code": machine.refusing[0].code if fault.where == "machine" else fault.code,
            "message": f"{device.label}: {fault.message}",
            "hint": next(map(str, fault.fixes), None),
        }
        for device in verdict.devices
        for fault in device.faults
    )
    kind = MachineError if verdict.refused else VerificationError
    failed = verdict.status == "failed"
    show = partial(_show_verdict, verdict=verdict, python=python)
    return Outcome(
        verdict.to_dict(),
        show,
        "error" if failed else "success",
        kind.exit_code if failed else 0,
        errors,
    )


def _with_bench(outcome: Outcome, run: Bench, earlier: Bench | None) -> Outcome:
    from gpuinstall.verify.bench import compare

    changes = compare(run, earlier) if earlier else ()
    data: dict[str, Any] = outcome.data | {"bench": run.to_dict()}
    data |= {"changes": [change.to_dict() for change in changes]} if earlier else {}

    def show(terminal: Terminal) -> None:
        outcome.show(terminal)
        _show_bench(terminal, run)
        if earlier:
            _show_bench_changes(terminal, changes, earlier)

    return outcome._replace(data=data, show=show)


def _read_bench(path: Path) -> Bench:
    from gpuinstall.verify.bench import Bench

    try:
        return Bench.from_dict(read_json(path))
    except OSError as error:
        raise UsageError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError("bench-malformed", f"{path} is not a file written by --save") from None
