"""The states of cards that people meet, and what each command says there.

Above each stands what is right, and in brackets who says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tests.lab.cards import Place
from tests.lab.driver import FakeDriver, FakeGpu, FakeSlice, eight
from tests.lab.recorded import card

H100 = FakeGpu("NVIDIA H100 PCIe", cc="9.0", memory_mib=81559, pci="10de:2331")
H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
RTX_5090 = FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", memory_mib=32607, pci="10de:2b85")
BARE = "54d0709b-558d-5a59-8e3a-0123456789ab"
TEGRA = (("nvml_pci", 3), ("nvml_memory", 3))
SPARK = (("nvml_memory", 3),)
SLICES = (
    FakeSlice("MIG-11111111-0000-0000-0000-000000000001"),
    FakeSlice("MIG-11111111-0000-0000-0000-000000000002"),
)
WITHHELD = (FakeSlice("MIG-11111111-0000-0000-0000-000000000003", nvml_error=4),)
MISMATCH = "CUDA error: architecture mismatch when calling `cusparseLtInit(&handle)`"
OLD_MIG = FakeGpu(
    "NVIDIA A100-SXM4-40GB",
    cc="8.0",
    memory_mib=40537,
    pci="10de:20b0",
    mig=True,
    slices=(FakeSlice("MIG-GPU-00000000-1ab0-c0de-face-000000000000/7/0", "1g.5gb", 4864),),
)


class State(NamedTuple):
    """A state of a machine, and what each command says of it (tests.lab.cards)."""

    place: Place
    says: Mapping[str, str]


def says(
    probe: str = "1 GPU",
    preflight: str = "proven 0",
    plan: str = "2.15.0+cu130 for 0",
    verify: str = "exit 0: passed 0",
    doctor: str = "exit 0",
    *,
    start: str = "2.10.0+cu130",
) -> dict[str, str]:
    """Return what each command says; where nothing is given, what it says of one healthy card."""
    return {
        "probe": probe,
        "preflight": preflight,
        "plan": plan,
        "verify": verify,
        "doctor": doctor,
        "run --any": start,
    }


def of_two(probe: str = "2 GPUs") -> dict[str, str]:
    """Return what each command says of two healthy cards."""
    return says(probe, "proven 0,1", "2.15.0+cu130 for 0,1", "exit 0: passed 0,1")


def more(gpu: FakeGpu, **facts: str | int) -> FakeGpu:
    """Return a card with further facts."""
    return replace(gpu, more=(*gpu.more, *facts.items()))


def driver(*gpus: FakeGpu, **facts: str | int) -> FakeDriver:
    """Return the driver of a machine with these cards."""
    return FakeDriver(gpus, more=tuple(facts.items()))


VIRTUAL_FUNCTIONS = {
    path: text
    for number in (0x11, 0x12)
    for path, text in {
        **card(number, "10de:2331", kind="0x030200"),
        f"/sys/bus/pci/devices/0000:{number:02x}:00.0/physfn": "../0000:01:00.0",
    }.items()
}

STATES = {
    "one healthy card": State(Place(driver(H200)), says()),
    # It works; CUDA_VISIBLE_DEVICES takes its place, not this UUID. (Played on x86-64, which has no build for it.)
    # (NVIDIA/go-nvlib, pkg/nvlib/info; torch/cuda/__init__.py, _parse_visible_devices).
    "a Jetson Thor: NVML gives a UUID without GPU- and no address": State(
        Place(driver(FakeGpu("NVIDIA Thor", BARE, cc="11.0", memory_mib=125772, more=TEGRA))),
        says(plan="exit 3: no-build-ever", start="exit 3"),
    ),
    # It works (Syllo/nvtop#499).
    "GB10: NVML gives no memory": State(
        Place(
            driver(
                FakeGpu("NVIDIA GB10", cc="12.1", memory_mib=122570, pci="10de:2e12", more=SPARK)
            )
        ),
        says(),
    ),
    # They work; who asks waits: 10 s are given to each (Azure/AgentBaker#2829).
    "eight cards that start for the first process, 3 s each": State(
        Place(FakeDriver(eight(), more=(("start_ms", 3000),))),
        says(
            "8 GPUs",
            "proven 0,1,2,3,4,5,6,7",
            "2.15.0+cu130 for 0,1,2,3,4,5,6,7",
            "exit 0: passed 0,1,2,3,4,5,6,7",
        ),
    ),
    # No program can use it. Its ready state is set, or the host's fabric manager started: none is installed here
    # (NVIDIA/nvtrust#39, #56).
    "an H100 in confidential computing that is not ready; a guest whose host has no fabric manager": State(
        Place(replace(driver(H100), cu_init=802)),
        says(
            "1 GPU; fabric-manager-not-running",
            "not tried",
            "exit 8: fabric-manager-not-running",
            "exit 8: failed 0",
            "exit 8",
            start="exit 8",
        ),
    ),
    # Seven work where CUDA_VISIBLE_DEVICES leaves the lost one out; the environment is not at fault (nvml.h,
    # NVML_ERROR_GPU_IS_LOST; Xid 79).
    "one of eight is lost: NVML says so at its second question, and cuInit fails for all": State(
        Place(FakeDriver(eight(wrong={3: more(H200, nvml_name=15, cu_init=999)}))),
        says(
            "8 GPUs; gpu-lost; lost-gpu-stops-cuda (note)",
            "proven 0,1,2,4,5,6,7",
            "2.15.0+cu130 for 0,1,2,3,4,5,6,7",
            "exit 0: passed 0,1,2,4,5,6,7; unproven 3",
        ),
    ),
    # The other one works (nvml.h, NVML_ERROR_RESET_REQUIRED).
    "one of two has to be reset": State(
        Place(driver(H200, replace(H200, nvml_error=16, cuda_error=999))),
        says(
            "2 GPUs; gpu-unreachable",
            "proven 0",
            "2.15.0+cu130 for 0,1",
            "exit 0: passed 0; unproven 1",
        ),
    ),
    # It may work: nothing is proven and nothing is at fault (cuda.h, CUDA_ERROR_DEVICE_UNAVAILABLE).
    "an exclusive card that another process holds": State(
        Place(driver(more(replace(H200, cuda_error=46), compute_mode=3))),
        says(preflight="unproven 0; gpu-busy (note)", verify="exit 0: unproven 0"),
    ),
    # It works for one process at a time (nvidia-smi(1), EXCLUSIVE_PROCESS).
    "an exclusive card that nobody holds": State(
        Place(driver(more(H200, compute_mode=3))),
        says(),
    ),
    # No program of this user can use the card while the daemon has it (cuda.h, CUDA_ERROR_MPS_CONNECTION_FAILED).
    "an MPS daemon that this user cannot reach": State(
        Place(driver(replace(H200, cuda_error=805))),
        says(
            preflight="failed 0; mps-unreachable",
            verify="exit 5: failed 0",
            doctor="exit 8",
            start="exit 8",
        ),
    ),
    # It passes: nothing is proven and nothing is at fault (cuda.h, CUDA_ERROR_MPS_SERVER_NOT_READY).
    "an MPS server that recovers": State(
        Place(driver(replace(H200, cuda_error=807))),
        says(preflight="unproven 0; mps-unreachable (note)", verify="exit 0: unproven 0"),
    ),
    # Both instances and the whole card work, each by its own UUID (MIG User Guide, CUDA Device Enumeration).
    "MIG on one card, beside a whole one": State(
        Place(driver(replace(H100, mig=True, slices=SLICES), H100)),
        says("2 GPUs", "proven 0,1", "2.15.0+cu130 for 0,1", "exit 0: passed 0,0,1"),
    ),
    # There is an instance; /dev/nvidia-caps does not let this process use it. None is to be created (MIG User Guide,
    # Device Nodes and Capabilities; nvml.h, NVML_ERROR_NO_PERMISSION).
    "MIG whose instance was not given to this process": State(
        Place(driver(replace(H100, mig=True, slices=WITHHELD))),
        says(
            "1 GPU; gpu-not-permitted",
            "not tried",
            "exit 8: gpu-not-permitted",
            "exit 8: failed 0",
            "exit 8",
            start="exit 8",
        ),
    ),
    # The cards work, and programs started here see none (torch/cuda/__init__.py, _parse_visible_devices).
    "CUDA_VISIBLE_DEVICES=0,0": State(
        Place(driver(H200, H200), variables={"CUDA_VISIBLE_DEVICES": "0,0"}),
        of_two("2 GPUs; visible-devices-hide-gpus (note)"),
    ),
    # The cards work, and programs started here see none (torch/cuda/__init__.py, _parse_visible_devices).
    "CUDA_VISIBLE_DEVICES=,0": State(
        Place(driver(H200, H200), variables={"CUDA_VISIBLE_DEVICES": ",0"}),
        of_two("2 GPUs; visible-devices-hide-gpus (note)"),
    ),
    # The cards work, and programs started here see the first (CUDA C++ Programming Guide, environment variables).
    "CUDA_VISIBLE_DEVICES=0,-1,1": State(
        Place(driver(H200, H200), variables={"CUDA_VISIBLE_DEVICES": "0,-1,1"}),
        of_two(),
    ),
    # The cards work, and programs started here see none (CUDA C++ Programming Guide, environment variables).
    "CUDA_VISIBLE_DEVICES=GPU-0000, with which both UUIDs begin": State(
        Place(driver(H200, H200), variables={"CUDA_VISIBLE_DEVICES": "GPU-0000"}),
        of_two("2 GPUs; visible-devices-hide-gpus (note)"),
    ),
    # Builds with machine code for the card work; programs that compile may not (cuda.h, CUDA_ERROR_INVALID_PTX).
    "a PTX compiler of another driver": State(
        Place(driver(replace(H200, ptx_error=218))),
        says(preflight="unproven 0; kernel-not-proven (note)"),
    ),
    # Builds with machine code for the card work; programs that compile do not (cuda.h,
    # CUDA_ERROR_JIT_COMPILER_NOT_FOUND).
    "no PTX compiler": State(
        Place(driver(replace(H200, ptx_error=221))),
        says(preflight="unproven 0; kernel-not-proven (note)"),
    ),
    # The card works; its virtual functions are no cards that were lost (Linux,
    # Documentation/ABI/testing/sysfs-bus-pci, physfn).
    "a host of virtual GPUs, with the virtual functions on its bus": State(
        Place(driver(H100), files=VIRTUAL_FUNCTIONS),
        says(),
    ),
    # It computes, and needs a reset (GPU Memory Error Management).
    "one memory error that was not corrected": State(
        Place(driver(more(H200, remap_pending=1))),
        says("1 GPU; row-remap-pending (note)"),
    ),
    # It works; that torch has no 2:4 sparsity for it (pytorch/pytorch#132009, #132928).
    "an H100 with torch 2.4, whose cuSPARSELt is older than the card": State(
        Place(driver(H100), torch="2.4.1+cu124", refused={"sparse-2:4": MISMATCH}),
        says(),
    ),
    # It works; that torch has no 2:4 sparsity for it (cuSPARSELt 0.8.0, release notes; torch 2.7.1, which pins 0.6.3).
    "an RTX 50 with torch 2.7, whose cuSPARSELt is older than the card": State(
        Place(driver(RTX_5090), torch="2.7.1+cu128", refused={"sparse-2:4": MISMATCH}),
        says(),
    ),
    # The instance works by its long name. A driver of CUDA 11 runs builds for 11.8 alone, and no lock here is one
    # (MIG User Guide, Device Names; CUDA Compatibility, minor versions).
    "MIG with the names of R450": State(
        Place(
            FakeDriver((OLD_MIG,), driver="450.80.02", cuda=11000),
            torch="2.7.1+cu118",
        ),
        says(plan="2.7.1+cu118 for 0", start="exit 3"),
    ),
    # It works; the checks run without the variable and say so (cuBLAS, NVIDIA_TF32_OVERRIDE).
    "NVIDIA_TF32_OVERRIDE=1": State(
        Place(driver(RTX_5090), variables={"NVIDIA_TF32_OVERRIDE": "1"}),
        says(),
    ),
}
