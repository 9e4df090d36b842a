"""Why CUDA refuses: what a CUresult means on one machine. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.failures.table import load_cuda_errors
from gpuinstall.machine.nvidia.evidence import drivers
from gpuinstall.machine.nvidia.libraries import is_compat
from gpuinstall.machine.symptoms import KnownFacts, Symptom, symptoms

if TYPE_CHECKING:
    from collections.abc import Sequence


class CudaRefusal(NamedTuple):
    """What a CUresult means, and by which facts."""

    symptom: Symptom
    circumstances: KnownFacts
    evidence: str


def explain_refusal(
    status: int,
    library: str | None,
    driver: DriverVersion | None,
    chips: Sequence[ComputeCapability | None],
    place: KnownFacts,
) -> CudaRefusal:
    """Return the closest row for a CUresult, else the one that the table of failures has for its number.

    Args:
        status: What CUDA returned.
        library: The file of libcuda.
        driver: The kernel module's release.
        chips: What the GPUs can execute.
        place: Further circumstances, such as ``container`` and ``wsl``.
    """
    path = library or ""
    release = library_release(path)
    differs = driver is not None and release not in (None, driver)
    # Only the open kernel module drives them.
    first = drivers().kernel_modules.open_only_from
    blackwells = [chip for chip in chips if chip and chip >= first]
    circumstances = {
        **place,
        f"cuda-{status}": True,
        "module": driver,
        "folder": PurePosixPath(path).parent if is_compat(path) else None,
        "foreign-library": "" if path.startswith("/usr/lib/wsl/") else path,
        "other-release": release if differs else None,
        "blackwell": bool(blackwells),
        "several-blackwells": len(blackwells) > 1,
    }
    name, code = load_cuda_errors().get(status, (f"CUresult {status}", "cuda-error"))
    symptom = next(symptoms("cuda", circumstances), Symptom(code))
    facts = [f"CUDA error {status} ({name})", driver and f"driver {driver}", library]
    return CudaRefusal(symptom, circumstances, " · ".join(filter(None, facts)))


def library_release(library: str) -> DriverVersion | None:
    """Return the driver's release in the name of libcuda's file; None if it has none."""
    _, _, release = library.rpartition("libcuda.so.")
    try:
        version = DriverVersion.parse(release)
    except ValueError:
        return None
    return version if len(version.parts) > 1 else None
