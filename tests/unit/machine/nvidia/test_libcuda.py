import json
import os
import sys
from ctypes import CDLL

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.process import Finished
from gpuinstall.base.versions import DriverVersion
from gpuinstall.machine.nvidia import libcuda_child
from gpuinstall.machine.nvidia.libcuda_child import LACKING, Cuda, parse_mapped_file
from gpuinstall.machine.nvidia.libraries import (
    LibcudaFacts,
    create_child_environment,
    is_compat,
    parse_libcuda,
    parse_libcuda_release,
    query_driver,
)
from gpuinstall.machine.probe import read_machine
from gpuinstall.machine.source import Source
from tests.lab.recorded import healthy, libcuda, recording
from tests.lab.skips import needs_posix

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
H200 = {
    "name": "NVIDIA H200",
    "uuid": "GPU-00000000-1ab0-c0de-face-000000000000",
    "compute_capability": "9.0",
    "memory_mib": 143771,
    "bus_id": "0000:19:00.0",
}


def ended(out, status=0):
    return Finished(("python",), status, out, "")


def answered(**answer):
    return ended(json.dumps(answer) + "\n")


@pytest.mark.parametrize(
    ("child", "fault", "error"),
    [
        (
            answered(fault="missing", error="wrong ELF class"),
            "missing",
            "wrong ELF class",
        ),
        (ended("half an ans", -11), "crash", "killed by SIGSEGV"),
        (answered(init=-1), "unasked", "init is -1, not a non-negative integer"),
    ],
)
def test_failed_query_has_a_cause(child, fault, error):
    assert parse_libcuda(child) == LibcudaFacts(fault=fault, error=error)


def test_missing_nvml_binding_is_reported(monkeypatch):
    folders = [folder for folder in sys.path if "site-packages" not in folder]
    monkeypatch.setattr("sys.path", folders)
    facts, _ = query_driver(Source())
    assert (facts.fault, facts.init) == ("unasked", None)
    assert "nvidia-ml-py is not installed" in (facts.error or "")


def test_child_environment_excludes_cuda_variables(monkeypatch):
    misleading = {
        "LD_PRELOAD": "spy.so",
        "CUDA_INJECTION64_PATH": "spy.so",
        "CUDA_DISABLE_PTX_JIT": "1",
        "CUDA_FORCE_PTX_JIT": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
    }
    kept = {"LD_LIBRARY_PATH": "/.singularity.d/libs", "HOME": "/root"}
    steady = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}
    monkeypatch.setattr(os, "environ", misleading | kept)
    assert create_child_environment() == kept | steady


def test_cuda_visible_devices_is_passed_only_to_libcuda(monkeypatch):
    asked = {}

    class Recorder(Source):
        def run_children(self, commands):
            for library, (_, environment) in commands.items():
                asked[library] = environment.get("CUDA_VISIBLE_DEVICES")
            return [ended(""), ended("")]

    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    query_driver(Recorder())
    assert asked == {"NVML": None, "libcuda": "3"}


@pytest.mark.parametrize(
    ("library", "compat"),
    [
        ("/usr/local/cuda-13.0/compat/libcuda.so.580.95.05", True),
        ("/usr/local/cuda/compat/lib.real/libcuda.so.1", True),
        ("/home/ada/miniforge3/cuda-compat/libcuda.so.580.95.05", True),
        ("/usr/local/cuda-13.0/compat_orin/libcuda.so.1", True),
        (LIBRARY, False),
        ("/home/compatible/libcuda.so.1", False),
        ("nvcuda.dll", False),
        (None, False),
    ],
)
def test_cuda_compat_library_is_recognized_by_path(library, compat):
    assert is_compat(library) is compat


@pytest.mark.parametrize(
    ("library", "release"),
    [
        (LIBRARY, "580.95.05"),
        ("/usr/lib/wsl/drivers/nv_dispi/libcuda.so.1.1", None),
        ("/opt/libcuda.so.580.99999", None),
        ("nvcuda.dll", None),
        (None, None),
    ],
)
def test_driver_release_is_read_from_libcuda_name(library, release):
    assert parse_libcuda_release(library) == (release and DriverVersion.parse(release))


@pytest.mark.parametrize(
    ("path", "init", "driver"),
    [
        (LIBRARY, 0, ("580.95.05", "nvml", False)),
        # NVIDIA's compat package of the driver's own release changes nothing.
        (
            "/usr/local/cuda/compat/libcuda.so.580.95.05",
            0,
            ("580.95.05", "nvml", False),
        ),
        (
            "/usr/local/cuda/compat/libcuda.so.590.48.01",
            0,
            ("590.48.01", "libcuda", True),
        ),
        (
            "/usr/local/cuda/compat/libcuda.so.590.48.01",
            804,
            ("580.95.05", "nvml", False),
        ),
        ("/opt/module/libcuda.so.590.48.01", 0, ("590.48.01", "libcuda", True)),
        ("/usr/local/cuda/compat_orin/libcuda.so.1.1", 0, (None, "libcuda", True)),
    ],
)
def test_only_working_libcuda_is_accepted(tmp_path, path, init, driver):
    source = recording(tmp_path, healthy(), libcuda(1, init, path))

    read = read_machine(source=source).driver

    assert read is not None
    version = str(read.version) if read.version else None
    assert (version, read.found_via, read.libcuda == path) == driver


@needs_posix  # CDLL(None)
def test_missing_driver_function_is_reported(monkeypatch):
    monkeypatch.setattr(libcuda_child, "load_library", lambda: CDLL(None))
    assert Cuda().status("cuDeviceGetUuid_v2", None, 0) == LACKING


def test_libcuda_is_found_in_memory_maps():
    maps = (
        "7f0000000000-7f0000001000 r--p 00000000 08:01 131 /usr/lib/x86_64-linux-gnu/libc.so.6\n"
        f"7f0000001000-7f0000002000 r-xp 00001000 08:01 132                        {LIBRARY}\n"
        # WSL has two.
        "7f0000003000-7f0000004000 r-xp 00001000 08:01 133      /usr/lib/wsl/lib/libcuda.so.1\n"
        "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]\n"
    )
    assert parse_mapped_file(maps, library="libcuda") == LIBRARY
    assert (
        parse_mapped_file(maps.replace("libcuda", "libother"), library="libcuda")
        is None
    )


@given(st.text())
def test_any_memory_maps_are_parsed_without_error(maps):
    assert parse_mapped_file(maps, library="libcuda") is None or "libcuda.so" in maps
