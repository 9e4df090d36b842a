"""Tests of inspecting wheels of torch."""

from time import monotonic

import pytest

from gpuinstall.base.versions import Backend
from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.pace import slowness
from tests.unit.wheels.made import (
    FLAGS,
    PYTHON_LIBRARY,
    ROW,
    TORCH_WHEEL,
    Bytes,
    archive,
    library,
    over_http,
    server,
    serving,
    torch_files,
    version_py,
)


def _read(files):
    return read_torch(WheelReader(Bytes(archive(files))))


def _flags(string):
    return _read(torch_files() | {PYTHON_LIBRARY: library(string)}).architectures


def test_torch_wheel_is_read_by_http_ranges():
    data = TORCH_WHEEL
    with server(serving(data)) as host, over_http(f"{host.url}/torch.whl") as ranges:
        wheel = WheelReader(ranges)
        code = read_torch(wheel)
    toolkit = Backend("cuda", "13.0")
    assert code[:2] == ("2.16.0+cu130", toolkit)
    assert code.architectures == ROW
    assert len(host.log) == 3
    assert {asked.status for asked in host.log} == {206}
    assert {asked.method for asked in host.log} == {"GET"}
    # The end of the file, together with its size.
    assert host.log[0].range == "bytes=-65600"
    assert {asked.headers["accept-encoding"] for asked in host.log} == {"identity"}


def test_torch_library_is_read_up_to_architecture_string():
    ranges = Bytes(archive(torch_files() | {PYTHON_LIBRARY: library(size=3_000_000)}))
    wheel = WheelReader(ranges)
    read_torch(wheel)
    assert 0.5 < wheel.bytes_read / ranges.size < 0.75


@pytest.mark.parametrize(
    ("string", "expected"),
    [
        (
            b"std::string ipc_hsm_70 sm_75\0",
            ("sm_70", "sm_75"),
        ),  # torch 2.9.1: no NUL before it
        (
            b"\0sm_80 sm_75 compute_80 sm_90a sm_103f\0",
            ("sm_75", "sm_80", "sm_90a", "sm_103f", "compute_80"),
        ),
        (b"\0gfx1100 gfx90a gfx942\0", ("gfx1100", "gfx90a", "gfx942")),
        (b"\0sm_90\0", ("sm_90",)),
        (b"\0sm_90\0 and\nsm_80\0", ()),
        (b"\0sm_75 sm_80 \0 sm_75  sm_80\0sm_7 sm_8\0", ()),
        (b"\0sm_75,sm_80\0-gencode;arch=compute_90,code=sm_90\0", ()),
        (b"", ()),
    ],
)
def test_architectures_are_read_from_torch_flags_string(string, expected):
    assert _flags(string) == expected


@pytest.mark.parametrize("at", [(1 << 20) + shift for shift in range(-24, 8, 5)])
def test_architecture_string_across_two_pieces_is_found(at):
    data = b"\0" * at + FLAGS + b"\0" * 100
    assert _read(torch_files() | {PYTHON_LIBRARY: data}).architectures == ROW


CU130 = Backend("cuda", "13.0")
NAMED_CPU = {"torch/version.py": version_py(None)}
OLDER = b"__version__ = '2.1.2+cu121'\ndebug = False\ncuda = '12.1'\ngit_version = 'a8e7c98c'\nhip = None\n"


@pytest.mark.parametrize(
    ("files", "version", "toolkit", "architectures"),
    [
        # A build for Windows.
        (
            {PYTHON_LIBRARY: b"", "torch/lib/torch_python.dll": library()},
            "2.16.0+cu130",
            CU130,
            ROW,
        ),
        ({"torch/version.py": OLDER}, "2.1.2+cu121", Backend("cuda", "12.1"), ROW),
        # Only the version identifies a CPU build.
        (NAMED_CPU, "2.16.0+cu130", None, ()),
        ({PYTHON_LIBRARY: library(b"")}, "2.16.0+cu130", CU130, ()),
    ],
)
def test_torch_version_and_toolkit_are_read_from_wheel(
    files, version, toolkit, architectures
):
    code = _read(torch_files() | files)

    assert code[:2] == (version, toolkit)
    assert code.architectures == architectures


@pytest.mark.parametrize(
    "files", [{"a": b""}, {"a.dist-info/METADATA": b"", "b.dist-info/METADATA": b""}]
)
def test_wheel_must_have_one_metadata_file(files):
    with pytest.raises(WheelError, match="METADATA files"):
        WheelReader(Bytes(archive(files))).metadata()


def test_long_architecture_string_is_parsed_quickly():
    began = monotonic()
    assert read_flags([b"sm_90 " * 10_000]) == ()
    assert monotonic() - began < 2 * slowness()
