"""Tests that assemble and interpret the preflight's PTX kernel."""

import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from gpuinstall.machine.nvidia.libcuda_child import (
    BLOCK,
    COUNT,
    FACTOR,
    KERNEL,
    PATTERN,
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


@pytest.mark.parametrize("index", [0, 1, BLOCK - 1, BLOCK, COUNT - 1])
def test_kernel_thread_writes_only_its_own_word(index):
    memory = {4 * index: index ^ PATTERN}
    execute(memory, *divmod(index, BLOCK))
    assert memory == {4 * index: ((index ^ PATTERN) * FACTOR + index) % 2**32}


def test_kernel_threads_beyond_array_end_write_nothing():
    memory: dict[int, int] = {}
    execute(memory, *divmod(COUNT, BLOCK))
    assert memory == {}


def execute(memory, block, thread):
    """Run one thread of the kernel on ``memory``, starting at 0."""
    values = {
        "%ctaid.x": block,
        "%ntid.x": BLOCK,
        "%tid.x": thread,
        "data": 0,
        "factor": FACTOR,
        "count": COUNT,
    }
    instructions: dict[str, Callable[..., int]] = {
        "mov.u32": lambda a: a,
        "mad.lo.u32": lambda a, b, c: (a * b + c) % 2**32,
        "ld.param.u32": lambda a: a,
        "ld.param.u64": lambda a: a,
        "cvta.to.global.u64": lambda a: a,
        "mul.wide.u32": lambda a, b: a * b,
        "add.u64": lambda a, b: a + b,
        "setp.ge.u32": lambda a, b: int(a >= b),
        "ld.global.u32": lambda a: memory[a],
    }

    def value(operand):
        name = operand.strip("[]")
        return int(name) if name.isdigit() else values[name]

    for line in re.findall(
        r"^    (\S.*);$",
        PTX.read_text(encoding="ascii").partition("{")[2],
        re.MULTILINE,
    ):
        name, *operands = line.replace(",", " ").split()
        if name == "@%outside":
            if values["%outside"]:
                return
        elif name == "st.global.u32":
            memory[value(operands[0])] = value(operands[1])
        elif name not in (".reg", "ret"):
            values[operands[0]] = instructions[name](*map(value, operands[1:]))
