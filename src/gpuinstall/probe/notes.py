"""What should be known about a machine and stops nothing: each note from its own few facts. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import fix_of, problem
from gpuinstall.probe.libcuda import is_compat
from gpuinstall.probe.pci import OTHER_VENDORS
from gpuinstall.versions import CudaVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.machine import Problem
    from gpuinstall.probe.evidence import Card, Evidence

MIB = 1024**2
GIB = 1024**3
SHARED_MEMORY_BYTES = 256 * MIB


def notes(evidence: Evidence) -> Iterator[Problem]:
    """List the notes."""
    for note in _NOTES:
        yield from note(evidence)


def _note(
    evidence: Evidence, code: str, message: str, why: str, *, gpus: tuple[int, ...] = (), **words: object
) -> Problem:
    """Make a note; ``words`` are those of its fix."""
    return problem(code, message, evidence.place.knowing(**words), why=why, gpus=gpus, blocking=False)


def _not_ours(evidence: Evidence) -> Iterator[Problem]:
    """Cards that the bus shows and this process was not given."""
    reserved = [card for card in evidence.others if card.device.is_reserved]
    withheld = [card for card in evidence.others if not card.device.is_reserved]
    if reserved:
        message = f"set aside for virtual machines: {_names(reserved)}"
        yield _note(evidence, "gpu-not-ours", message, f"bound to {reserved[0].device.driver}")
    if withheld:
        room = "container" if evidence.surroundings.container else "job"
        message = f"not given to this {room}: {_names(withheld)}"
        why = "their device nodes are missing or may not be opened"
        note = _note(evidence, "gpu-not-ours", message, why)
        yield _given_none(evidence, note) if room == "container" and not evidence.shows_gpu else note


def _foreign(evidence: Evidence) -> Iterator[Problem]:
    """Other makers' GPUs are named where NVIDIA has none."""
    if evidence.foreign and not evidence.shows_gpu:
        names = ", ".join(f"{OTHER_VENDORS[device.vendor]} {device.id}" for device in evidence.foreign)
        yield _note(evidence, "gpu-not-supported", f"not used: {names}", "builds are for NVIDIA's GPUs and for the CPU")


def _given_none(evidence: Evidence, note: Problem) -> Problem:
    asked = evidence.surroundings.visible
    why = f"NVIDIA_VISIBLE_DEVICES is {asked!r}" if asked else "it was started without a GPU, or it is being built"
    return replace(note, id="F25", fix=fix_of("libraries-not-in-container", evidence.place), why=why)


def _names(cards: Sequence[Card]) -> str:
    return ", ".join(card.name for card in cards)


def _switched_off(evidence: Evidence) -> Iterator[Problem]:
    if evidence.kernel.laptop and evidence.kernel.blocked_by and not evidence.shows_gpu and not evidence.others:
        why = f"{evidence.kernel.blocked_by} keeps NVIDIA's module out, and no card is on the bus"
        yield _note(evidence, "gpu-switched-off", "this laptop's NVIDIA GPU is switched off", why)


def _remap_pending(evidence: Evidence) -> Iterator[Problem]:
    for gpu in evidence.nvml.gpus:
        if gpu.remap_pending and not gpu.remap_failed:
            message = f"GPU {gpu.index} waits for a reset to remap memory"
            why = "a memory error was found and set aside"
            yield _note(evidence, "row-remap-pending", message, why, gpu=gpu.index, gpus=(gpu.index,))


def _unlicensed(evidence: Evidence) -> Iterator[Problem]:
    for gpu in evidence.nvml.gpus:
        if gpu.virtual and gpu.licensed is False:
            message = f"the virtual GPU {gpu.index} has no licence"
            why = "without one it slows down, and CUDA may be refused"
            yield _note(evidence, "vgpu-not-licensed", message, why, gpus=(gpu.index,))


def _compat(evidence: Evidence) -> Iterator[Problem]:
    folder, _, name = (evidence.cuda.path or "").rpartition("/")
    if evidence.cuda_works and is_compat(evidence.cuda.path):
        message = f"a forward-compatibility libcuda ({name}) stands before the driver's own"
        yield _note(
            evidence, "forward-compatibility-library", message, "only data-centre GPUs allow that", folder=folder
        )


def _disagreement(evidence: Evidence) -> Iterator[Problem]:
    module, nvml, cuda = evidence.kernel.module, evidence.nvml, evidence.cuda
    why = "libraries of two drivers are installed, or a library was replaced while programs ran"
    if module and nvml.driver and module.version.parts != nvml.driver.parts and not evidence.wsl:
        yield _note(
            evidence, "facts-disagree", f"the kernel says driver {module.version}, NVML says {nvml.driver}", why
        )
    if nvml.cuda and cuda.driver_version and nvml.cuda != cuda.driver_version and not is_compat(cuda.path):
        yield _note(evidence, "facts-disagree", f"NVML says CUDA {nvml.cuda}, libcuda says {cuda.driver_version}", why)


