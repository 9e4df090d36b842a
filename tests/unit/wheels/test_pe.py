"""What a DLL takes from other libraries, out of its beginning."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpuinstall.wheels.gpu_code import read_fatbins
from gpuinstall.wheels.needs import read_needs
from gpuinstall.wheels.pe import imported_functions, without_relocatable
from gpuinstall.wheels.ranges import FileRanges, Limits
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.pe import make_dll
from tests.lab.wheels import make_wheel
from tests.unit.wheels.made import fatbin
from tests.unit.wheels.test_needs import STABLE_FROM_2_13

IMPORTS = {
    "c10.dll": ("?intrusive@c10@@YAXXZ",),
    "torch_cpu.dll": ("aoti_torch_empty_strided", "?view@Tensor@at@@QEBA"),
    "KERNEL32.dll": (),
}
FUNCTIONS = {
    "c10.dll": frozenset({b"?intrusive@c10@@YAXXZ"}),
    "torch_cpu.dll": frozenset({b"aoti_torch_empty_strided", b"?view@Tensor@at@@QEBA"}),
    "KERNEL32.dll": frozenset[bytes](),
}


def in_pieces(data: bytes, size: int = 1000) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("before", [0, 5, 300_000])
def test_the_functions_are_read_wherever_the_table_lies(before):
    assert imported_functions(in_pieces(make_dll(IMPORTS, before))) == FUNCTIONS


def test_no_more_is_read_than_the_table_needs():
    pieces = in_pieces(make_dll(IMPORTS, after=1 << 20))

    assert imported_functions(pieces) == FUNCTIONS
    assert len(list(pieces)) > 1000


def test_a_dll_that_is_linked_to_nothing_is_one():
    assert imported_functions([make_dll({})]) == {}


@pytest.mark.parametrize("data", [b"", b"MZ", b"\x7fELF" + bytes(9000), bytes(9000)])
def test_what_is_no_dll_tells_nothing(data):
    assert imported_functions([data]) is None


def test_tables_that_all_lead_to_one_are_not_followed():
    """A file of 130 kB with 100 MB of names."""
    libraries: dict[str, list[str]] = {f"{number}.dll": [] for number in range(998)}
    libraries["last.dll"] = [f"{number:04}{'f' * 96}" for number in range(999)]
    dll = bytearray(make_dll(libraries))
    rows = 0x400
    [last] = struct.unpack_from("<I", dll, rows + 998 * 20)
    for number in range(998):
        struct.pack_into("<I", dll, rows + number * 20, last)

    assert imported_functions([bytes(dll)]) is None


def test_a_damaged_dll_is_no_error():
    whole = make_dll(IMPORTS)
    for cut in range(0, len(whole), 7):
        assert imported_functions([whole[:cut]]) in (None, FUNCTIONS)
        damaged = whole[:cut] + b"\xff\xff\xff\xff" + whole[cut + 4 :]
        imported_functions([damaged])


@pytest.mark.parametrize(
    ("imports", "cuda", "torch"),
    [
        (("torch_cuda.dll", "cudart64_12.dll"), 12, "ordinary"),
        (("cublasLt64_13.dll", "KERNEL32.dll"), 13, "none"),
        (("cudart64_110.dll",), 11, "none"),
        (("nvrtc64_130_0.dll",), 13, "none"),
        (("amdhip64_7.dll",), None, "none"),
    ],
)
def test_a_wheel_for_windows_needs_the_cuda_that_its_dlls_are_linked_to(
    tmp_path, imports, cuda, torch
):
    modules: dict[str, str | bytes] = {
        "painter/_C.pyd": make_dll(dict.fromkeys(imports, ("?call@@YAXXZ",)))
    }
    wheel = make_wheel(tmp_path, "painter", "1", "cp312-cp312-win_amd64", modules=modules)

    needs = read_needs(WheelReader(FileRanges(wheel)))

    assert (needs.cuda, needs.torch.kind) == (cuda, torch)
    assert needs.libraries == ()


def test_gpu_code_that_was_linked_before_does_not_count():
    linked = fatbin((2, 80, 0), (1, 90, 0))
    loaded = fatbin((2, 80, 0))
    data = make_dll(IMPORTS, relocatable=linked * 3) + loaded * 3

    assert read_fatbins([data]).architectures == ("sm_80", "compute_90")
    for size in (1, 100, len(data)):
        pieces = without_relocatable(in_pieces(data, size))
        assert read_fatbins(pieces).architectures == ("sm_80",)


def test_a_dll_that_takes_the_stable_interface_alone_tells_the_oldest_torch(tmp_path):
    imports = {"torch_cpu.dll": [STABLE_FROM_2_13], "KERNEL32.dll": ["CreateFileW"]}
    modules: dict[str, str | bytes] = {"painter/_C.pyd": make_dll(imports)}
    wheel = make_wheel(tmp_path, "painter", "1", "cp312-cp312-win_amd64", modules=modules)

    torch = read_needs(WheelReader(FileRanges(wheel))).torch

    assert (torch.kind, torch.oldest) == ("stable", "2.13")
    assert (torch.verdict("2.13"), torch.verdict("2.12")) == (True, False)


@pytest.mark.network
@pytest.mark.parametrize(
    "requirement",
    [
        "xformers==0.0.33.post2",
        "bitsandbytes==0.50.2",
        "comfy-kitchen==0.2.40",
        "nvidia-cublas-cu12",
    ],
)
def test_real_wheels_tell_what_objdump_tells(tmp_path, requirement):
    if not shutil.which("objdump"):
        pytest.skip("no objdump here: apt-get install binutils")
    words = ["--no-deps", "--only-binary", ":all:", "--platform", "win_amd64"]
    command = [sys.executable, "-m", "pip", "download", *words, "--python-version", "3.12"]
    subprocess.run([*command, requirement], cwd=tmp_path, check=True, capture_output=True)
    [path] = tmp_path.glob("*.whl")
    wheel = WheelReader(FileRanges(path), Limits(bytes=4 << 30, inflated=8 << 30, requests=1000))
    compared = 0
    for member in wheel.members:
        if not member.endswith((".dll", ".pyd")):
            continue
        data = b"".join(wheel.stream(member))
        (tmp_path / "it.dll").write_bytes(data)
        told = subprocess.run(
            ["objdump", "-p", tmp_path / "it.dll"], check=True, capture_output=True, text=True
        ).stdout
        assert sorted(imported_functions([data]) or ()) == sorted(
            set(re.findall(r"DLL Name: (\S+)", told))
        )
        compared += 1
    assert compared
