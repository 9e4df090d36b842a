"""What should be known about NVIDIA's GPUs and driver, and stops nothing: each note from its own few facts. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import finding_for, fix
from gpuinstall.vendors.nvidia.libraries import is_compat, visible_entries
from gpuinstall.vendors.prober import format_gpus
from gpuinstall.versions import CudaVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.finding import Finding
    from gpuinstall.vendors.nvidia.evidence import NvidiaEvidence


_WITHOUT_GPU = "it was started without a GPU, or it is being built"


def driver_notes(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """List the notes."""
    for notes in (_not_given, _single_gpus, _libraries, _surroundings):
        yield from notes(evidence)


def _not_given(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """Cards that the bus shows and this process was not given, and a laptop's that a file keeps off the bus."""
    reserved = [card for card in evidence.others if card.device.is_reserved]
    withheld = [card for card in evidence.others if not card.device.is_reserved]
    if reserved:
        message = f"set aside for virtual machines: {', '.join(card.name for card in reserved)}"
        yield _note(evidence, "gpu-not-ours", message, f"bound to {reserved[0].device.driver}")
    if withheld:
        room = "container" if evidence.container else "job"
        message = f"not given to this {room}: {', '.join(card.name for card in withheld)}"
        why = "their device nodes are missing or may not be opened"
        note = _note(evidence, "gpu-not-ours", message, why)
        if room == "container" and not evidence.shows_gpu:
            devices, fixes = (
                evidence.toolkit.devices,
                fix("libraries-not-in-container", evidence.fix_context),
            )
            without = f"NVIDIA_VISIBLE_DEVICES is {devices!r}" if devices else _WITHOUT_GPU
            note = replace(note, id="F25", fixes=fixes, why=without)
        yield note
    if (
        evidence.kernel.laptop
        and evidence.kernel.blocked_by
        and not evidence.shows_gpu
        and not evidence.others
    ):
        why = f"{evidence.kernel.blocked_by} blocks NVIDIA's module, and no card is on the bus"
        yield _note(evidence, "gpu-switched-off", "this laptop's NVIDIA GPU is switched off", why)