def _visible(evidence: Evidence) -> Iterator[Problem]:
    if evidence.visible is None or evidence.surroundings.job or not (evidence.nvml.gpus or evidence.cuda.devices):
        return
    if not sees_any(evidence.visible, evidence):
        message = f"CUDA_VISIBLE_DEVICES={evidence.visible!r} hides every GPU from programs started here"
        yield _note(evidence, "visible-devices-hide-gpus", message, "it names no GPU that is there")


def sees_any(visible: str, evidence: Evidence) -> bool:
    """Say whether CUDA_VISIBLE_DEVICES begins with a GPU that exists: the first unknown one ends the list."""
    first = visible.partition(",")[0].strip()
    count = len(evidence.nvml.gpus) or len(evidence.cuda.devices)
    if re.fullmatch(r"[0-9]{1,9}", first):
        return int(first) < count
    cards = [gpu.uuid for gpu in evidence.nvml.gpus] + [device.uuid for device in evidence.cuda.devices]
    uuids = [*cards, *(part.uuid for gpu in evidence.nvml.gpus for part in gpu.slices)]
    return bool(first) and any(uuid is not None and uuid.startswith(first) for uuid in uuids)


def _shadowed(evidence: Evidence) -> Iterator[Problem]:
    if evidence.wsl and evidence.wsl.shadow and not evidence.surroundings.container:
        why = f"{evidence.wsl.shadow} belongs to a Linux driver, which cannot work in WSL"
        yield _note(evidence, "wsl-linux-driver", "a Linux NVIDIA driver is installed in WSL", why)


def _requirement(evidence: Evidence) -> Iterator[Problem]:
    cuda = evidence.nvml.cuda or evidence.cuda.driver_version
    wanted = required_cuda(evidence.surroundings.required or "")
    if cuda and wanted and cuda < wanted:
        message = f"this image was made for CUDA {wanted}, and the host's driver serves {cuda}"
        yield _note(evidence, "image-requires-newer-driver", message, "NVIDIA_REQUIRE_CUDA is not met", served=cuda)


def required_cuda(text: str) -> CudaVersion | None:
    """Read the floor of NVIDIA_REQUIRE_CUDA: ``cuda>=12.8 brand=tesla,driver>=535``; alternatives lower it."""
    floors = [CudaVersion.parse(floor) for floor in re.findall(r"\bcuda>=([0-9]{1,3}\.[0-9]{1,2})\b", text)]
    return min(floors, default=None)


def _junk(evidence: Evidence) -> Iterator[Problem]:
    nvml = evidence.nvml
    if nvml.by == "nvidia-smi" and nvml.init is None and nvml.error and evidence.shows_gpu:
        yield _note(evidence, "smi-unreadable", "nvidia-smi says nothing of use", f"it printed: {nvml.error}")


def _space(evidence: Evidence) -> Iterator[Problem]:
    """Any build takes more than this; how much more the installation knows."""
    for name, what in (("environment", "this folder"), ("cache", "uv's cache"), ("temporary", "TMPDIR")):
        if name in evidence.folders and evidence.folders[name].free < GIB:
            message = f"{what} has {evidence.folders[name].free // MIB} MiB free"
            yield _note(evidence, "little-space", message, "an environment takes from one to eight GiB")


def _shared_memory(evidence: Evidence) -> Iterator[Problem]:
    shared = evidence.folders.get("shared-memory")
    if shared and shared.free < SHARED_MEMORY_BYTES and len(evidence.nvml.gpus) > 1:
        message, why = f"{shared.free // MIB} MiB of shared memory are free", "NCCL passes data between GPUs through it"
        yield _note(evidence, "little-shared-memory", message, why)


def _kernel_cache(evidence: Evidence) -> Iterator[Problem]:
    cache = evidence.folders.get("kernel-cache")
    if cache and not cache.writable and evidence.shows_gpu:
        message, why = "CUDA's kernel cache (~/.nv) cannot be written to", "another user, often root, made it"
        yield _note(evidence, "kernel-cache-not-writable", message, why)


def _runtime_libraries(evidence: Evidence) -> Iterator[Problem]:
    if evidence.missing_libraries:
        message = f"the Visual C++ run-time library is missing: {', '.join(evidence.missing_libraries)}"
        yield _note(evidence, "runtime-library-missing", message, "PyTorch's own libraries are linked against it")


def _processor(evidence: Evidence) -> Iterator[Problem]:
    if evidence.host.avx is False:
        yield _note(
            evidence, "cpu-without-avx", "the processor has no AVX", "parts of PyTorch end with an illegal instruction"
        )


_NOTES = (
    _not_ours,
    _foreign,
    _switched_off,
    _remap_pending,
    _unlicensed,
    _compat,
    _disagreement,
    _visible,
    _shadowed,
    _requirement,
    _junk,
    _space,
    _shared_memory,
    _kernel_cache,
    _runtime_libraries,
    _processor,
)
