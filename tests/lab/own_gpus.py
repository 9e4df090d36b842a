"""Hide the GPUs and container of the machine that runs the tests."""

import os
import shutil
import subprocess
from pathlib import Path

from gpuinstall.machine.container import read_container
from gpuinstall.machine.nvidia import libraries
from gpuinstall.machine.source import Source

SOURCE = Path(__file__).with_name("hidden.c")
SIGNS = ("/proc/driver/nvidia", "/dev/kfd", "/dev/dri", "/dev/dxg")
VARIABLES = (
    *("CUDA_", "NVIDIA_", "TORCH_", "HIP_", "ROCR_", "ZE_"),
    *("KUBERNETES_SERVICE_HOST", "APPTAINER_", "SINGULARITY_", "container"),
)
NAME = "hidden.so"
DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


def has_gpus_or_container() -> bool:
    """Return whether this machine has GPUs, or is a container."""
    return read_container(Source()).engine is not None or any(
        map(os.path.exists, SIGNS)
    )


def hide(folder: Path):
    """Hide the GPUs of this machine from new processes.

    On every machine, the variables for GPUs and containers are removed.
    """
    for name in list(os.environ):
        if name.startswith(VARIABLES):
            del os.environ[name]
    folders = os.environ.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
    kept = [path for path in folders if path and not _has_driver(path)]
    if kept:
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(kept)
    if has_gpus_or_container() and shutil.which("cc"):
        os.environ["LD_PRELOAD"] = str(compile_into(folder))


def is_hidden() -> bool:
    """Return whether this process was started with the library."""
    return os.environ.get("LD_PRELOAD", "").endswith(NAME)


def play():
    """Load the library in child processes that query the driver."""
    if is_hidden():
        libraries._MISLEADING.discard("LD_PRELOAD")


def compile_into(folder: Path) -> Path:
    """Compile the library that hides GPUs, and return it."""
    library = folder / NAME
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", SOURCE, "-o", library],
        check=True,
    )
    return library


def _has_driver(folder: str) -> bool:
    return any(os.path.exists(f"{folder}/{name}") for name in DRIVER)
