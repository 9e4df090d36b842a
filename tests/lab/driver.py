"""A fake NVIDIA driver: compiled libraries that the real bindings load."""

import os
import subprocess
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

HERE = Path(__file__).parent
COMPILE = (
    "cc",
    "-shared",
    "-fPIC",
    "-O1",
    "-Wall",
    "-Werror",
    "-Wno-unused-function",
    "-Wno-unused-result",
)
LIBRARIES = {
    "nvml": ("fake_libnvidia_ml.c", "libnvidia-ml.so.1"),
    "cuda": ("fake_libcuda.c", "libcuda.so.1"),
}


@dataclass(frozen=True)
class FakeSlice:
    """One MIG slice of a GPU."""

    uuid: str
    profile: str = "1g.10gb"
    memory_mib: int = 9856
    nvml_error: int = 0


@dataclass(frozen=True)
class FakeGpu:
    """A GPU, healthy by default.

    The fields are the keys of the lab's file (lab.h). ``more`` contains further keys. A
    ``…_error`` is the number that the driver returns: NVML's for any query of the GPU,
    and CUDA's when the GPU is opened (``cuda_error``), receives PTX (``ptx_error``), or
    has started the kernel (``launch_error``).
    """

    name: str = "NVIDIA GeForce RTX 4090"
    uuid: str | None = None
    cc: str = "8.9"
    memory_mib: int = 24564
    free_mib: int | None = None
    pci: str = "10de:2684"
    bus: str | None = None
    mig: bool = False
    nvml_error: int = 0
    hidden_from_cuda: bool = False
    cuda_error: int = 0
    cuda_hang_s: int = 0
    cuda_crash: bool = False
    ptx_error: int = 0
    launch_error: int = 0
    wrong_result: bool = False
    slices: tuple[FakeSlice, ...] = ()
    more: tuple[tuple[str, str | int], ...] = ()


@dataclass(frozen=True)
class FakeDriver:
    """A fake driver with its GPUs and initialization results.

    ``cuda`` is the number from cuDriverGetVersion. ``…_init`` is the result of an
    initialization.
    """

    gpus: tuple[FakeGpu, ...] = ()
    driver: str = "580.95.05"
    cuda: int = 13000
    nvml_missing: bool = False
    nvml_init: int = 0
    nvml_hang_s: int = 0
    nvml_crash: bool = False
    cu_missing: bool = False
    cu_init: int = 0
    cu_hang_s: int = 0
    cu_crash: bool = False
    more: tuple[tuple[str, str | int], ...] = ()


NO_GPU = FakeDriver(nvml_missing=True, cu_missing=True)
RTX_4090 = FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020)
A100 = FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2")
H100 = FakeGpu("NVIDIA H100 80GB HBM3", cc="9.0", memory_mib=81559, pci="10de:2330")
H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
RTX_5090 = FakeDriver(
    (FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", memory_mib=32768, pci="10de:2b85"),)
)


def uuid_of(index: int) -> str:
    """Return the UUID of a GPU, by default one made of its index."""
    return f"GPU-{index:08x}-1ab0-c0de-face-{index:012x}"


def build(folder: Path) -> Path:
    """Compile each library of the lab into a subfolder of ``folder``."""
    for room in LIBRARIES:
        compiled(folder, room)
    return folder


def compiled(
    folder: Path, room: str, lacking: Iterable[str] = (), more: str = ""
) -> Path:
    """Compile a library of the lab unless it exists.

    Args:
        folder: The parent of the library's own folder.
        room: The library's key in ``LIBRARIES``.
        lacking: The functions that the library lacks.
        more: C code to add.
    """
    source, library = LIBRARIES[room]
    target = folder / room / library
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*COMPILE]
    lines = [f'#include "{HERE / source}"']
    for name in lacking:
        command.append(f"-D{name}=hidden_{name}")
        lines.append(f"#undef {name}")
    lines.append(more)
    command += ["-x", "c", "-", "-o", str(target)]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)
    return target


def environment(driver: FakeDriver, libraries: Path, folder: Path) -> dict[str, str]:
    """Write the lab's file, and return an environment that loads the fakes."""
    text = describe(driver)
    file = folder / f"gpus-{zlib.crc32(text.encode()):08x}" / "gpus.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")
    # The file appears to be old.
    os.utime(file.parent, (0, 0))
    path = []
    if not driver.nvml_missing:
        path.append(str(libraries / "nvml"))
    if not driver.cu_missing:
        path.append(str(libraries / "cuda"))
    path.append(str(file.parent))
    inherited = os.environ.get("LD_LIBRARY_PATH")
    if inherited:
        path.append(inherited)
    return {
        **os.environ,
        "LAB_GPUS": str(file),
        "LD_LIBRARY_PATH": os.pathsep.join(path),
    }


def describe(driver: FakeDriver) -> str:
    """Return the text of the file that describes the fake driver."""
    lines = _pairs(driver)
    for index, gpu in enumerate(driver.gpus):
        identified = replace(
            gpu,
            uuid=gpu.uuid or uuid_of(index),
            bus=gpu.bus or f"0000:{index + 1:02x}:00.0",
        )
        lines.append("\t".join(["gpu", *_pairs(identified)]))
        lines += ["\t".join(["slice", *_pairs(part)]) for part in gpu.slices]
    return "\n".join(lines) + "\n"


def _pairs(value: FakeDriver | FakeGpu | FakeSlice) -> list[str]:
    facts = {field.name: getattr(value, field.name) for field in fields(value)}
    facts |= dict(facts.pop("more", ()))
    pairs = []
    for key, fact in facts.items():
        match fact:
            case None | tuple():
                continue
            case bool():
                pairs.append(f"{key}={int(fact)}")
            case _:
                pairs.append(f"{key}={fact}")
    return pairs
