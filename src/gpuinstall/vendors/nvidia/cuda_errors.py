"""What libcuda's error numbers mean for a machine, each with its entry in the failure catalogue.

Numbers and names: NVIDIA's cuda.h (CUresult); 35 is the runtime's, of driver_types.h. What other facts about the
machine make of one number is in :mod:`gpuinstall.probe.cuda_problems`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """Why CUDA refuses: ``{where}`` in the message stands for the GPUs, ``fix`` has a command a line, if any helps."""

    code: str
    message: str
    why: str
    fix: str = ""
    id: str | None = None
    needs: tuple[str, ...] = ()


NAMES = {
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    3: "CUDA_ERROR_NOT_INITIALIZED",
    34: "CUDA_ERROR_STUB_LIBRARY",
    35: "cudaErrorInsufficientDriver",
    36: "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
    46: "CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: "CUDA_ERROR_NO_DEVICE",
    101: "CUDA_ERROR_INVALID_DEVICE",
    102: "CUDA_ERROR_DEVICE_NOT_LICENSED",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    214: "CUDA_ERROR_ECC_UNCORRECTABLE",
    220: "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    221: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    223: "CUDA_ERROR_JIT_COMPILATION_DISABLED",
    304: "CUDA_ERROR_OPERATING_SYSTEM",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    702: "CUDA_ERROR_LAUNCH_TIMEOUT",
    714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
    715: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    801: "CUDA_ERROR_NOT_SUPPORTED",
    802: "CUDA_ERROR_SYSTEM_NOT_READY",
    803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    805: "CUDA_ERROR_MPS_CONNECTION_FAILED",
    806: "CUDA_ERROR_MPS_RPC_FAILURE",
    807: "CUDA_ERROR_MPS_SERVER_NOT_READY",
    808: "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    809: "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
    999: "CUDA_ERROR_UNKNOWN",
}

LOOK_FOR_XID = "sudo dmesg | grep -i xid\nsudo reboot"
_WHO_HOLDS_IT = (
    "nvidia-smi --query-gpu=index,compute_mode,memory.free --format=csv\n"
    "nvidia-smi --query-compute-apps=pid,name --format=csv"
)
_RELOAD_UVM = "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm"
_RELOAD_DRIVER = (
    "sudo reboot\n"
    "or, once every GPU program has ended: "
    "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia_uvm"
)
_MAKE_NODES = "ls -l /dev/nvidia*\nsudo nvidia-modprobe -c 0 -u"

_DRIVER_TOO_OLD = Cause(
    code="driver-too-old",
    message="the driver is too old for the libcuda that is loaded",
    why="a newer libcuda asks the kernel module for what it cannot do",
    fix="update the NVIDIA driver, then: sudo reboot",
    id="F02",
    needs=("root", "reboot"),
)
_NOT_OFFERED = Cause(
    code="cuda-no-device",
    message="CUDA does not offer {where} although the driver lists it",
    why="the device nodes that CUDA needs are missing or not permitted; CUDA_VISIBLE_DEVICES was not in the way",
    fix=_MAKE_NODES,
    id="F15",
    needs=("root",),
)
_FAILS_UNDER_WORK = Cause(
    code="gpu-kernel-failed",
    message="a small kernel failed on {where}",
    why="the card or its driver does not hold out under work: power, heat, riser or firmware",
    fix=LOOK_FOR_XID,
    id="F08",
    needs=("root", "reboot"),
)
_MPS = Cause(
    code="mps-unreachable",
    message="CUDA's multi-process service does not answer for {where}",
    why="CUDA goes through an MPS daemon where one is running or CUDA_MPS_PIPE_DIRECTORY names one",
    fix="echo quit | nvidia-cuda-mps-control\nunset CUDA_MPS_PIPE_DIRECTORY",
    id="F16",
)

CAUSES = {
    2: Cause(
        code="gpu-memory-full",
        message="{where} has no memory free",
        why="other processes hold it",
        fix=_WHO_HOLDS_IT,
        id="F16",
    ),
    3: Cause(
        code="cuda-not-initialized",
        message="CUDA cannot be initialized",
        why="the kernel module nvidia_uvm does not serve this process",
        fix=f"{_RELOAD_UVM}\nsudo dmesg | grep -i -e nvrm -e uvm",
        id="F14",
        needs=("root",),
    ),
    34: Cause(
        code="cuda-stub-library",
        message="the CUDA toolkit's stub stands where the driver's libcuda should be",
        why="a folder named stubs, meant for linking only, comes first on the loader's path",
        fix="unset LD_LIBRARY_PATH",
        id="F01",
    ),
    35: _DRIVER_TOO_OLD,
    36: _DRIVER_TOO_OLD,
    46: Cause(
        code="gpu-busy",
        message="{where} is held by another process",
        why="its compute mode gives it to one process at a time, or to none",
        fix=_WHO_HOLDS_IT,
        id="F16",
    ),
    100: _NOT_OFFERED,
    101: _NOT_OFFERED,
    102: Cause(
        code="vgpu-not-licensed",
        message="the virtual GPU has no licence for CUDA",
        why="a vGPU computes only while its licence server answers",
        fix="nvidia-smi -q | grep -A 2 -i licen\nask whoever runs the hypervisor for the licence",
        id="F18",
    ),
    209: Cause(
        code="gpu-too-old",
        message="{where} cannot execute code for sm_30 and newer",
        why="every build of PyTorch in use is for newer chips",
        fix="nvidia-smi --query-gpu=name,compute_cap --format=csv",
        id="F37",
    ),
    214: Cause(
        code="gpu-memory-faulty",
        message="the memory of {where} has an error that ECC cannot correct",
        why="a memory cell is damaged; no software causes this",
        fix="nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT\nsudo reboot\nif it comes back: have the card replaced",
        id="F09",
        needs=("root", "reboot"),
    ),
    220: Cause(
        code="gpu-nvlink-faulty",
        message="an NVLink of {where} has an error that cannot be corrected",
        why="the link is broken, or its switch has lost it",
        fix=f"nvidia-smi nvlink --status\n{LOOK_FOR_XID}",
        id="F08",
        needs=("root", "reboot"),
    ),
    304: Cause(
        code="device-nodes-unusable",
        message="the operating system refuses CUDA a device node of {where}",
        why="a node below /dev is missing or not permitted",
        fix=_MAKE_NODES,
        id="F13",
        needs=("root",),
    ),
    700: _FAILS_UNDER_WORK,
    702: _FAILS_UNDER_WORK,
    714: _FAILS_UNDER_WORK,
    715: _FAILS_UNDER_WORK,
    719: _FAILS_UNDER_WORK,
    801: Cause(
        code="vgpu-limited",
        message="{where} does not support what CUDA needs",
        why="a vGPU profile without unified memory, or without a licence, refuses this",
        fix="nvidia-smi -q | grep -i -e vgpu -e licen\nask whoever runs the hypervisor for unified memory",
        id="F18",
    ),
    802: Cause(
        code="fabric-manager-not-running",
        message="the GPUs wait for their NVSwitch fabric",
        why="on HGX and DGX machines CUDA starts only after the fabric manager, of exactly the driver's version",
        fix="sudo systemctl enable --now nvidia-fabricmanager\nnvidia-smi -q | grep -A 3 Fabric",
        id="F10",
        needs=("root",),
    ),
    803: Cause(
        code="driver-library-mismatch",
        message="the NVIDIA kernel module and the driver's libraries differ",
        why="the driver was updated and the machine has not been restarted since",
        fix=_RELOAD_DRIVER,
        id="F03",
        needs=("root", "reboot"),
    ),
    804: Cause(
        code="forward-compatibility-unsupported",
        message="a libcuda newer than the kernel module was loaded, and {where} does not allow that",
        why="NVIDIA's forward compatibility is for data-centre GPUs",
        fix="unset LD_LIBRARY_PATH",
        id="F11",
    ),
    805: _MPS,
    806: _MPS,
    807: _MPS,
    808: _MPS,
    809: _MPS,
    999: Cause(
        code="cuda-unknown-error",
        message="CUDA reports an unknown error",
        why="the kernel module nvidia_uvm has lost its state, often by suspend and resume",
        fix=f"{_RELOAD_UVM}\nor: sudo reboot",
        id="F12",
        needs=("root",),
    ),
}

UNLISTED = Cause(
    code="cuda-error",
    message="CUDA fails on {where}",
    why="this number has no common cause",
    fix=LOOK_FOR_XID,
    needs=("root", "reboot"),
)


def name_of(status: int) -> str:
    """The error's name in NVIDIA's headers, or its number."""
    return NAMES.get(status, f"CUresult {status}")
