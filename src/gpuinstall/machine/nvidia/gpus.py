"""From what the sources saw to NVIDIA's GPUs and driver. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from gpuinstall.base.machine import Driver, Gpu, MigDevice
from gpuinstall.machine.bus import normal_address
from gpuinstall.machine.nvidia.evidence import BusCard, NvidiaEvidence, drivers
from gpuinstall.machine.nvidia.libraries import CudaDevice, NvmlGpu, is_requested_compat


class DetectedGpu(NamedTuple):
    """A GPU and where it sits on the bus, if that is known."""

    gpu: Gpu
    address: str | None = None


def list_gpus(evidence: NvidiaEvidence) -> tuple[DetectedGpu, ...]:
    """Return the machine's GPUs by the best source that lists any, then the cards that only the bus shows."""
    gpus = _nvml_gpus(evidence) or _cuda_gpus(evidence) or _jetson_gpus(evidence)
    addresses = {detected.address for detected in gpus}
    index = max((detected.gpu.index for detected in gpus), default=-1)
    for card in evidence.cards:
        if card.address not in addresses:
            index += 1
            gpus.append(_bus_gpu(index, card))
    return tuple(gpus)


def driver_of(evidence: NvidiaEvidence) -> Driver | None:
    """Return the driver: its release by NVML or the kernel, its CUDA by the libcuda that programs load."""
    module = evidence.kernel.module
    cuda = evidence.cuda.driver_version or evidence.nvml.cuda
    compat = is_requested_compat(evidence.cuda.path)
    if evidence.nvml.driver:
        return Driver(evidence.nvml.driver, cuda, "nvml", compat)
    if module:
        return Driver(module.version, cuda, module.found_via, compat)
    if evidence.cuda.driver_version and evidence.shows_gpu:
        return Driver(None, cuda, "libcuda")
    return None


def _nvml_gpus(evidence: NvidiaEvidence) -> list[DetectedGpu]:
    gpus = evidence.nvml.gpus
    addresses = {gpu.index: gpu.bus_id for gpu in gpus}
    lost = [gpu.index for gpu in gpus if gpu.bus_id is None and gpu.error is not None]
    cards = [card.address for card in evidence.cards]
    unlisted = [address for address in cards if address not in addresses.values()]
    if len(lost) == len(unlisted):
        # A lost card has no address of its own: it is the one that is left.
        addresses.update(zip(lost, unlisted, strict=True))
    return [_nvml_gpu(evidence, gpu, addresses[gpu.index]) for gpu in gpus]


def _nvml_gpu(evidence: NvidiaEvidence, nvml_gpu: NvmlGpu, address: str | None) -> DetectedGpu:
    card = _card_at(evidence.cards, address)
    chip = card.chip if card else None
    tegra = evidence.jetson.chip if evidence.jetson else None
    device = _device_of(evidence, nvml_gpu, address)
    # With MIG, CUDA's device is a slice of the card.
    whole = CudaDevice() if nvml_gpu.mig else device
    capabilities = (
        nvml_gpu.compute_capability,
        device.compute_capability,
        chip.capability if chip else None,
        tegra.capability if tegra else None,
    )
    gpu = Gpu(
        index=nvml_gpu.index,
        name=nvml_gpu.name or device.name or (chip and chip.name),
        uuid=_cuda_uuid(nvml_gpu.uuid) if nvml_gpu.uuid else whole.uuid,
        pci_id=nvml_gpu.pci_id or (card.device.id if card else None),
        compute_capability=next(filter(None, capabilities), None),
        memory_mib=nvml_gpu.memory_mib or _memory_mib(whole),
        mig=nvml_gpu.mig,
        mig_devices=nvml_gpu.slices,
        found_via="nvml",
    )
    return DetectedGpu(gpu, address)


def _device_of(evidence: NvidiaEvidence, nvml_gpu: NvmlGpu, address: str | None) -> CudaDevice:
    """Return CUDA's device that is a card of NVML's; an empty one if CUDA does not show it."""
    devices = evidence.cuda.devices
    # A Jetson's NVML gives no address, and a UUID without CUDA's prefix; the chip has one GPU.
    is_nameless = nvml_gpu.uuid is not None and _cuda_uuid(nvml_gpu.uuid) is None
    if is_nameless and len(devices) == len(evidence.nvml.gpus) == 1:
        return devices[0]
    for device in devices:
        if is_same(device, nvml_gpu.uuid, address):
            return device
    return CudaDevice()


def _cuda_uuid(uuid: str) -> str | None:
    """Return a UUID as CUDA_VISIBLE_DEVICES takes it.

    Without the prefix CUDA reads an ordinal: ``54d0709b-…``, as a Jetson's NVML has it, is GPU 54.
    """
    return uuid if uuid.startswith("GPU-") else None


def _cuda_gpus(evidence: NvidiaEvidence) -> list[DetectedGpu]:
    return [
        _cuda_gpu(evidence, index, device) for index, device in enumerate(evidence.cuda.devices)
    ]


def _cuda_gpu(evidence: NvidiaEvidence, index: int, device: CudaDevice) -> DetectedGpu:
    address = device.bus_id and normal_address(device.bus_id)
    card = _card_at(evidence.cards, address)
    memory_mib = _memory_mib(device)
    gpu = Gpu(
        index=index,
        name=device.name,
        # Whether a Jetson's CUDA takes its UUID is not known; the chip has one GPU.
        uuid=None if evidence.jetson else device.uuid,
        pci_id=card.device.id if card else None,
        compute_capability=device.compute_capability,
        memory_mib=memory_mib,
        found_via="libcuda",
    )
    if device.uuid and device.uuid.startswith("MIG-"):
        part = MigDevice(device.uuid, None, memory_mib)
        gpu = replace(
            gpu,
            uuid=None,
            memory_mib=None,
            mig=True,
            mig_devices=(part,),
        )
    return DetectedGpu(gpu, address)


def _memory_mib(device: CudaDevice) -> int | None:
    if not device.memory_bytes or device.compute_capability in drivers().unified_memory:
        return None
    return device.memory_bytes >> 20


def _jetson_gpus(evidence: NvidiaEvidence) -> list[DetectedGpu]:
    jetson = evidence.jetson
    if jetson is None or evidence.cards:
        return []
    chip = jetson.chip
    gpu = Gpu(
        0,
        name=chip.name if chip else None,
        compute_capability=chip.capability if chip else None,
        found_via="device-tree",
    )
    return [DetectedGpu(gpu)]


def _bus_gpu(index: int, card: BusCard) -> DetectedGpu:
    chip = card.chip
    gpu = Gpu(
        index,
        name=f"NVIDIA {chip.name}" if chip else None,
        pci_id=card.device.id,
        compute_capability=chip.capability if chip else None,
        found_via="pci",
    )
    return DetectedGpu(gpu, card.address)


def _card_at(cards: Iterable[BusCard], address: str | None) -> BusCard | None:
    for card in cards:
        if card.address == address:
            return card
    return None


def is_same(device: CudaDevice, uuid: str | None, address: str | None) -> bool:
    """Whether CUDA's device is the card with this UUID, or at this address."""
    if uuid is not None and device.uuid == uuid:
        return True
    return address is not None and normal_address(device.bus_id or "") == address
