"""The library that hides this machine's GPUs from the tests."""

import os
import subprocess
import sys

import pytest

from tests.lab import own_gpus

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="requires a Linux library"
)


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """Return an environment that hides the GPUs."""
    library = own_gpus.compile_into(tmp_path_factory.mktemp("hidden"))
    return {**os.environ, "LD_PRELOAD": str(library)}


def told(program, environment):
    """Return the output of a Python program."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


ERROR = """
import ctypes, os
try:
    {}
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("os.listdir('/sys/bus/pci/devices')", "[Errno 2] No such file or directory"),
        ("open('/.dockerenv')", "[Errno 2] No such file or directory"),
        ("open('/dev/nvidia0')", "[Errno 2] No such file or directory"),
        ("os.open('/dev/dri/card0', 0)", "[Errno 2] No such file or directory"),
        ("os.readlink('/sys/bus/pci/devices/x')", "[Errno 2] No such file or dir"),
        ("ctypes.CDLL('libcuda.so.1')", "libcuda.so.1: cannot open shared object"),
        ("ctypes.CDLL('libother.so.1')", "libother.so.1: cannot open shared object"),
    ],
)
def test_simulated_machine_hides_real_gpus(hidden, call, said):
    hidden.pop("LD_LIBRARY_PATH", None)
    assert told(ERROR.format(call), hidden).startswith(said)


def test_fake_cuda_driver_is_loaded_from_library_path(hidden, libraries):
    played = {**hidden, "LD_LIBRARY_PATH": str(libraries / "cuda")}
    program = "import ctypes; print(ctypes.CDLL('libcuda.so.1')._name)"
    assert told(program, played) == "libcuda.so.1"


def test_directory_listing_omits_gpu_device_files(hidden, tmp_path):
    names = ["nvidia", "nvidia-cudnn", "nvidia-uvm-tools", "nvidia0", "nvidiactl"]
    for name in names:
        (tmp_path / name).touch()
    program = f"import os; print(*sorted(os.listdir({str(tmp_path)!r})))"
    assert told(program, hidden) == "nvidia nvidia-cudnn"
