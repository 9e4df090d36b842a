"""``gpuinstall verify``: kernels on every GPU of any environment, and how fast they are."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.advice import OURS, Advice
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.verify_view import show_bench, show_changes, show_verdict
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import LockError, MachineError, UsageError, VerificationError
from gpuinstall.files import parse_json, write_text

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Machine
    from gpuinstall.verify import Verdict
    from gpuinstall.verify.bench import Bench


@click.command("verify")
@click.option("--python", metavar="PATH", help="The interpreter of the environment: any, ours or not.")
@options.venv
@click.option("--deep", is_flag=True, help="Check attention, FP8, sparsity, solvers, graphs, the compiler, NCCL too.")
@click.option("--require-gpu", is_flag=True, help="Fail where no kernel ran on a GPU: for CI, for nodes.")
@click.option("--bench", is_flag=True, help="Measure how fast it is, beside what the card is published to reach.")
@click.option("--against", metavar="FILE", help="With --bench: compare with an earlier run.")
@click.option("--save", metavar="FILE", help="With --bench: write the run for a later --against.")
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
    from gpuinstall.environments.environment import read_origin
    from gpuinstall.environments.records import say_stranger
    from gpuinstall.probe import read_machine
    from gpuinstall.verify import verify_environment
    from gpuinstall.verify.bench import bench_environment

    if (against or save) and not bench:
        raise UsageError("usage", "--against and --save belong to --bench", hint="gpuinstall verify --bench")
    earlier = _read_bench(Path(against)) if against else None
    if save and (not Path(save).absolute().parent.is_dir() or Path(save).is_dir()):
        # Refused before the minutes of measuring that could not be written after them.
        raise UsageError("file-unwritable", f"{save} cannot be written: its folder is missing, or it is one")
    target = _interpreter(python, Path(venv))
    machine = read_machine(terminal)
    origin = read_origin(target.parent.parent, machine)
    left_out = [gpu for gpu in machine.gpus if origin.gpus is not None and gpu.index not in origin.gpus]
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
    if require_gpu and verdict.status != "failed" and not verdict.proves_gpus:
        devices = "\n".join(f"{device.label}: {device.unproven or device.status}" for device in verdict.devices)
        hint = Advice(OURS, ("probe",), note="shows what this machine was given")
        message = "no kernel ran on a GPU"
        raise VerificationError("no-gpu-proven", message, evidence=devices, hint=hint, data=verdict.to_dict())
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
            raise UsageError("python-missing", f"there is no interpreter {python}", hint="gpuinstall verify --venv DIR")
        return Path(program).absolute()
    target = interpreter(venv.absolute())
    if not (target.is_file() or (venv / "pyvenv.cfg").is_file()):
        hint = "gpuinstall install   # makes one\ngpuinstall verify --venv DIR   # tries another, or with --python PATH"
        raise UsageError("environment-missing", f"there is no environment at {venv}", hint=hint)
    return target


def _locked_wheels(venv: Path) -> dict[str, Path]:
    """The wheels of an environment's lock as uv's cache holds them, unpacked."""
    from gpuinstall import uv
    from gpuinstall.environments.environment import read_marker
    from gpuinstall.install.space import cached_wheel
    from gpuinstall.lock.lock import read_lock

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
    show = partial(show_verdict, verdict=verdict, python=python)
    return Outcome(verdict.to_dict(), show, "error" if failed else "success", kind.exit_code if failed else 0, errors)


def _with_bench(outcome: Outcome, run: Bench, earlier: Bench | None) -> Outcome:
    from gpuinstall.verify.bench import compare

    changes = compare(run, earlier) if earlier else ()
    data: dict[str, Any] = outcome.data | {"bench": run.to_dict()}
    data |= {"changes": [change.to_dict() for change in changes]} if earlier else {}

    def show(terminal: Terminal) -> None:
        outcome.show(terminal)
        show_bench(terminal, run)
        if earlier:
            show_changes(terminal, changes, earlier)

    return outcome._replace(data=data, show=show)


def _read_bench(path: Path) -> Bench:
    from gpuinstall.verify.bench import Bench

    try:
        return Bench.from_dict(parse_json(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UsageError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError("bench-malformed", f"{path} is not a JSON file written by --save") from None
