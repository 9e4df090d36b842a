"""What should be known about NVIDIA's GPUs and driver, and stops nothing: each note from its own few facts. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.base.versions import CudaVersion
from gpuinstall.catalog.failures.problems import finding_for, fix
from gpuinstall.machine.nvidia.libraries import is_compat, is_requested_compat, visible_entries
from gpuinstall.machine.prober import format_gpus, withheld_cards

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.base.finding import Finding
    from gpuinstall.machine.nvidia.evidence import NvidiaEvidence


def driver_notes(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """Yield the notes."""
    for notes in (_not_given, _single_gpus, _libraries, _surroundings):
        yield from notes(evidence)


def _not_given(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """Cards that the bus shows and this process was not given, and a laptop's that a file keeps off the bus."""
    reserved = [card for card in evidence.others if card.device.is_reserved]
    withheld = [card for card in evidence.others if not card.device.is_reserved]
    if reserved:
        yield _note(
            evidence,
            "gpu-not-ours",
            message=f"set aside for virtual machines: {', '.join(card.name for card in reserved)}",
            why=f"bound to {reserved[0].device.driver}",
        )
    if withheld:
        note = withheld_cards(
            evidence.facts,
            [card.name for card in withheld],
            why="their device nodes are missing or may not be opened",
        )
        if evidence.container and not evidence.shows_gpu:
            note = _with_toolkit(note, evidence)
        yield note
    file = evidence.kernel.blocked_by
    if evidence.kernel.laptop and file and not evidence.shows_gpu and not evidence.others:
        yield _note(
            evidence,
            "gpu-switched-off",
            message="this laptop's NVIDIA GPU is switched off",
            why=f"{file} blocks NVIDIA's module, and no card is on the bus",
        )


def _with_toolkit(note: Finding, evidence: NvidiaEvidence) -> Finding:
    """Return the note on a container that was given no card at all."""
    devices = evidence.toolkit.devices
    why = "it was started without a GPU, or it is being built"
    if devices:
        why = f"NVIDIA_VISIBLE_DEVICES is {devices!r}"
    fixes = fix("libraries-not-in-container", evidence.fix_context)
    return replace(
        note,
        id="F25",
        fixes=fixes,
        why=why,
    )


def _single_gpus(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A lost card that stops CUDA for all, memory that a reset will replace, and a virtual GPU without its licence."""
    gpus = evidence.nvml.gpus
    init = evidence.cuda.init
    lost = tuple(gpu.index for gpu in gpus if gpu.error is not None)
    if evidence.nvml.works and init and 0 < len(lost) < len(gpus):
        others = [gpu for gpu in gpus if gpu.error is None]
        yield _note(
            evidence,
            "lost-gpu-stops-cuda",
            message=f"CUDA does not start while it sees {format_gpus(lost)} (cuInit returned {init})",
            why="programs can use the other GPUs alone",
            visible=",".join(gpu.uuid or str(gpu.index) for gpu in others),
        )
    for gpu in gpus:
        if gpu.remap_pending and not gpu.remap_failed:
            yield _note(
                evidence,
                "row-remap-pending",
                message=f"GPU {gpu.index} waits for a reset to remap memory",
                why="a memory error was found and isolated",
                gpu=gpu.index,
                gpus=(gpu.index,),
            )


def _libraries(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A forward-compatibility libcuda that works."""
    cuda = evidence.cuda
    has_compat = is_compat(cuda.path)
    if has_compat and evidence.cuda_works and not is_requested_compat(cuda.path):
        folder, _, name = (cuda.path or "").rpartition("/")
        yield _note(
            evidence,
            "forward-compatibility-library",
            message=f"a forward-compatibility libcuda ({name}) is loaded instead of the driver's own",
            why="only data-centre GPUs allow that",
            folder=folder,
        )


def _surroundings(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A variable that hides all GPUs, a Linux driver in WSL, an image for a newer driver, a cache that is closed."""
    nvml = evidence.nvml
    visible = evidence.visible
    if visible is not None and not evidence.facts.container.job and _hides_all(visible, evidence):
        yield _note(
            evidence,
            "visible-devices-hide-gpus",
            message=f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU from programs started here",
            why="CUDA's list ends at the first entry that names no GPU, and is empty where one is repeated",
        )
    if evidence.windows and evidence.windows.shadow and not evidence.container:
        yield _note(
            evidence,
            "wsl-linux-driver",
            message="a Linux NVIDIA driver is installed in WSL",
            why=f"{evidence.windows.shadow} belongs to a Linux driver, which cannot work in WSL",
        )
    cuda = nvml.cuda or evidence.cuda.driver_version
    required = required_cuda(evidence.toolkit.required or "")
    if cuda and required and cuda < required:
        yield _note(
            evidence,
            "image-requires-newer-driver",
            message=f"this image was made for CUDA {required}, and the host's driver serves {cuda}",
            why="NVIDIA_REQUIRE_CUDA is not met",
            served=cuda,
        )
    if not evidence.shows_gpu:
        return
    cache = evidence.facts.folders.get("kernel-cache")
    if cache and not cache.writable:
        yield _note(
            evidence,
            "kernel-cache-not-writable",
            message="CUDA's kernel cache (~/.nv) cannot be written to",
            why="another user, often root, made it",
        )


def _hides_all(visible: str, evidence: NvidiaEvidence) -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides all GPUs that exist: its first entry is none of them, or not one alone."""
    gpus = evidence.nvml.gpus
    devices = evidence.cuda.devices
    count = len(gpus) or len(devices)
    entries = visible_entries(visible)
    if count == 0 or not entries:
        return count > 0
    first = entries[0]
    if first.isdecimal():
        return count <= int(first)
    uuids = {gpu.uuid for gpu in gpus} | {device.uuid for device in devices}
    uuids |= {part.uuid for gpu in gpus for part in gpu.slices}
    return sum((uuid or "").startswith(first) for uuid in uuids) != 1


def required_cuda(text: str) -> CudaVersion | None:
    """Return the floor of NVIDIA_REQUIRE_CUDA: ``cuda>=12.8 brand=tesla,driver>=535``; alternatives lower it."""
    floors = re.findall(r"\bcuda>=([0-9]{1,3}\.[0-9]{1,2})\b", text)
    return min(map(CudaVersion.parse, floors), default=None)


def _note(
    evidence: NvidiaEvidence,
    code: str,
    *,
    message: str,
    why: str,
    gpus: tuple[int, ...] = (),
    **words: object,
) -> Finding:
    """Return a note; ``words`` are those of its fix."""
    context = evidence.fix_context.knowing(**words)
    return finding_for(
        code,
        message,
        context,
        why=why,
        gpus=gpus,
        blocking=False,
    )
