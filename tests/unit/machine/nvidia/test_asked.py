"""The driver's libraries are loaded if a driver or GPU is visible."""

import pytest

from gpuinstall.machine.nvidia.linux import LOADER_CACHE
from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import card, libcuda, module, nvml, recording

ANSWERS = nvml({}) | libcuda(1)
CACHE = {LOADER_CACHE: "ld.so-1.7.0\0libc.so.6\0/lib/x86_64-linux-gnu/libc.so.6\0"}


def asked(folder, *files, **variables):
    machine = read_machine(source=recording(folder, ANSWERS, *files, **variables))
    return bool(machine.gpus)


def test_libraries_are_not_loaded_without_a_driver(tmp_path):
    assert not asked(tmp_path, CACHE)


@pytest.mark.parametrize(
    "sign",
    [
        {LOADER_CACHE: "libnvidia-ml.so.1\0/usr/lib/libnvidia-ml.so.1\0"},
        {LOADER_CACHE: "libcuda.so.1\0/usr/lib/libcuda.so.1\0"},
        {"/dev/nvidiactl": "open\n"},
        module(),
        card(1),
        card(1, driver=None),
    ],
)
def test_driver_files_cause_loading_of_driver_libraries(sign, tmp_path):
    assert asked(tmp_path, CACHE, sign)


def test_driver_libraries_outside_loader_cache_are_loaded(tmp_path):
    assert asked(tmp_path / "no cache")
    assert asked(tmp_path / "variable", CACHE, LD_LIBRARY_PATH="/opt/driver")
