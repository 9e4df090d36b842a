"""Every entry of the failure catalogue that a machine shows before anything is installed: made here, one by one.

Each is made by changing as little as possible on a healthy machine; the healthy machines show none of them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import (
    GTX_1080,
    PCI,
    RTX_4090,
    RTX_5090,
    bus,
    card,
    healthy,
    libcuda,
    module,
    no_libcuda,
    no_nvml,
    nodes,
    nvml,
    platform,
    recording,
)
from tests.lab.topology import Node, topology

DOCKER = {
    "/.dockerenv": "",
    "own-mounts.txt": "636 620 254:1 /docker/containers/4c01/hosts /etc/hosts rw - ext4 /dev/vda1 rw\n",
}
NO_DRIVER = no_nvml() | no_libcuda()
MODULE_ON_DISK = {
    "/lib/modules/6.8.0-45-generic/modules.dep": "updates/dkms/nvidia.ko: kernel/drivers/acpi/video.ko\n"
}
EVERY_KERNEL = {
    "/lib/modules/6.8.0-45-generic/modules.dep": "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko.zst:"
    " kernel/drivers/platform/x86/wmi.ko.zst\n"
}
SECURE_BOOT = {
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\0\0\0\x01"
}
WSL = {
    "platform.json": platform(release="5.15.153.1-microsoft-standard-WSL2"),
    "/dev/dxg": "open\n",
}
COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"

RADEON, RAPHAEL = Node(110000, 0x744C, 24), Node(100306, 0x164E)
ARC = card(3, "8086:e20b", "xe") | {
    f"{PCI}/{bus(3)}/drm/renderD130/dev": "226:130\n",
    "/dev/dri/renderD130": "open\n",
}
LEVEL_ZERO = {"/usr/lib/x86_64-linux-gnu/libze_loader.so.1": ""}


class Made(NamedTuple):
    """A machine that is made by its files and variables, and the problem that it shows."""

    files: Mapping[str, str]
    code: str
    gpus: tuple[int, ...] = ()
    blocking: bool = True
    variables: Mapping[str, str] = {}


MADE = {
    "F01": (
        Made(card(1, driver=None) | NO_DRIVER, "driver-missing"),
        Made(card(1, driver=None) | NO_DRIVER | EVERY_KERNEL, "driver-missing"),
        Made(card(1) | module() | nodes(1) | NO_DRIVER, "driver-libraries-missing"),
        Made(healthy() | no_libcuda(), "libcuda-missing"),
    ),
    "F03": (
        Made(
            card(1) | module("550.144.03") | nvml(init=18) | libcuda(init=803),
            "driver-library-mismatch",
        ),
        Made(healthy() | libcuda(init=803), "driver-library-mismatch"),
        Made(healthy() | DOCKER | nvml(init=18), "driver-library-mismatch"),
    ),
    "F04": (
        Made(
            card(1, driver=None) | nvml(init=9) | libcuda(init=100), "module-not-loaded"
        ),
        Made(card(1, driver=None) | NO_DRIVER | MODULE_ON_DISK, "module-not-loaded"),
    ),
    "F05": (
        Made(card(1, driver="nouveau") | NO_DRIVER, "nouveau-holds-gpu"),
        Made(
            card(1, driver=None)
            | nvml(init=9)
            | libcuda(init=100)
            | MODULE_ON_DISK
            | SECURE_BOOT,
            "module-blocked-by-secure-boot",
        ),
    ),
    "F06": (
        Made(
            card(1, GTX_1080) | module("595.58.03") | nvml() | libcuda(init=100),
            "driver-dropped-gpu",
            gpus=(0,),
        ),
        Made(
            healthy() | card(2, GTX_1080) | module("590.48.01"),
            "driver-dropped-gpu",
            gpus=(1,),
        ),
    ),
    "F07": (
        Made(
            card(1, GTX_1080) | module(open_flavour=True) | nvml() | libcuda(init=100),
            "open-module-on-old-gpu",
            gpus=(0,),
        ),
        Made(
            card(1, RTX_5090) | module() | nvml() | libcuda(init=100),
            "closed-module-on-new-gpu",
            gpus=(0,),
        ),
    ),
    "F08": (
        Made(
            healthy(2) | nvml({}, {"error": 15, "bus_id": None}) | libcuda(1),
            "gpu-lost",
            gpus=(1,),
        ),
        Made(healthy(2) | nvml({}) | libcuda(1), "gpu-lost", gpus=(1,)),
        Made(
            healthy(2) | nvml({}, {"error": 999, "bus_id": None}) | libcuda(1),
            "gpu-unreachable",
            gpus=(1,),
        ),
        Made(
            healthy()
            | {"nvml.txt": 'status None\n{"library": "x", "init": 0}\n{"at": 0}\n'},
            "driver-hangs",
        ),
    ),
    "F09": (
        Made(healthy() | nvml({"remap_failed": True}), "row-remap-failed", gpus=(0,)),
        Made(
            healthy() | nvml({"remap_pending": True}),
            "row-remap-pending",
            gpus=(0,),
            blocking=False,
        ),
    ),
    "F10": (
        Made(healthy(8) | libcuda(init=802), "fabric-manager-not-running"),
        Made(
            healthy(8) | nvml(*[{"fabric": 2}] * 8) | libcuda(init=802),
            "fabric-manager-not-running",
        ),
        Made(
            healthy()
            | nvml({"fabric": 3}, awaits_attestation=True)
            | libcuda(init=802),
            "confidential-gpus-not-ready",
        ),
        Made(healthy() | nvml({"fabric": 0}) | libcuda(init=802), "system-not-ready"),
    ),
    "F11": (
        Made(
            healthy() | libcuda(init=804, path=COMPAT),
            "forward-compatibility-unsupported",
        ),
        Made(
            healthy() | libcuda(1, path=COMPAT),
            "forward-compatibility-library",
            blocking=False,
        ),
    ),
    "F12": (
        Made(healthy() | libcuda(init=999), "cuda-unknown-error"),
        Made(healthy() | nvml(init=999), "nvml-unknown-error"),
    ),
    "F13": (
        Made(
            healthy() | {"/dev/nvidia-uvm": "denied\n"} | libcuda(init=999),
            "device-nodes-unusable",
        ),
        Made(
            healthy()
            | {"/dev/nvidiactl": "denied\n"}
            | nvml(init=4)
            | libcuda(init=100),
            "device-nodes-unusable",
        ),
        Made(
            healthy(2) | nvml({}, {"error": 4, "bus_id": None}) | libcuda(1),
            "gpu-not-permitted",
            gpus=(1,),
        ),
    ),
    "F14": (Made(healthy(4) | libcuda(init=3), "cuda-not-initialized"),),
    "F15": (
        Made(healthy() | libcuda(init=100), "cuda-no-device"),
        Made(
            healthy(2),
            "visible-devices-hide-gpus",
            blocking=False,
            variables={"CUDA_VISIBLE_DEVICES": "-1"},
        ),
        Made(
            healthy(2),
            "visible-devices-hide-gpus",
            blocking=False,
            variables={"CUDA_VISIBLE_DEVICES": "7"},
        ),
        Made(
            healthy(2),
            "visible-devices-hide-gpus",
            blocking=False,
            variables={"CUDA_VISIBLE_DEVICES": "0,0"},
        ),
        Made(
            healthy(2),
            "visible-devices-hide-gpus",
            blocking=False,
            variables={"CUDA_VISIBLE_DEVICES": "GPU-00000001,GPU-00000001-1ab0"},
        ),
        Made(nodes(1) | module() | nvml() | libcuda(init=100), "no-device-found"),
    ),
    "F16": (
        Made(
            healthy(2) | nvml({}, {"prohibited": True}),
            "compute-mode-prohibited",
            gpus=(1,),
        ),
    ),
    "gpu-not-bound": (
        Made(healthy() | card(2, driver=None), "gpu-not-bound", gpus=(1,)),
    ),
    "driver-not-asked": (
        Made(
            healthy() | {"nvml.txt": "status -9\n"}, "driver-not-asked", blocking=False
        ),
        Made(
            healthy() | {"libcuda.txt": "status -9\n"},
            "driver-not-asked",
            blocking=False,
        ),
    ),
    "F17": (
        Made(
            healthy(2) | nvml({}, {"mig": True}) | libcuda(1),
            "mig-without-instances",
            gpus=(1,),
        ),
    ),
    "F23": (
        Made(
            WSL | NO_DRIVER | {"/usr/lib/wsl/lib/libcuda.so.1": ""},
            "wsl-driver-unreachable",
        ),
        Made(
            WSL
            | nvml({})
            | libcuda(1)
            | {"/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01": ""},
            "wsl-linux-driver",
            blocking=False,
        ),
    ),
    "F25": (
        Made(card(1) | module() | DOCKER | NO_DRIVER, "gpu-not-ours", blocking=False),
        Made(
            healthy() | DOCKER | no_libcuda(),
            "libraries-not-in-container",
            variables={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        ),
        Made(
            card(1) | module() | nodes(1) | DOCKER | NO_DRIVER,
            "libraries-not-in-container",
        ),
    ),
    "F27": (
        Made(
            healthy() | DOCKER | nvml(init=999) | libcuda(init=999),
            "gpu-withdrawn-from-container",
        ),
    ),
    "F39": (
        Made(
            card(1, RTX_5090) | module("550.144.03") | nvml() | libcuda(init=100),
            "driver-older-than-gpu",
            gpus=(0,),
        ),
        Made(
            card(1, RTX_4090) | module("515.65.01") | nvml() | libcuda(init=100),
            "driver-older-than-gpu",
            gpus=(0,),
        ),
    ),
    "F62": (
        Made(
            healthy() | {"/proc/cpuinfo": "flags\t\t: fpu sse2 ssse3\n"},
            "cpu-without-avx",
            blocking=False,
        ),
    ),
    "F106": (
        Made(
            NO_DRIVER | topology(RADEON, kfd="denied"), "kfd-not-permitted", gpus=(0,)
        ),
        Made(
            NO_DRIVER | topology(RADEON, render="denied"),
            "kfd-not-permitted",
            gpus=(0,),
        ),
        Made(
            healthy() | topology(RADEON, kfd="denied"), "kfd-not-permitted", gpus=(1,)
        ),
    ),
    "gfx-override-set": (
        Made(
            NO_DRIVER | topology(RADEON),
            "gfx-override-set",
            blocking=False,
            variables={"HSA_OVERRIDE_GFX_VERSION": "10.3.0"},
        ),
    ),
    "integrated-gpu-left-out": (
        Made(
            NO_DRIVER | topology(RAPHAEL, RADEON), "integrated-gpu-left-out", gpus=(0,)
        ),
    ),
    "F110": (Made(NO_DRIVER | card(3, "1002:744c", None), "amdgpu-not-loaded"),),
    "not-in-wsl": (
        Made(
            WSL
            | NO_DRIVER
            | {"/usr/lib/wsl/drivers/u0412345.inf_amd64_1/amdxc64.so": ""},
            "not-in-wsl",
            blocking=False,
        ),
    ),
    "F115": (
        Made(NO_DRIVER | ARC, "level-zero-missing", gpus=(0,)),
        Made(
            NO_DRIVER | ARC | LEVEL_ZERO | {"/dev/dri/renderD130": "denied\n"},
            "render-not-permitted",
            gpus=(0,),
        ),
    ),
    "F118": (
        Made(
            {"platform.json": platform("Darwin", "x86_64", "24.5.0", "1")},
            "python-under-rosetta",
        ),
    ),
}


HEALTHY = {
    "eight": (healthy(8), {}),
    "compute-only container": (
        healthy() | DOCKER | no_nvml(),
        {"NVIDIA_DRIVER_CAPABILITIES": "compute"},
    ),
    "no module to be seen": (nvml({}) | libcuda(1), {}),
    "WSL": (WSL | nvml({}) | libcuda(1) | {"/usr/lib/wsl/lib/libcuda.so.1": ""}, {}),
    "no GPU": (NO_DRIVER, {}),
    "driver and no GPU": (module() | nvml() | libcuda(init=100), {}),
    "MIG with slices": (
        healthy()
        | nvml({"mig": True, "slices": [{"uuid": "MIG-1", "profile": "1g.10gb"}]}),
        {},
    ),
    "Slurm job with one of eight by variable": (
        healthy(8) | libcuda(1),
        {"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0"},
    ),
    "Secure Boot": (healthy() | SECURE_BOOT, {}),
    "a Jetson in a container without its files": (
        DOCKER | {"platform.json": platform(release="5.15.148-tegra")} | NO_DRIVER,
        {},
    ),
    "a Jetson with NVIDIA's own package for a newer CUDA": (
        no_nvml()
        | {"platform.json": platform(machine="aarch64", release="5.15.148-tegra")}
        | libcuda(1, path="/usr/local/cuda-13.2/compat_orin/libcuda.so.1.1"),
        {},
    ),
    "the same card twice after one that is none": (
        healthy(2),
        {"CUDA_VISIBLE_DEVICES": "0,7,0"},
    ),
}


def probed(folder, files, variables):
    return read_machine(source=recording(folder, files, **variables))


@pytest.mark.parametrize("entry", MADE)
def test_a_failure_is_recognised_and_said_once(tmp_path, entry):
    wrong = {}
    for number, made in enumerate(MADE[entry]):
        problems = probed(tmp_path / str(number), made.files, made.variables).problems
        found = [problem for problem in problems if problem.code == made.code]
        if len(found) != 1 or not says_what_was_made(found[0], entry, made):
            wrong[made.code] = problems
        assert sum(problem.blocking for problem in problems) <= 1, made.code

    assert wrong == {}


def says_what_was_made(problem, entry, made):
    """Whether a problem is that of its entry, if it has one, for the GPUs that show it, with a cause and a fix."""
    return (
        problem.id == (entry if entry.startswith("F") else None)
        and problem.blocking is made.blocking
        and made.gpus in ((), problem.gpus)
        and bool(problem.why and problem.fix)
        and "{" not in str(problem.fix)
        and problem.message.count("580.95.05") <= 1
    )


def test_a_healthy_machine_shows_no_failure(tmp_path):
    machines = {
        name: probed(tmp_path / name, *healthy_machine)
        for name, healthy_machine in HEALTHY.items()
    }

    assert {
        name: machine.problems for name, machine in machines.items() if machine.problems
    } == {}


def test_cards_without_a_name_are_told_apart_by_their_order(tmp_path):
    nameless = {"uuid": None, "bus_id": None, "compute_capability": None}
    machine = probed(tmp_path, healthy(2) | nvml(nameless, nameless), {})
    assert [str(gpu.compute_capability) for gpu in machine.gpus] == ["8.9", "8.9"]


def test_a_toolkit_on_the_machine_changes_nothing(tmp_path):
    tools = {
        "/usr/local/cuda/version.json": '{"cuda": {"version": "11.8"}}',
        "/usr/local/cuda/bin/nvcc": "",
    }
    home = {"CUDA_HOME": "/usr/local/cuda", "CUDA_PATH": "/usr/local/cuda"}
    without = probed(tmp_path / "without", healthy(), {})
    assert probed(tmp_path / "with", healthy() | tools, home) == without
