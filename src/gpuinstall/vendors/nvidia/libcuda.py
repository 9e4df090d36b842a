"""What libcuda says: how its initialization ended, the newest CUDA that it serves, its devices.

It is asked in a child process (:mod:`gpuinstall.vendors.nvidia.libcuda_child`); here is its environment, with the
GPUs that it is shown, and its answer.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.facts.children import ask_child, death, last_answer
from gpuinstall.facts.container import JOBS
from gpuinstall.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.facts.source import Source
    from gpuinstall.machine import Gpu
    from gpuinstall.process import Finished

LibraryFault = Literal["missing", "unloadable", "timeout", "crash"]

_CHILD = Path(__file__).with_name("libcuda_child.py")

_MISLEADING = frozenset({"LD_PRELOAD", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_VISIBLE_DEVICES"})
_NAMES_A_DEVICE = re.compile(r"[0-9]+|(?:GPU|MIG)-.+")
_STEADY = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}


@dataclass(frozen=True)
class CudaDevice:
    """One device as CUDA sees it, in PCI order; a fact that the driver did not give is None."""

    name: str | None = None
    uuid: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_bytes: int | None = None
    bus_id: str | None = None


@dataclass(frozen=True)
class LibcudaFacts:
    """``path`` is the file that the loader took, ``init`` the number that cuInit returned.

    Where there is no such number, ``fault`` says why and ``error`` says it in the loader's or the system's words.
    With MIG, CUDA shows a process one slice and nothing else: ``devices`` is then shorter than NVML's list.
    """

    path: str | None = None
    init: int | None = None
    driver_version: CudaVersion | None = None
    devices: tuple[CudaDevice, ...] = ()
    fault: LibraryFault | None = None
    error: str | None = None


def ask_libcuda(source: Source, gpus: int) -> LibcudaFacts:
    """Ask libcuda, which has time for so many cards; in a scheduler's job only about the cards given."""
    command = (libcuda_command("devices"), child_environment(os.environ, job_devices(os.environ)))
    finished = ask_child(source, "libcuda.txt", "libcuda", gpus, command)
    return parse_libcuda(finished) if finished else LibcudaFacts()


def job_devices(environ: Mapping[str, str]) -> str | None:
    """The CUDA_VISIBLE_DEVICES of a scheduler's job; None outside a job, or where it narrows nothing."""
    return environ.get("CUDA_VISIBLE_DEVICES") if any(environ.get(name) for name in JOBS) else None


def is_visible(devices: str, ordinal: int, gpu: Gpu, name: str) -> bool:
    """Say whether CUDA_VISIBLE_DEVICES names a card, or the slice ``name`` of it.

    It holds the beginnings of UUIDs, and ordinals among the cards that this process may open; the first entry that
    can be neither (``-1``, ``NoDevFiles``) ends it.
    """
    entries = tuple(takewhile(_NAMES_A_DEVICE.fullmatch, (entry.strip() for entry in devices.split(","))))
    return str(ordinal) in entries or any(uuid.startswith(entries) for uuid in (name, gpu.uuid or name))


def parse_libcuda(finished: Finished) -> LibcudaFacts:
    """Read the child's answer, or its death."""
    answer = last_answer(finished)
    if answer is None:
        return LibcudaFacts(fault="timeout" if finished.status is None else "crash", error=f"libcuda {death(finished)}")
    if answer.get("path") is None:
        error = str(answer.get("error"))
        return LibcudaFacts(fault="missing" if "No such file" in error else "unloadable", error=error)
    try:
        version = answer.get("version")
        return LibcudaFacts(
            path=str(answer["path"]),
            init=int(answer.get("init", 0)),
            driver_version=None if version is None else CudaVersion.from_driver_api(int(version)),
            devices=tuple(_device(item) for item in answer.get("devices", ())),
        )
    except (AttributeError, OverflowError, TypeError, ValueError):
        return LibcudaFacts(fault="crash", error="libcuda's answer cannot be read")


def libcuda_command(*words: str) -> list[str]:
    """Start the child isolated from Python's own variables, site and user packages."""
    return [sys.executable, "-I", "-S", str(_CHILD), *words]


def child_environment(environ: Mapping[str, str], visible: str | None = None) -> dict[str, str]:
    """Take out what changes CUDA's answer; LD_LIBRARY_PATH stays, some systems have libcuda only there."""
    misleading = {name for name in environ if name in _MISLEADING or name.startswith("CUDA_INJECTION")}
    kept = {name: value for name, value in environ.items() if name not in misleading}
    return kept | _STEADY | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


def is_compat(library: str | None) -> bool:
    """Say whether a libcuda is NVIDIA's forward-compatibility package: ``/usr/local/cuda/compat``, ``cuda-compat``."""
    return any(part.rpartition("-")[2] == "compat" for part in PurePosixPath(library or "").parent.parts)


def _device(item: Mapping[str, Any]) -> CudaDevice:
    capability = item.get("compute_capability")
    return CudaDevice(
        name=item.get("name"),
        uuid=item.get("uuid"),
        compute_capability=None if capability is None else ComputeCapability(*capability),
        memory_bytes=item.get("memory_bytes"),
        bus_id=item.get("bus_id"),
    )
