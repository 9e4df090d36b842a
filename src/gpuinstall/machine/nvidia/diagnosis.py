"""Faults of the driver and GPUs, based on ``symptoms.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Driver, Gpu
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.machine.bus import PciDevice, format_devices
from gpuinstall.machine.nvidia.evidence import NvidiaEvidence
from gpuinstall.machine.nvidia.gpus import DetectedGpu
from gpuinstall.machine.nvidia.libraries import (
    LIBCUDA,
    NVCUDA,
    is_compat,
    parse_libcuda_release,
)
from gpuinstall.machine.nvidia.linux import PROC_VERSION
from gpuinstall.machine.nvidia.rules import NvidiaRules
from gpuinstall.machine.prober import format_gpus, select_visible
from gpuinstall.machine.symptoms import (
    KnownFacts,
    Symptom,
    create_finding,
    create_findings,
    symptoms,
)

DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
"""NVML's error numbers."""

NO_FABRIC = 0
FABRIC_IN_PROGRESS = 2
FABRIC_READY = 3
"""NVML's states of a GPU's NVLink fabric."""

NO_DEVICE = 100
"""The CUDA error number if CUDA finds no device."""
LOST_CARD_STOPS = (3, NO_DEVICE, 999)
"""Possible results of cuInit if one GPU is lost."""
OF_WINDOWS = "/usr/lib/wsl/"
"""The folder of the Windows driver's libraries in WSL."""
WITHOUT_GPUS = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES in a job without GPUs."""


def find_problems(
    evidence: NvidiaEvidence, detected: Iterable[DetectedGpu]
) -> Iterator[Finding]:
    """Yield the faults of the driver and of GPUs, then non-blocking notes."""
    facts = _collect_facts(evidence, detected)
    line = format_evidence(evidence)
    fault = _diagnose_driver(evidence, facts, line)
    if fault:
        yield fault
    for gpu in evidence.nvml.gpus:
        circumstances: KnownFacts = {
            **gpu.facts,
            f"error-{gpu.error}": True,
            "without-slices": gpu.mig and not gpu.slices,
        }
        symptom = next(symptoms("gpu", circumstances), None)
        if symptom:
            context = evidence.create_fix_context()
            gpus = (gpu.index,)
            yield create_finding(
                symptom, circumstances, context, gpus=gpus, evidence=line
            )
    for found, card in detected:
        # If the driver works, it should list every GPU on the bus.
        if not fault and card and found.found_via == "pci":
            circumstances = _collect_card_facts(evidence, card)
            yield create_finding(
                next(symptoms("card", circumstances)),
                circumstances,
                evidence.create_fix_context([card]),
                gpus=(found.index,),
                evidence=line,
            )
    yield from create_findings("note", facts, evidence.create_fix_context)


def _diagnose_driver(
    evidence: NvidiaEvidence, circumstances: KnownFacts, line: str
) -> Finding | None:
    """Return the driver fault that affects the whole machine, if any."""
    symptom = next(symptoms("machine", circumstances), None)
    if symptom is None:
        init = evidence.cuda.init
        if not init or not evidence.shows_gpu or _is_explained(evidence, init):
            return None
        chips = [gpu.compute_capability for gpu in evidence.nvml.gpus]
        symptom, circumstances, error = explain_cuda_error(
            init, evidence.cuda.path, evidence.driver, chips, circumstances
        )
        line = f"{error} · {line}"
    context = evidence.create_fix_context(evidence.cards)
    return create_finding(symptom, circumstances, context, evidence=line)


def _collect_facts(
    evidence: NvidiaEvidence, detected: Iterable[DetectedGpu]
) -> KnownFacts:
    """Return the facts about the machine, by name, for matching symptoms."""
    facts, nvml, cuda, cards = (
        evidence.facts,
        evidence.nvml,
        evidence.cuda,
        evidence.cards,
    )
    silent = _is_driver_unresponsive(evidence)
    module = evidence.module and evidence.module.version
    nouveau = [card.name for card in cards if card.driver == "nouveau"]
    _, _, libraries = (nvml.library or "").partition(".so.")
    # Omit a release that equals the module's, because it does not explain the fault.
    has_other = "." in libraries and libraries != str(module)
    fabrics = {gpu.fabric for gpu in nvml.gpus}
    listed = [gpu for gpu, _ in detected if gpu.found_via in ("nvml", "libcuda")]
    visible = evidence.visible
    hides_all = listed and visible is not None and not select_visible(visible, listed)
    lost = tuple(gpu.index for gpu in nvml.gpus if gpu.error is not None)
    working = [gpu.uuid or str(gpu.index) for gpu in nvml.gpus if gpu.error is None]
    reserved = [card for card in evidence.others if card.is_reserved]
    withheld = [card for card in evidence.others if not card.is_reserved]
    return {
        **evidence.read,
        facts.machine.os: True,
        "wsl": facts.wsl is not None,
        "container": facts.container.engine,
        "job": facts.container.job,
        "place": facts.container.place,
        "kernel": facts.host.release,
        "shows-gpu": evidence.shows_gpu,
        "lists-gpu": cards or nvml.gpus or cuda.devices or facts.jetson,
        "answers": nvml.is_complete or cuda.init == 0,
        "silent": silent,
        **(_find_unsupported(evidence) if silent else {}),
        f"nvml-{nvml.fault or nvml.init}": True,
        "nvml-init": nvml.init,
        "nvml-error": nvml.error,
        "nvml-gpus": nvml.gpus,
        # NVML may fail while it queries a single GPU.
        "at-card": "" if nvml.at is None else f" while querying GPU {nvml.at}",
        f"libcuda-{cuda.fault or cuda.init}": True,
        "libcuda-init": cuda.init,
        "libcuda-error": cuda.error,
        "driver-crashes": cuda.fault == "crash" and evidence.shows_gpu,
        "hides-windows": _find_hiding_library(evidence) if silent else None,
        "none-has-slices": nvml.gpus
        and all(gpu.mig and not gpu.slices for gpu in nvml.gpus),
        # This fact is true if CUDA's own device node is the only one that cannot be opened.
        "without-uvm": evidence.read["refused"].startswith("/dev/nvidia-uvm"),
        "libraries": evidence.has_libraries,
        "of-libraries": f" ({libraries})" if has_other else "",
        "module": module,
        "of-module": f" ({module})" if module else "",
        "card": cards[0].name if cards else "the GPU of this machine",
        "nouveau": nouveau[0] if nouveau else None,
        "node": f"/dev/{evidence.nodes[0]}" if evidence.nodes else "/dev/dxg",
        "fabric-in-progress": FABRIC_IN_PROGRESS in fabrics,
        "without-fabric": bool(fabrics) and fabrics <= {NO_FABRIC, FABRIC_READY},
        "reserved": format_devices(reserved),
        "reserved-for": reserved[0].driver if reserved else None,
        "withheld": format_devices(withheld),
        "lost": format_gpus(lost) if lost else None,
        "visible": ",".join(working),
        "hides-all": repr(visible) if hides_all else None,
    }


def _find_hiding_library(evidence: NvidiaEvidence) -> str | None:
    """Return the Linux library in WSL that hides a working Windows driver."""
    if not evidence.windows_libraries:
        return None
    loaded = filter(None, (evidence.cuda.path, evidence.nvml.library))
    return next((path for path in loaded if not path.startswith(OF_WINDOWS)), None)


def _find_unsupported(evidence: NvidiaEvidence) -> KnownFacts:
    """Return the fault of a driver that supports none of the GPUs."""
    driver = evidence.driver or parse_libcuda_release(evidence.cuda.path)
    faults = [_find_card_fault(evidence, card, driver) for card in evidence.cards]
    first = faults[0] if faults and all(faults) else None
    return {first.code: first.message} if first else {}


def _is_driver_unresponsive(evidence: NvidiaEvidence) -> bool:
    """Return whether the driver lists no GPU although another source does.

    An unresponsive driver is one for which NVML returns 9 or 12, or neither NVML nor
    libcuda lists a device. A container with a working libcuda but without NVML is
    healthy, because it is limited to compute.
    """
    nvml = evidence.nvml
    cuda = evidence.cuda
    # On a Jetson, NVML reports little, and the L4T release identifies the driver.
    is_tegra = evidence.facts.jetson is not None and not evidence.cards
    if is_tegra or not evidence.shows_gpu:
        return False
    is_refused = nvml.fault is None and nvml.init in (
        DRIVER_NOT_LOADED,
        LIBRARY_NOT_FOUND,
    )
    says_nothing = nvml.fault in ("missing", "unasked", "crash")
    is_without_cuda = cuda.fault == "missing" or cuda.init == NO_DEVICE
    return is_refused or (says_nothing and is_without_cuda)


class CudaFault(NamedTuple):
    """CUDA error with its symptom and the facts that fill in the message."""

    symptom: Symptom
    circumstances: KnownFacts
    evidence: str


def explain_cuda_error(
    status: int,
    library: str | None,
    driver: DriverVersion | None,
    chips: Sequence[ComputeCapability | None],
    place: KnownFacts,
) -> CudaFault:
    """Explain a CUDA error by ``symptoms.toml`` or the table of failures.

    Args:
        status: The CUDA error number.
        library: The path of libcuda.
        driver: The release of the kernel module.
        chips: The compute capabilities of the GPUs.
        place: Further facts, such as ``container`` and ``wsl``.
    """
    path = library or ""
    release = parse_libcuda_release(library)
    # GPUs of this and later generations need the open kernel module.
    first = load_drivers().kernel_modules.open_only_from
    blackwells = [chip for chip in chips if chip and chip >= first]
    circumstances = {
        **place,
        f"cuda-{status}": True,
        "module": driver,
        "folder": PurePosixPath(path).parent if is_compat(path) else None,
        # In WSL, any libcuda except the one from Windows is foreign.
        "foreign-library": "" if path.startswith(OF_WINDOWS) else path,
        "other-release": release if driver and release != driver else None,
        "several-blackwells": len(blackwells) > 1,
    }
    # Import the table of failures only here, because a healthy machine does not need it.
    from gpuinstall.catalog.failures.table import load_cuda_errors

    name, code = load_cuda_errors().get(status, (f"CUresult {status}", "cuda-error"))
    symptom = next(symptoms("cuda", circumstances), Symptom(code))
    facts = [f"CUDA error {status} ({name})", driver and f"driver {driver}", library]
    return CudaFault(symptom, circumstances, " · ".join(filter(None, facts)))


def _is_explained(evidence: NvidiaEvidence, init: int) -> bool:
    """Return whether a job or faulty GPUs explain the failure of cuInit."""
    gpus = evidence.nvml.gpus
    lost = [gpu for gpu in gpus if gpu.error is not None]
    # A single lost GPU can cause cuInit to fail. The preflight tests each of the other GPUs separately.
    if (
        evidence.nvml.is_complete
        and init in LOST_CARD_STOPS
        and 0 < len(lost) < len(gpus)
    ):
        return True
    if init != NO_DEVICE:
        return False
    if evidence.facts.container.job is not None and evidence.visible in WITHOUT_GPUS:
        return True
    # Each GPU has its own fault, or the driver lists none of the GPUs on the bus.
    have_faults = all(gpu.error is not None for gpu in gpus)
    return evidence.nvml.is_complete and bool(evidence.cards or gpus) and have_faults


def format_evidence(evidence: NvidiaEvidence) -> str:
    """Return the evidence for a driver fault in one line."""
    nvml = evidence.nvml
    cuda = evidence.cuda
    module = evidence.module
    cuda_library = NVCUDA if evidence.facts.machine.os == "windows" else LIBCUDA
    facts = []
    for card in evidence.cards[:2]:
        holder = f" (held by {card.driver_text})" if card.driver_text else ""
        facts.append(f"{card.name}{holder} on the bus")
    if len(evidence.cards) > 2:
        facts.append(f"{len(evidence.cards) - 2} more")
    if module:
        facts.append(f"{PROC_VERSION} {module.version}")
    elif evidence.facts.machine.os == "linux" and not evidence.facts.wsl:
        facts.append("no NVIDIA kernel module")
    for library, name, count, refusal in (
        (nvml, nvml.library or "nvml", len(nvml.gpus), "NVML error"),
        (cuda, cuda.path or cuda_library, len(cuda.devices), "cuInit returned"),
    ):
        if library.fault is not None:
            facts.append(f"{name}: {library.error or 'cannot be loaded'}")
        elif library.init is not None:
            answer = f"{refusal} {library.init}" if library.init else f"{count} listed"
            facts.append(f"{name}: {answer}")
    return " · ".join(facts)


def _collect_card_facts(evidence: NvidiaEvidence, card: PciDevice) -> KnownFacts:
    """Return the facts about a GPU that the driver does not list."""
    circumstances: dict[str, object] = {
        "card": card.name,
        "driver": evidence.driver,
        "nouveau": card.driver == "nouveau",
    }
    chip = card.capability
    if chip is None:
        return circumstances
    ignored = _find_card_fault(evidence, card, evidence.driver)
    if ignored:
        circumstances[ignored.code] = ignored.message
    module = evidence.module
    modules = load_drivers().kernel_modules
    return {
        **circumstances,
        "open-module": module and module.open,
        "closed-module": module and not module.open,
        "before-open-module": chip < modules.open_from,
        "after-closed-module": chip >= modules.open_only_from,
    }


def _find_card_fault(
    evidence: NvidiaEvidence, card: PciDevice, driver: DriverVersion | None
) -> Finding | None:
    """Return a finding if a driver release does not support a GPU."""
    if card.capability is None or driver is None:
        return None
    machine = replace(evidence.facts.machine, driver=Driver(driver))
    gpu = Gpu(0, card.label, compute_capability=card.capability)
    return NvidiaRules(machine, load_catalog()).find_gpu_fault(gpu)
