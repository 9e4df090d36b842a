"""What keeps the preflight's kernel from proving a GPU, where it is not a plain error of CUDA. Data."""

from __future__ import annotations

from dataclasses import replace

from gpuinstall.probe.cuda_errors import CAUSES, LOOK_FOR_XID, Cause

NO_LIBRARY = Cause(
    code="libcuda-missing",
    message="libcuda, the driver's CUDA library, cannot be loaded",
    why="the driver was installed without its compute part, or a container was given only its utilities",
    fix="ldconfig -p | grep libcuda\nin a container: set NVIDIA_DRIVER_CAPABILITIES=compute,utility and start it anew",
    id="F01",
)

HANGS = Cause(
    code="driver-hangs",
    message="the driver does not answer for {where}",
    why="a card that is lost, or a fabric that does not come up, keeps its driver waiting",
    fix=LOOK_FOR_XID,
    id="F08",
    needs=("root", "reboot"),
)

CRASHES = replace(
    HANGS,
    code="driver-crashes",
    message="the driver's CUDA library crashes on {where}",
    why="its files are damaged or of several releases, or the card answers nonsense",
    id=None,
)

COMPUTES_WRONG = replace(
    HANGS,
    code="gpu-computes-wrong",
    message="a small kernel computes wrong numbers on {where}",
    why="the card's memory or its cores are faulty, or it is clocked too high",
)

_NO_KERNEL = Cause(
    code="kernel-not-proven",
    message="no kernel ran on {where}; memory was set and read back instead",
    why="libnvidia-ptxjitcompiler.so.1 is missing here; builds with machine code for the GPU do not need it",
    id="F67",
)

# No fault of the machine, by CUresult.
UNCOMPILED = {
    221: _NO_KERNEL,
    222: replace(
        _NO_KERNEL,
        why="the driver's PTX compiler does not know this PTX; builds with machine code for the GPU do not need it",
    ),
    223: replace(
        _NO_KERNEL,
        why="compiling PTX is switched off here; builds with machine code for the GPU do not need it",
    ),
}

MEMORY_FULL = replace(
    CAUSES[2], message=_NO_KERNEL.message, why="too little of its memory is free; other processes hold it"
)

# What leaves a card unproven and is no fault of it, by CUresult: busy, or a libcuda without a function that is called.
UNPROVEN = {
    2: replace(CAUSES[2], message="nothing was proven on {where}: it has no memory free"),
    46: replace(CAUSES[46], message="nothing was proven on {where}: another process holds it"),
    500: replace(
        _NO_KERNEL,
        message="nothing was proven on {where}: its libcuda lacks a function that the preflight calls",
        why="this libcuda is not a whole one; the kernels after the installation decide",
        id=None,
    ),
}
