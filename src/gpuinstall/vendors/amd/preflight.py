"""AMD's preflight: the kernel's compute driver is asked for its version; kernels run once a build is there."""

from __future__ import annotations

import os
import struct
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext, problem
from gpuinstall.vendors import vendor_of
from gpuinstall.vendors.amd.topology import KFD
from gpuinstall.vendors.prober import GpuProof, Preflight

if TYPE_CHECKING:
    from gpuinstall.machine import Machine

GET_VERSION = 0x80084B01
"""AMDKFD_IOC_GET_VERSION of linux/kfd_ioctl.h: two numbers of 32 bits are read."""


def preflight(machine: Machine) -> Preflight:
    """Ask once for all GPUs; they stay unproven, for only kernels prove them."""
    unusable = {index for each in machine.problems if each.blocking for index in each.gpus}
    gpus = [gpu.index for gpu in machine.gpus if vendor_of(gpu, machine) == "amd" and gpu.index not in unusable]
    if machine.blocking or not gpus or machine.os != "linux":
        return Preflight()
    start = monotonic()
    try:
        kfd_version()
    except OSError as error:
        message = f"{KFD} does not answer: {error.strerror}"
        fault = problem("kfd-not-answering", message, FixContext.of_machine(machine), gpus=tuple(gpus))
        return Preflight(tuple(GpuProof(gpu, "failed") for gpu in gpus), (fault,), monotonic() - start)
    return Preflight(tuple(GpuProof(gpu, "unproven") for gpu in gpus), (), monotonic() - start)


def kfd_version(path: str = KFD) -> tuple[int, int]:
    """Ask the compute driver for its version; raise OSError where it does not answer."""
    import fcntl

    device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        major, minor = struct.unpack("II", fcntl.ioctl(device, GET_VERSION, bytes(8)))
    finally:
        os.close(device)
    return major, minor
