"""Machine recordings with few files, for tests of one fact."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from gpuinstall.base.files import read_raw
from gpuinstall.base.machine import Machine
from gpuinstall.base.process import Finished
from gpuinstall.machine.children import json_or_none
from gpuinstall.machine.probe import read_machine
from gpuinstall.machine.source import Access, Source
from tests.lab.driver import uuid_of

if TYPE_CHECKING:
    from gpuinstall.machine.children import Command

ENVIRONMENT = "environment.json"
"""The file with the recorded environment variables."""

PCI = "/sys/bus/pci/devices"
UBUNTU = 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n'
NVML = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
RTX_4090 = "10de:2684"
H200 = "10de:2335"
GTX_1080 = "10de:1b80"
RTX_5090 = "10de:2b85"


class Recording(Source):
    """A recorded machine.

    The folder contains its files under their own paths, and one file for each query
    result. A file stores the target of a link, or ``open`` or ``denied`` for a device
    node. Characters that a file system may reject are percent-encoded.
    """

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder

    def text(self, path: str, most: int = -1) -> str | None:  # noqa: ARG002
        """Return the text of a recorded file."""
        return self._read(recorded_name(path))

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a recorded folder."""
        recorded = self.folder / recorded_name(path)
        names = map(unquote, Source().names(str(recorded)))
        return tuple(sorted(name for name in names if name.startswith(start)))

    def link(self, path: str) -> str | None:
        """Return the target of a recorded link."""
        target = self.text(path)
        return None if target is None else target.strip()

    def access(self, path: str) -> Access | None:
        """Return the recorded access to a device node."""
        state = self.text(path)
        if state is None:
            return None
        return "denied" if state.strip() == "denied" else "open"

    def variable(self, name: str) -> str | None:
        """Return a recorded environment variable."""
        variables = json_or_none(self._read(ENVIRONMENT) or "")
        if not isinstance(variables, dict):
            return None
        value = variables.get(name)
        return None if value is None else str(value)

    def answer(self, name: str, ask: Callable[[], str]) -> str:  # noqa: ARG002
        """Return the recorded output, or an empty text."""
        return self._read(name) or ""

    def run_children(self, commands: Mapping[str, Command]) -> list[Finished]:
        """Return the recorded ends and output of child processes."""
        return [self._ended(f"{library.lower()}.txt") for library in commands]

    def _ended(self, name: str) -> Finished:
        match = re.match(r"status (None|-?[0-9]{1,5})\n", self._read(name) or "")
        if match is None:
            # The query was made and printed nothing.
            return Finished((), 0, '{"end": true}', "")
        status = None if match[1] == "None" else int(match[1])
        return Finished((), status, match.string[match.end() :], "")

    def _read(self, name: str) -> str | None:
        with suppress(OSError):
            return read_raw(self.folder / name, self.folder).decode("utf-8", "replace")
        return None


def recorded_name(path: str) -> str:
    """Return the file of a recording for ``path``."""
    return quote(path.lstrip("/"), safe="/+-._~@")


def read_recording(folder: Path) -> Machine:
    """Return the machine that was recorded in a folder."""
    return read_machine(source=Recording(folder))


def recording(folder: Path, *parts: Mapping[str, str], **variables: str) -> Recording:
    """Write a recorded machine, by default Ubuntu 22.04 on x86-64."""
    files = {
        "platform.json": platform(),
        "/etc/os-release": UBUNTU,
        "environment.json": json.dumps(variables),
    }
    for part in parts:
        files |= part
    write_recording(folder, files)
    return Recording(folder)


