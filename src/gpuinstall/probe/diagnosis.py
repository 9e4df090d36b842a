"""What is wrong with the machine as a whole: the first cause that the facts show. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.probe.absence import DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, NO_DEVICE, lent_nothing, no_driver
from gpuinstall.probe.chips import BLACKWELL
from gpuinstall.probe.cuda_problems import Scene, refusal
from gpuinstall.probe.fault import fault, fault_of_driver, seen
from gpuinstall.probe.nvml import NO_PERMISSION

if TYPE_CHECKING:
    from gpuinstall.machine import Problem
    from gpuinstall.probe.evidence import Evidence

MISMATCH, UNKNOWN = 18, 999


def machine_fault(evidence: Evidence) -> Problem | None:
    """Name what keeps the whole machine from working; None where nothing does, or where there is no GPU."""
    return next((found for cause in _CAUSES if (found := cause(evidence))), None)


def _driver_dies(evidence: Evidence) -> Problem | None:
    """A library of the driver hangs or crashes; libcuda's fault counts only where a GPU is seen."""
    nvml, cuda = evidence.nvml, evidence.cuda
    if nvml.fault in ("timeout", "crash"):
        card = "" if nvml.at is None else f" when asked about GPU {nvml.at}"
        return _death(evidence, nvml.fault, "NVML", card, nvml.error)
    if cuda.fault in ("timeout", "crash") and evidence.shows_gpu:
        return _death(evidence, cuda.fault, "libcuda", "", cuda.error)
    return None


def _death(evidence: Evidence, how: str, library: str, card: str, words: str | None) -> Problem:
    if how == "crash":
        return fault_of_driver(evidence, "driver-crashes", f"{library} crashes{card}", words or "")
    why = "a card or its kernel module no longer answers, or many cards start without persistence"
    return fault(evidence, "driver-hangs", f"{library} does not answer{card}", why)


def _mismatch(evidence: Evidence) -> Problem | None:
    if evidence.nvml.init != MISMATCH:
        return None
    module = evidence.kernel.module
    kernel, library = (f" ({module.version})" if module else ""), _release_of(evidence.nvml.library)
    message = f"the NVIDIA kernel module{kernel} and the driver's libraries{library} differ"
    if evidence.surroundings.container:
        why = "the image carries driver libraries of its own, or the host's driver was updated under the container"
    else:
        why = "the driver was updated and the machine has not been restarted since"
    return fault(evidence, "driver-library-mismatch", message, why)


def _not_permitted(evidence: Evidence) -> Problem | None:
    if evidence.nvml.init != NO_PERMISSION:
        return None
    why = "; ".join(evidence.refused) or "the device nodes below /dev do not admit this user"
    return fault(evidence, "device-nodes-unusable", "this user may not open the NVIDIA driver", why)


def _nvml_fails(evidence: Evidence) -> Problem | None:
    init = evidence.nvml.init
    if not init or init in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        return None
    if init == UNKNOWN and evidence.surroundings.container:
        why = "systemd rewrote the container's device rules while it ran"
        return fault(evidence, "gpu-withdrawn-from-container", "this container has lost its GPUs", why)
    code = "nvml-unknown-error" if init == UNKNOWN else "nvml-error"
    why = "; ".join(evidence.refused) or "the driver is loaded, and fails"
    return fault(evidence, code, f"NVML cannot be initialized (error {init})", why)


def _libcuda_missing(evidence: Evidence) -> Problem | None:
    if evidence.cuda.fault not in ("missing", "unloadable") or not evidence.nvml.gpus:
        return None
    if evidence.surroundings.container:
        return lent_nothing(evidence, "the container was lent NVML and not libcuda")
    message = "NVML sees a GPU, and libcuda cannot be loaded"
    return fault(evidence, "libcuda-missing", message, evidence.cuda.error or "libcuda.so.1 is not installed")


def _cuda_refuses(evidence: Evidence) -> Problem | None:
    init = evidence.cuda.init
    if not init or not evidence.shows_gpu:
        return None
    if init == NO_DEVICE and (_is_explained(evidence) or _is_job_without_gpus(evidence)):
        return None
    found = refusal(init, _scene(evidence))
    facts = (found.seen, str(evidence.fabric) if evidence.fabric else None, seen(evidence))
    return replace(found, seen=" · ".join(fact for fact in facts if fact))


def _scene(evidence: Evidence) -> Scene:
    gpus, module = evidence.nvml.gpus, evidence.kernel.module
    return Scene(
        wsl=evidence.wsl is not None,
        container=evidence.surroundings.container,
        context=evidence.place,
        driver=module.version if module else evidence.nvml.driver,
        library=evidence.cuda.path,
        blackwells=sum((gpu.compute_capability or (0, 0)) >= BLACKWELL for gpu in gpus),
        unsliced=bool(gpus) and all(gpu.mig and not gpu.slices for gpu in gpus),
        uvm=False if _withholds_uvm(evidence) else None,
    )


def _withholds_uvm(evidence: Evidence) -> bool:
    """CUDA's own node is refused and the one that it shares with NVML is not."""
    return len(evidence.refused) == 1 and evidence.refused[0].startswith("/dev/nvidia-uvm")


def _is_explained(evidence: Evidence) -> bool:
    """Say whether each card has a fault of its own, or the driver lists none of those on the bus."""
    return (
        evidence.nvml.works
        and bool(evidence.cards or evidence.nvml.gpus)
        and all(gpu.error is not None for gpu in evidence.nvml.gpus)
    )


def _is_job_without_gpus(evidence: Evidence) -> bool:
    return evidence.surroundings.job is not None and evidence.visible in ("", "-1", "NoDevFiles")


def _nothing_listed(evidence: Evidence) -> Problem | None:
    """Device nodes or /dev/dxg show a GPU, the driver answers, and lists none."""
    listed = evidence.cards or evidence.nvml.gpus or evidence.cuda.devices or evidence.jetson
    if listed or not evidence.shows_gpu or not (evidence.nvml.works or evidence.cuda_works):
        return None
    why = f"there is /dev/{evidence.nodes[0]}, and no card behind it" if evidence.nodes else "there is /dev/dxg"
    return fault(evidence, "no-device-found", "the NVIDIA driver finds no GPU", why)


def _release_of(library: str | None) -> str:
    version = (library or "").partition(".so.")[2]
    return f" ({version})" if "." in version else ""


_CAUSES = (
    _driver_dies,
    _mismatch,
    _not_permitted,
    no_driver,
    _nvml_fails,
    _libcuda_missing,
    _nothing_listed,
    _cuda_refuses,
)
