"""Format a machine as one line or as labeled rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpuinstall.base.machine import Gpu, Machine

_UNKNOWN_ARCHITECTURE = "architecture unknown"
_UNKNOWN_RELEASE = "of unknown release"


def format_machine(machine: Machine) -> str:
    """Format a machine's GPUs, driver, and system as one line."""
    parts = [format_gpu_kinds(machine)]
    if machine.driver:
        cuda = f" (CUDA {machine.driver.cuda})" if machine.driver.cuda else ""
        parts.append(f"driver {machine.driver.version or _UNKNOWN_RELEASE}{cuda}")
    parts.append(machine.distribution or f"{machine.os} {machine.arch}")
    return " · ".join(parts)


def format_gpu_kinds(machine: Machine) -> str:
    """Format a machine's GPUs, such as ``2 × RTX 4090 (sm_89, 24 GB)``."""
    kinds = [
        f"{count} × {kind}" if count > 1 else kind
        for kind, count in Counter(map(_format_gpu, machine.gpus)).items()
    ]
    return ", ".join(kinds) or "no GPU"


def _format_gpu(gpu: Gpu) -> str:
    details = [gpu.code_name] if gpu.code_name else []
    if gpu.memory_mib:
        details.append(f"{round(gpu.memory_mib / 1024)} GB")
    return f"{gpu.name or gpu.label} ({', '.join(details) or _UNKNOWN_ARCHITECTURE})"


def list_machine_facts(machine: Machine) -> Iterator[tuple[str, str]]:
    """Yield a labeled text for each fact about a machine, with its source."""
    for gpu in machine.gpus:
        parts = [
            gpu.label,
            gpu.code_name or _UNKNOWN_ARCHITECTURE,
            f"{gpu.memory_mib} MiB" if gpu.memory_mib else None,
            gpu.pci_id,
            gpu.uuid,
            gpu.found_via and f"by {gpu.found_via}",
        ]
        yield f"GPU {gpu.index}", " · ".join(filter(None, parts))
        for part in gpu.mig_devices:
            yield "", f"MIG {part.profile or ''} · {part.uuid}"
    if machine.driver:
        driver = machine.driver
        parts = [
            str(driver.version or _UNKNOWN_RELEASE),
            driver.cuda and f"CUDA {driver.cuda}",
            driver.found_via and f"by {driver.libcuda or driver.found_via}",
        ]
        yield "Driver", " · ".join(filter(None, parts))
    parts = [
        f"{machine.os} {machine.arch}",
        machine.distribution,
        machine.libc and f"{machine.libc} {machine.glibc or ''}".strip(),
        "WSL" if machine.environment.wsl else None,
        machine.environment.container,
    ]
    yield "System", " · ".join(filter(None, parts))
    if machine.pythons:
        yield "Pythons", ", ".join(machine.pythons)
