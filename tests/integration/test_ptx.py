"""Tests that assemble and interpret the preflight's PTX kernel."""

import re
import subprocess
import sys

import pytest

from gpuinstall.machine.nvidia.libcuda_child import (
    KERNEL,
)
from gpuinstall.machine.nvidia.preflight import KERNEL as PTX

# CUDA 12.9 is the last for Maxwell, Pascal, and Volta; 13 adds sm_88 and sm_110.
TARGETS = {
    "nvidia-cuda-nvcc-cu12==12.9.*": (
        50,
        52,
        53,
        60,
        61,
        62,
        70,
        72,
        75,
        80,
        86,
        87,
        89,
        90,
        100,
        103,
        120,
        121,
    ),
    "nvidia-cuda-nvcc==13.*": (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121),
}


def ptxas_of(requirement, folder):
    """Download NVIDIA's assembler (40 MB), and return its path."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--python",
        sys.executable,
    ]
    subprocess.run([*command, "--target", folder, requirement], check=True)
    (ptxas,) = folder.rglob("bin/ptxas")
    return ptxas


@pytest.mark.network
@pytest.mark.skipif(
    sys.platform != "linux", reason="requires NVIDIA's ptxas from a Linux wheel"
)
@pytest.mark.parametrize("requirement", TARGETS)
def test_ptxas_assembles_the_kernel_for_every_target(requirement, tmp_path):
    ptxas = ptxas_of(requirement, tmp_path / "nvcc")
    usage = subprocess.run(
        [ptxas, "--help"], capture_output=True, text=True, check=True
    ).stdout
    known = sorted(set(re.findall(r"'(sm_\d+[af]?)'", usage)))
    assert set(known) >= {f"sm_{number}" for number in TARGETS[requirement]}
    for target in known:
        cubin = tmp_path / f"{target}.cubin"
        subprocess.run([ptxas, "-arch", target, "-o", cubin, PTX], check=True)
        assert cubin.read_bytes().startswith(b"\x7fELF")


def test_kernel_is_readable_by_the_oldest_driver():
    text = PTX.read_text(encoding="ascii")
    assert ".version 3.2\n.target sm_30\n.address_size 64\n" in text
    assert f".entry {KERNEL.decode()}(" in text