def _single_gpus(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A lost card that stops CUDA for all, memory that a reset will replace, and a virtual GPU without its licence."""
    gpus = evidence.nvml.gpus
    lost = tuple(gpu.index for gpu in gpus if gpu.error is not None)
    if evidence.nvml.works and evidence.cuda.init and 0 < len(lost) < len(gpus):
        rest = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus if gpu.error is None)
        message = f"CUDA does not start while it sees {format_gpus(lost)} (cuInit returned {evidence.cuda.init})"
        yield _note(
            evidence,
            "lost-gpu-stops-cuda",
            message,
            "programs can use the other GPUs alone",
            visible=rest,
        )
    for gpu in gpus:
        if gpu.remap_pending and not gpu.remap_failed:
            message = f"GPU {gpu.index} waits for a reset to remap memory"
            why = "a memory error was found and isolated"
            yield _note(
                evidence, "row-remap-pending", message, why, gpu=gpu.index, gpus=(gpu.index,)
            )
        if gpu.virtual and gpu.licensed is False:
            message = f"the virtual GPU {gpu.index} has no licence"
            why = "without one it is slow, and CUDA may be refused"
            yield _note(evidence, "vgpu-not-licensed", message, why, gpus=(gpu.index,))


def _libraries(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A forward-compatibility libcuda that works; kernel, NVML and libcuda that name different releases."""
    module, nvml, cuda = evidence.kernel.module, evidence.nvml, evidence.cuda
    folder, _, name = (cuda.path or "").rpartition("/")
    if evidence.cuda_works and is_compat(cuda.path):
        message = f"a forward-compatibility libcuda ({name}) is loaded instead of the driver's own"
        why = "only data-centre GPUs allow that"
        yield _note(evidence, "forward-compatibility-library", message, why, folder=folder)
    why = "libraries of two drivers are installed, or a library was replaced while in use"
    if (
        module
        and nvml.driver
        and module.version.parts != nvml.driver.parts
        and not evidence.facts.wsl
    ):
        message = f"the kernel says driver {module.version}, NVML says {nvml.driver}"
        yield _note(evidence, "facts-disagree", message, why)
    if (
        nvml.cuda
        and cuda.driver_version
        and nvml.cuda != cuda.driver_version
        and not is_compat(cuda.path)
    ):
        yield _note(
            evidence,
            "facts-disagree",
            f"NVML says CUDA {nvml.cuda}, libcuda says {cuda.driver_version}",
            why,
        )


def _surroundings(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A variable that hides all GPUs, a Linux driver in WSL, an image for a newer driver, a cache that is closed."""
    nvml = evidence.nvml
    if (
        evidence.visible is not None
        and not evidence.facts.container.job
        and _all_hidden(evidence.visible, evidence)
    ):
        message = (
            f"CUDA_VISIBLE_DEVICES={evidence.visible!r} hides every GPU from programs started here"
        )
        why = "CUDA's list ends at the first entry that names no GPU, and is empty where one is repeated"
        yield _note(evidence, "visible-devices-hide-gpus", message, why)
    if evidence.windows and evidence.windows.shadow and not evidence.container:
        why = f"{evidence.windows.shadow} belongs to a Linux driver, which cannot work in WSL"
        yield _note(evidence, "wsl-linux-driver", "a Linux NVIDIA driver is installed in WSL", why)
    cuda = nvml.cuda or evidence.cuda.driver_version
    wanted = required_cuda(evidence.toolkit.required or "")
    if cuda and wanted and cuda < wanted:
        message = f"this image was made for CUDA {wanted}, and the host's driver serves {cuda}"
        yield _note(
            evidence,
            "image-requires-newer-driver",
            message,
            "NVIDIA_REQUIRE_CUDA is not met",
            served=cuda,
        )
    if nvml.by == "nvidia-smi" and nvml.init is None and nvml.error and evidence.shows_gpu:
        yield _note(
            evidence,
            "smi-unreadable",
            "nvidia-smi printed nothing useful",
            f"it printed: {nvml.error}",
        )
    cache = evidence.facts.folders.get("kernel-cache")
    if cache and not cache.writable and evidence.shows_gpu:
        message, why = (
            "CUDA's kernel cache (~/.nv) cannot be written to",
            "another user, often root, made it",
        )
        yield _note(evidence, "kernel-cache-not-writable", message, why)


def _all_hidden(visible: str, evidence: NvidiaEvidence) -> bool:
    """Say whether CUDA_VISIBLE_DEVICES hides all GPUs that exist: its first entry names none, or not one alone."""
    count = len(evidence.nvml.gpus) or len(evidence.cuda.devices)
    entries = visible_entries(visible)
    if count == 0 or not entries:
        return count > 0
    first = entries[0]
    if first.isdecimal():
        return count <= int(first)
    cards = {gpu.uuid for gpu in evidence.nvml.gpus} | {
        device.uuid for device in evidence.cuda.devices
    }
    uuids = cards | {part.uuid for gpu in evidence.nvml.gpus for part in gpu.slices}
    return sum(uuid is not None and uuid.startswith(first) for uuid in uuids) != 1


def required_cuda(text: str) -> CudaVersion | None:
    """Read the floor of NVIDIA_REQUIRE_CUDA: ``cuda>=12.8 brand=tesla,driver>=535``; alternatives lower it."""
    floors = [
        CudaVersion.parse(floor)
        for floor in re.findall(r"\bcuda>=([0-9]{1,3}\.[0-9]{1,2})\b", text)
    ]
    return min(floors, default=None)


def _note(
    evidence: NvidiaEvidence,
    code: str,
    message: str,
    why: str,
    *,
    gpus: tuple[int, ...] = (),
    **words: object,
) -> Finding:
    """Make a note; ``words`` are those of its fix."""
    return finding_for(
        code, message, evidence.fix_context.knowing(**words), why=why, gpus=gpus, blocking=False
    )
