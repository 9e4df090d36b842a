"""Detection of NVIDIA GPUs and their driver from the facts collected."""

from __future__ import annotations

from typing import NamedTuple

from gpuinstall.base.machine import Driver, Gpu, MigDevice
from gpuinstall.base.values import replace
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.machine.bus import PciDevice
from gpuinstall.machine.nvidia.evidence import NvidiaEvidence
from gpuinstall.machine.nvidia.libraries import (
    CudaDevice,
    NvmlGpu,
    parse_libcuda_release,
)


class DetectedGpu(NamedTuple):
    """Detected GPU, and the same GPU on the PCI bus if it is there."""

    gpu: Gpu
    card: PciDevice | None


def list_gpus(evidence: NvidiaEvidence) -> tuple[DetectedGpu, ...]:
    """Return the GPUs that NVML or CUDA lists, then other GPUs on the bus."""
    gpus = _list_nvml_gpus(evidence) or _list_cuda_gpus(evidence)
    if evidence.facts.jetson and not (gpus or evidence.cards):
        gpus = [_create_gpu(evidence, NvmlGpu(), CudaDevice(), "device-tree")]
    found = [detected.card for detected in gpus]
    index = max((detected.gpu.index for detected in gpus), default=-1)
    for card in evidence.cards:
        if card not in found:
            index += 1
            listed = NvmlGpu(index=index, bus_id=card.address)
            gpus.append(_create_gpu(evidence, listed, CudaDevice(), "pci"))
    return tuple(gpus)


def find_driver(evidence: NvidiaEvidence) -> Driver | None:
    """Return the machine's NVIDIA driver, if any.

    If another libcuda, such as cuda-compat's, takes precedence and works, it counts as
    the driver.
    """
    libcuda = evidence.cuda
    cuda = libcuda.driver_version or evidence.nvml.cuda
    if evidence.has_other_libcuda:
        if libcuda.init == 0:
            return Driver(
                parse_libcuda_release(libcuda.path), cuda, "libcuda", libcuda.path
            )
        cuda = evidence.nvml.cuda
    if evidence.nvml.driver:
        return Driver(evidence.nvml.driver, cuda, "nvml")
    if evidence.module:
        return Driver(evidence.module.version, cuda, "proc")
    if cuda and evidence.shows_gpu:
        return Driver(None, cuda, "libcuda")
    return None


def _list_nvml_gpus(evidence: NvidiaEvidence) -> list[DetectedGpu]:
    gpus = evidence.nvml.gpus
    addresses = {gpu.index: gpu.bus_id for gpu in gpus}
    # NVML reports no PCI address for a lost GPU. Some drivers report no address for any GPU. In that case, CUDA must
    # list the same number of GPUs.
    has_twins = len(evidence.cuda.devices) == len(gpus)
    unplaced = [
        gpu.index
        for gpu in gpus
        if gpu.bus_id is None and (has_twins or gpu.error is not None)
    ]
    cards = [card.address for card in evidence.cards]
    unlisted = [address for address in cards if address not in addresses.values()]
    if len(unplaced) == len(unlisted):
        # The unlisted addresses belong to these GPUs, in the order of the bus.
        addresses.update(zip(unplaced, unlisted, strict=True))
    detected = []
    for gpu, address in zip(gpus, addresses.values(), strict=True):
        listed = replace(gpu, bus_id=address)
        device = _find_device(evidence, listed)
        detected.append(_create_gpu(evidence, listed, device, "nvml"))
    return detected


def _list_cuda_gpus(evidence: NvidiaEvidence) -> list[DetectedGpu]:
    detected = []
    for index, device in enumerate(evidence.cuda.devices):
        listed = NvmlGpu(index=index, bus_id=device.bus_id)
        if device.uuid and device.uuid.startswith("MIG-"):
            part = MigDevice(device.uuid, None, device.memory_mib)
            listed = replace(listed, mig=True, slices=(part,))
        detected.append(_create_gpu(evidence, listed, device, "libcuda"))
    return detected


def _create_gpu(
    evidence: NvidiaEvidence,
    listed: NvmlGpu,
    device: CudaDevice,
    found_via: str,
) -> DetectedGpu:
    """Create a GPU from the facts of NVML, CUDA, and the catalog.

    Args:
        evidence: The evidence of the machine.
        listed: NVML's GPU, or only an index and address if another source lists it.
        device: CUDA's device, or an empty device if CUDA does not list it.
        found_via: The source that lists the GPU.
    """
    cards = {card.address: card for card in evidence.cards}
    card = cards.get(listed.bus_id or "")
    chip = card.chip if card else None
    jetson = evidence.facts.jetson
    tegra = jetson.chip if jetson else None
    # In MIG mode, CUDA's device is a slice of the GPU.
    whole = CudaDevice() if listed.mig else device
    uuid = listed.uuid or whole.uuid
    # Drop the UUID from a Jetson's NVML, such as 54d0709b-…, which CUDA would parse as the ordinal 54.
    is_usable = uuid and uuid.startswith("GPU-") and (listed.uuid or not jetson)
    name = listed.name or device.name
    capability = listed.compute_capability or device.compute_capability
    if chip:
        name = name or f"NVIDIA {chip.name}"
        capability = capability or chip.capability
    elif tegra:
        name = name or tegra.name
        capability = capability or tegra.capability
    # With unified memory, CUDA reports the memory of the whole machine.
    is_unified = device.compute_capability in load_drivers().unified_memory
    gpu = Gpu(
        index=listed.index,
        name=name,
        uuid=uuid if is_usable else None,
        pci_id=listed.pci_id or (card.id if card else None),
        compute_capability=capability,
        memory_mib=listed.memory_mib or (None if is_unified else whole.memory_mib),
        mig=listed.mig,
        mig_devices=listed.slices,
        found_via=found_via,
    )
    return DetectedGpu(gpu, card)


def _find_device(evidence: NvidiaEvidence, listed: NvmlGpu) -> CudaDevice:
    """Return the CUDA device of a GPU that NVML lists, or an empty one."""
    devices = evidence.cuda.devices
    gpus = evidence.nvml.gpus
    # On a Jetson, NVML reports no address, and its UUID lacks CUDA's prefix. Other drivers may report neither an address
    # nor a UUID.
    has_uuid = listed.uuid is not None and listed.uuid.startswith("GPU-")
    are_alike = len(devices) == len(gpus) and not any(gpu.mig for gpu in gpus)
    if listed.bus_id is None and not has_uuid and are_alike:
        # NVML and CUDA both list GPUs in the order of the bus.
        return devices[gpus.index(listed)]
    for device in devices:
        if listed.uuid is not None and device.uuid == listed.uuid:
            return device
        if listed.bus_id is not None and device.bus_id == listed.bus_id:
            return device
    return CudaDevice()