def write_recording(folder: Path, files: Mapping[str, str]):
    """Write the files of a machine in the format of a recording."""
    for path, text in files.items():
        file = folder / recorded_name(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")


def platform(
    system: str = "Linux",
    machine: str = "x86_64",
    release: str = "6.8.0-45-generic",
    translated: str = "",
) -> str:
    """Return values of Python's platform module."""
    libc = "glibc 2.35" if system == "Linux" else ""
    said = {
        "system": system,
        "machine": machine,
        "release": release,
        "libc": libc,
        "translated": translated,
    }
    return json.dumps(said)


def card(
    number: int,
    pci: str = RTX_4090,
    driver: str | None = "nvidia",
    kind: str = "0x030000",
) -> dict[str, str]:
    """Return the files of a GPU on bus ``number`` with a kernel driver."""
    vendor, device = pci.split(":")
    folder = f"{PCI}/{bus(number)}"
    files = {
        f"{folder}/vendor": f"0x{vendor}\n",
        f"{folder}/device": f"0x{device}\n",
        f"{folder}/class": f"{kind}\n",
    }
    return files | (
        {f"{folder}/driver": f"../../../bus/pci/drivers/{driver}"} if driver else {}
    )


def module(version: str = "580.95.05", *, open_flavour: bool = False) -> dict[str, str]:
    """Return the file that the loaded kernel module provides."""
    kind = "Open Kernel Module for x86_64" if open_flavour else "x86_64 Kernel Module"
    return {
        "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX {kind}  {version}  Wed Sep 17 20:11:48 UTC 2025\n"
    }


def nvml(
    *gpus: Mapping[str, object],
    init: int = 0,
    driver: str = "580.95.05",
    cuda: str = "13.0",
    **facts: object,
) -> dict[str, str]:
    """Return NVML's result, with further facts of the machine.

    GPUs are numbered in order. By default, each GPU is an RTX 4090 on its own bus
    number.
    """
    lines: list[dict[str, object]] = [{"library": NVML, "init": init}]
    if init == 0:
        lines.append({"driver": driver, "cuda": cuda, **facts})
        lines += [
            {"index": index, **_described(index), **gpu}
            for index, gpu in enumerate(gpus)
        ]
    return {"nvml.txt": _child([*lines, {"end": True}])}


def no_nvml() -> dict[str, str]:
    """Return the recorded result of NVML on a machine without it."""
    return {"nvml.txt": _child([{"fault": "missing"}, {"end": True}])}


def libcuda(count: int = 0, init: int = 0, path: str = LIBCUDA) -> dict[str, str]:
    """Return libcuda's result for RTX 4090 GPUs on bus numbers from 1 up."""
    devices = [_device(index) for index in range(count)]
    return {
        "libcuda.txt": _child(
            [
                {
                    "path": path,
                    "driver_version": "13.0",
                    "init": init,
                    "devices": devices,
                }
            ]
        )
    }


def no_libcuda() -> dict[str, str]:
    """Return the recorded result of libcuda on a machine without it."""
    error = "libcuda.so.1: cannot open shared object file: No such file or directory"
    return {"libcuda.txt": _child([{"fault": "missing", "error": error}])}


def healthy(count: int = 1) -> dict[str, str]:
    """Return RTX 4090 GPUs with a working driver and device nodes."""
    files = module() | nvml(*({} for _ in range(count))) | libcuda(count) | nodes(count)
    for index in range(count):
        files |= card(index + 1)
    return files


def nodes(count: int) -> dict[str, str]:
    """Return accessible device nodes."""
    names = ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(count))]
    return {f"/dev/{name}": "open\n" for name in names}


def bus(number: int) -> str:
    """Return the PCI address of a GPU by its bus number."""
    return f"0000:{number:02x}:00.0"


def _described(index: int) -> dict[str, object]:
    device = _device(index)
    return {**device, "bus_id": f"0000{device['bus_id']}", "pci_id": RTX_4090}


def _device(index: int) -> dict[str, object]:
    return {
        "name": "NVIDIA GeForce RTX 4090",
        "uuid": uuid_of(index),
        "compute_capability": "8.9",
        "memory_mib": 24 << 10,
        "bus_id": bus(index + 1),
    }


def _child(lines: list[dict[str, object]]) -> str:
    return "status 0\n" + "".join(f"{json.dumps(line)}\n" for line in lines)
