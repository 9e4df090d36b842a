"""From what the sources saw to NVIDIA's GPUs and driver. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpuinstall.facts.bus import normal_address
from gpuinstall.machine import Driver, Gpu, MigDevice
from gpuinstall.vendors.nvidia.evidence import BusCard, NvidiaEvidence, drivers
from gpuinstall.vendors.nvidia.libraries import _MIB, CudaDevice, NvmlGpu
from gpuinstall.versions import ComputeCapability


class DetectedGpu(NamedTuple):
    """A GPU and where it sits on the bus, if that is known."""

    gpu: Gpu
    address: str | None = None


def list_gpus(evidence: NvidiaEvidence) -> tuple[DetectedGpu, ...]:
    """List the machine's GPUs by the best source that lists any, then the cards that only the bus shows."""
    by_cuda = (
        _cuda_gpu(evidence, index, device) for index, device in enumerate(evidence.cuda.devices)
    )
    listed = _by_nvml(evidence) or tuple(by_cuda) or _by_chip(evidence)
    addresses = {detected.address for detected in listed}
    unseen = [card for card in evidence.cards if card.address not in addresses]
    first = max((detected.gpu.index for detected in listed), default=-1) + 1
    return (*listed, *(_by_bus(card, first + number) for number, card in enumerate(unseen)))


def driver_of(evidence: NvidiaEvidence) -> Driver | None:
    """Name the driver: its release by NVML or the kernel, its CUDA by the libcuda that programs load."""
    module = evidence.kernel.module
    cuda = evidence.cuda.driver_version or evidence.nvml.cuda
    if evidence.nvml.driver:
        return Driver(evidence.nvml.driver, cuda, evidence.nvml.by)
    if module:
        return Driver(module.version, cuda, module.found_via)
    return (
        Driver(None, cuda, "libcuda")
        if evidence.cuda.driver_version and evidence.shows_gpu
        else None
    )


def _by_nvml(evidence: NvidiaEvidence) -> tuple[DetectedGpu, ...]:
    gpus = evidence.nvml.gpus
    listed = {gpu.bus_id for gpu in gpus}
    lost = [gpu for gpu in gpus if gpu.bus_id is None and gpu.error is not None]
    left = [card.address for card in evidence.cards if card.address not in listed]
    addresses = (
        dict(zip((gpu.index for gpu in lost), left, strict=True)) if len(lost) == len(left) else {}
    )
    return tuple(_nvml_gpu(evidence, gpu, gpu.bus_id or addresses.get(gpu.index)) for gpu in gpus)


def _nvml_gpu(evidence: NvidiaEvidence, listed: NvmlGpu, address: str | None) -> DetectedGpu:
    card = _card_at(evidence.cards, address)
    device = _device_of(evidence, listed, address)
    chip, jetson, whole = (
        card.chip if card else None,
        evidence.jetson,
        None if listed.mig else device,
    )
    by_driver = listed.compute_capability, device and device.compute_capability
    capabilities = (*by_driver, chip and chip.capability, jetson and jetson.compute_capability)
    name = listed.name or (device and device.name) or (chip and chip.name)
    capability = next((capability for capability in capabilities if capability), None)
    gpu = Gpu(
        index=listed.index,
        name=name,
        uuid=_cuda_uuid(listed.uuid) if listed.uuid else whole.uuid if whole else None,
        pci_id=listed.pci_id or (card.device.id if card else None),
        # nvidia-smi gives the name alone before R495.
        compute_capability=capability or _capability_by_name(name),
        memory_mib=listed.memory_mib or (_memory(whole) if whole else None),
        mig=listed.mig,
        mig_devices=listed.slices,
        found_via=evidence.nvml.by,
    )
    return DetectedGpu(gpu, address)


def _device_of(evidence: NvidiaEvidence, listed: NvmlGpu, address: str | None) -> CudaDevice | None:
    """Find what CUDA says of a card of NVML's."""
    devices = evidence.cuda.devices
    # A Jetson's NVML gives no address, and a UUID without CUDA's prefix; the chip has one GPU.
    nameless = listed.uuid is not None and _cuda_uuid(listed.uuid) is None
    if nameless and len(devices) == len(evidence.nvml.gpus) == 1:
        return devices[0]
    return next((device for device in devices if is_same(device, listed.uuid, address)), None)


def _cuda_uuid(uuid: str) -> str | None:
    """Return a UUID as CUDA_VISIBLE_DEVICES takes it.

    Without the prefix CUDA reads an ordinal: ``54d0709b-…``, as a Jetson's NVML has it, is GPU 54.
    """
    return uuid if uuid.startswith("GPU-") else None


def _capability_by_name(name: str | None) -> ComputeCapability | None:
    # Loaded here: the table of names takes longer than all other steps, and hardly any machine needs it.
    from gpuinstall.catalog.gpu_names import capability_of

    return capability_of(name) if name else None


def _cuda_gpu(evidence: NvidiaEvidence, index: int, device: CudaDevice) -> DetectedGpu:
    address = device.bus_id and normal_address(device.bus_id)
    card = _card_at(evidence.cards, address)
    sliced = (device.uuid or "").startswith("MIG-")
    gpu = Gpu(
        index=index,
        name=device.name,
        # Whether a Jetson's CUDA takes its UUID is not known; the chip has one GPU.
        uuid=None if sliced or evidence.jetson else device.uuid,
        pci_id=card.device.id if card else None,
        compute_capability=device.compute_capability,
        memory_mib=None if sliced else _memory(device),
        mig=sliced,
        mig_devices=(MigDevice(device.uuid, None, _memory(device)),)
        if sliced and device.uuid
        else (),
        found_via="libcuda",
    )
    return DetectedGpu(gpu, address)


def _memory(device: CudaDevice) -> int | None:
    if not device.memory_bytes or device.compute_capability in drivers().unified_memory:
        return None
    return device.memory_bytes // _MIB


def _by_chip(evidence: NvidiaEvidence) -> tuple[DetectedGpu, ...]:
    jetson = evidence.jetson
    if jetson is None or evidence.cards:
        return ()
    return (
        DetectedGpu(
            Gpu(
                0,
                jetson.name,
                compute_capability=jetson.compute_capability,
                found_via="device-tree",
            )
        ),
    )


def _by_bus(card: BusCard, index: int) -> DetectedGpu:
    chip = card.chip
    name, capability = (f"NVIDIA {chip.name}", chip.capability) if chip else (None, None)
    return DetectedGpu(
        Gpu(index, name, None, card.device.id, capability, found_via="pci"), card.address
    )


def _card_at(cards: Iterable[BusCard], address: str | None) -> BusCard | None:
    return next((card for card in cards if address is not None and card.address == address), None)


def is_same(device: CudaDevice, uuid: str | None, address: str | None) -> bool:
    """Say whether CUDA's device is the card with this UUID, or at this address."""
    by_uuid = uuid is not None and device.uuid == uuid
    return by_uuid or (address is not None and normal_address(device.bus_id or "") == address)
