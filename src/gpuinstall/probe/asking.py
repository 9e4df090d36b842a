"""Asking the driver's libraries and programs, each in a child process; a recording answers as they did then."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from gpuinstall.probe import nvml, smi
from gpuinstall.probe.child import run_children, time_limit
from gpuinstall.probe.job import job_devices
from gpuinstall.probe.libcuda import LibcudaFacts, child_command, child_environment, parse
from gpuinstall.process import Finished

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuinstall.probe.source import Source
    from gpuinstall.reporter import Reporter

Patience = tuple[float, "Callable[[], None]"]


def ask_nvml(source: Source, reporter: Reporter, gpus: int) -> nvml.NvmlFacts:
    """Ask NVML."""
    command, environment = nvml.child_command(), child_environment(os.environ)
    finished = _asked(source, "nvml.txt", command, environment, patience(reporter, "NVML", gpus))
    return nvml.parse(finished) if finished else nvml.NvmlFacts()


def ask_libcuda(source: Source, reporter: Reporter, gpus: int) -> LibcudaFacts:
    """Ask libcuda; in a scheduler's job only about the cards given."""
    command, environment = child_command("devices"), child_environment(os.environ, job_devices(os.environ))
    finished = _asked(source, "libcuda.txt", command, environment, patience(reporter, "libcuda", gpus))
    return parse(finished) if finished else LibcudaFacts()


def ask_smi(source: Source, reporter: Reporter, gpus: int) -> nvml.NvmlFacts:
    """Ask nvidia-smi."""
    return smi.parse(source.answer("nvidia-smi.txt", lambda: smi.ask_smi(*patience(reporter, "nvidia-smi", gpus))))


def patience(reporter: Reporter, who: str, gpus: int) -> Patience:
    """The seconds that somebody may take for so many GPUs, and what to say after the first three."""
    limit = time_limit(gpus)
    return limit, lambda: reporter.wait(f"waiting for {who}, up to {limit:.0f} s")


def _asked(
    source: Source, name: str, command: Sequence[str], environment: Mapping[str, str], patience: Patience
) -> Finished | None:
    """Run a child, or read what it answered on a recorded machine; None where nobody asked there."""
    return parse_child(source.answer(name, lambda: written_child(run_children([(command, environment)], *patience)[0])))


def written_child(finished: Finished) -> str:
    """Write how a child ended, and what it had said by then."""
    return f"status {finished.status}\n{finished.out}"


def parse_child(text: str) -> Finished | None:
    """Read that back."""
    match = re.match(r"status (None|-?[0-9]{1,5})\n", text)
    status = None if match is None or match[1] == "None" else int(match[1])
    return Finished((), status, text[match.end() :], "") if match else None
