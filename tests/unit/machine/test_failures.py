"""States of simulated machines, one test for each blocking state.

Each machine differs as little as possible from a healthy one.
"""

from collections import Counter
from itertools import chain

import pytest

from gpuinstall.catalog.failures.table import load_cuda_errors
from gpuinstall.machine.probe import read_machine
from gpuinstall.machine.symptoms import load_symptoms
from tests.lab.recorded import (
    GTX_1080,
    LIBCUDA,
    PCI,
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
from tests.unit.machine.made import DOCKER, variables

NO_DRIVER = no_nvml() | no_libcuda()
MODULE_ON_DISK = {
    "/lib/modules/6.8.0-45-generic/modules.dep": "updates/dkms/nvidia.ko: kernel/drivers/acpi/video.ko\n"
}
SECURE_BOOT = {
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\0\0\0\x01"
}
WSL = {
    "platform.json": platform(release="5.15.153.1-microsoft-standard-WSL2"),
    "/dev/dxg": "open\n",
}
WSL_LIBCUDA = {"/usr/lib/wsl/lib/libcuda.so.1": ""}
OF_BRANCH_595 = "/usr/lib/x86_64-linux-gnu/libcuda.so.595.58.03"
STUB = "/usr/local/cuda-12.4/targets/x86_64-linux/lib/stubs/libcuda.so"
COMPAT = "/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"

RADEON, RAPHAEL = Node(110000, 0x744C, 24), Node(100306, 0x164E)
ARC = card(3, "8086:e20b", "xe") | {
    f"{PCI}/{bus(3)}/drm/renderD130/dev": "226:130\n",
    "/dev/dri/renderD130": "open\n",
}
LEVEL_ZERO = {"/usr/lib/x86_64-linux-gnu/libze_loader.so.1": ""}


# Failure entry if any, "note" if it does not block, code, and affected GPUs.
MADE = [
    ("F01 driver-missing", card(1, driver=None) | NO_DRIVER),
    ("F01 driver-libraries-missing", card(1) | module() | nodes(1) | NO_DRIVER),
    ("F01 libcuda-missing", healthy() | no_libcuda()),
    (
        "F03 driver-library-mismatch",
        card(1) | module("550.144.03") | nvml(init=18) | libcuda(init=803),
    ),
    ("F04 module-not-loaded", card(1, driver=None) | nvml(init=9) | libcuda(init=100)),
    ("F05 nouveau-holds-gpu", card(1, driver="nouveau") | NO_DRIVER),
    (
        "F05 module-blocked-by-secure-boot",
        card(1, driver=None)
        | nvml(init=9)
        | libcuda(init=100)
        | MODULE_ON_DISK
        | SECURE_BOOT,
    ),
    (
        "F06 driver-dropped-gpu of GPU 0",
        card(1, GTX_1080) | module("595.58.03") | nvml() | libcuda(init=100),
    ),
    (
        "F07 open-module-on-old-gpu of GPU 0",
        card(1, GTX_1080) | module(open_flavour=True) | nvml() | libcuda(init=100),
    ),
    (
        "F07 closed-module-on-new-gpu of GPU 0",
        card(1, RTX_5090) | module() | nvml() | libcuda(init=100),
    ),
    (
        "F08 gpu-lost of GPU 1",
        healthy(2) | nvml({}, {"error": 15, "bus_id": None}) | libcuda(1),
    ),
    (
        "F08 gpu-unreachable of GPU 1",
        healthy(2) | nvml({}, {"error": 999, "bus_id": None}) | libcuda(1),
    ),
    (
        "F08 driver-hangs",
        healthy()
        | {"nvml.txt": 'status None\n{"library": "x", "init": 0}\n{"at": 0}\n'},
    ),
    ("F09 row-remap-failed of GPU 0", healthy() | nvml({"remap_failed": True})),
    ("F09 note row-remap-pending of GPU 0", healthy() | nvml({"remap_pending": True})),
    ("F10 fabric-manager-not-running", healthy(8) | libcuda(init=802)),
    ("F10 system-not-ready", healthy() | nvml({"fabric": 0}) | libcuda(init=802)),
    (
        "F11 forward-compatibility-unsupported",
        healthy() | libcuda(init=804, path=COMPAT),
    ),
    ("F11 stub-libcuda-loaded", healthy() | libcuda(init=34, path=STUB)),
    ("F16 mps-unreachable", healthy() | libcuda(init=805)),
    ("F12 cuda-unknown-error", healthy() | libcuda(init=999)),
    ("nvml-error", healthy() | nvml(init=999)),
    ("cuda-error", healthy() | libcuda(init=4711)),
    ("F02 driver-too-old", healthy() | libcuda(init=36)),
    ("F08 gpu-kernel-failed", healthy() | libcuda(init=719)),
    ("F09 gpu-memory-faulty", healthy() | libcuda(init=214)),
    ("F18 vgpu-limited", healthy() | libcuda(init=801)),
    ("F23 driver-files-missing", healthy() | DOCKER | libcuda(init=500)),
    ("F37 gpu-too-old", healthy() | libcuda(init=209)),
    (
        "F13 device-nodes-unusable",
        healthy() | {"/dev/nvidia-uvm": "denied\n"} | libcuda(init=999),
    ),
    (
        "F13 gpu-not-permitted of GPU 1",
        healthy(2) | nvml({}, {"error": 4, "bus_id": None}) | libcuda(1),
    ),
    ("F14 cuda-not-initialized", healthy(4) | libcuda(init=3)),
    ("F15 cuda-no-device", healthy() | libcuda(init=100)),
    (
        "F15 note visible-devices-hide-gpus",
        healthy(2) | variables(CUDA_VISIBLE_DEVICES="-1"),
    ),
    (
        "F15 note visible-devices-hide-gpus",
        healthy(2) | variables(CUDA_VISIBLE_DEVICES="7"),
    ),
    (
        "F15 note visible-devices-hide-gpus",
        healthy(2) | variables(CUDA_VISIBLE_DEVICES="0,0"),
    ),
    (
        "F15 note visible-devices-hide-gpus",
        healthy(2) | variables(CUDA_VISIBLE_DEVICES="GPU-00000001,GPU-00000001-1ab0"),
    ),
    ("F15 no-device-found", nodes(1) | module() | nvml() | libcuda(init=100)),
    (
        "F16 compute-mode-prohibited of GPU 1",
        healthy(2) | nvml({}, {"prohibited": True}),
    ),
    ("note driver-not-asked", healthy() | {"nvml.txt": "status -9\n"}),
    ("F08 driver-crashes", healthy() | {"libcuda.txt": "status -11\n"}),
    (
        "F17 mig-without-instances of GPU 1",
        healthy(2) | nvml({}, {"mig": True}) | libcuda(1),
    ),
    (
        "F23 wsl-driver-unreachable",
        WSL | NO_DRIVER | {"/usr/lib/wsl/lib/libcuda.so.1": ""},
    ),
    ("F23 wsl-linux-driver", WSL | nvml({}) | libcuda(init=100)),
    (
        "F23 note wsl-linux-driver",
        WSL
        | nvml({})
        | libcuda(1)
        | {"/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01": ""},
    ),
    ("F25 note gpu-not-ours", card(1) | module() | DOCKER | NO_DRIVER),
    (
        "F25 libraries-not-in-container",
        healthy()
        | DOCKER
        | no_libcuda()
        | variables(NVIDIA_DRIVER_CAPABILITIES="utility"),
    ),
    (
        "F27 gpu-withdrawn-from-container",
        healthy() | DOCKER | nvml(init=999) | libcuda(init=999),
    ),
    (
        "F39 driver-older-than-gpu of GPU 0",
        card(1, RTX_5090) | module("550.144.03") | nvml() | libcuda(init=100),
    ),
    (
        "F62 note cpu-without-avx",
        healthy() | {"/proc/cpuinfo": "flags\t\t: fpu sse2 ssse3\n"},
    ),
    ("F106 kfd-not-permitted of GPU 0", NO_DRIVER | topology(RADEON, kfd="denied")),
    ("F106 kfd-not-permitted of GPU 0", NO_DRIVER | topology(RADEON, render="denied")),
    ("F106 kfd-not-permitted of GPU 1", healthy() | topology(RADEON, kfd="denied")),
    (
        "note gfx-override-set",
        NO_DRIVER | topology(RADEON) | variables(HSA_OVERRIDE_GFX_VERSION="10.3.0"),
    ),
    ("integrated-gpu-left-out of GPU 0", NO_DRIVER | topology(RAPHAEL, RADEON)),
    ("F110 amdgpu-not-loaded", NO_DRIVER | card(3, "1002:744c", None)),
    (
        "note not-in-wsl",
        WSL | NO_DRIVER | {"/usr/lib/wsl/drivers/u0412345.inf_amd64_1/amdxc64.so": ""},
    ),
    ("F115 level-zero-missing of GPU 0", NO_DRIVER | ARC),
    (
        "F115 render-not-permitted of GPU 0",
        NO_DRIVER | ARC | LEVEL_ZERO | {"/dev/dri/renderD130": "denied\n"},
    ),
    (
        "F118 python-under-rosetta",
        {"platform.json": platform("Darwin", "x86_64", "24.5.0", "1")},
    ),
]


NOT_LOADED = nvml(init=9) | libcuda(init=100)
FIRST_FIXES = [
    # code, first fix, part of the reason, and files
    (
        "stub-libcuda-loaded",
        "unset LD_LIBRARY_PATH",
        STUB,
        healthy() | libcuda(init=34, path=STUB),
    ),
    (
        "mps-unreachable",
        "unset CUDA_MPS_PIPE_DIRECTORY",
        "MPS",
        healthy() | libcuda(init=805),
    ),
    (
        "fabric-manager-not-running",
        'sudo apt-get install "nvidia-fabricmanager-580=580.95.05*"',
        "fabric manager",
        healthy(8) | libcuda(init=802),
    ),
    (
        "nouveau-holds-gpu",
        "printf 'blacklist nouveau",
        "NVIDIA's driver is installed",
        card(1, driver="nouveau") | NOT_LOADED | MODULE_ON_DISK,
    ),
    (
        "nouveau-holds-gpu",
        "sudo apt-get install nvidia-driver-580",
        "",
        card(1, GTX_1080, driver="nouveau")
        | nvml(init=9)
        | libcuda(init=100, path=OF_BRANCH_595)
        | MODULE_ON_DISK,
    ),
    (
        "wsl-linux-driver",
        "sudo apt-get remove --purge",
        LIBCUDA,
        WSL | NOT_LOADED | WSL_LIBCUDA | {LIBCUDA: ""},
    ),
    (
        "driver-dropped-gpu",
        "sudo apt-get install nvidia-driver-580 &&",
        "the last branch with support is 580",
        card(1, GTX_1080, driver=None)
        | nvml(init=9)
        | libcuda(init=100, path=OF_BRANCH_595)
        | MODULE_ON_DISK,
    ),
    (
        "driver-older-than-gpu",
        "sudo apt-get install nvidia-driver-580-open &&",
        "requires driver 570.26 or newer",
        card(1, RTX_5090, driver=None)
        | nvml(init=9)
        | libcuda(init=100, path=LIBCUDA.replace("580.95.05", "550.163.01"))
        | MODULE_ON_DISK,
    ),
]


HEALTHY = {
    "eight": healthy(8),
    "compute-only container": healthy()
    | DOCKER
    | no_nvml()
    | variables(NVIDIA_DRIVER_CAPABILITIES="compute"),
    "no module to be seen": nvml({}) | libcuda(1),
    "WSL": WSL | nvml({}) | libcuda(1) | {"/usr/lib/wsl/lib/libcuda.so.1": ""},
    "no GPU": NO_DRIVER,
    "driver and no GPU": module() | nvml() | libcuda(init=100),
    "MIG with slices": healthy()
    | nvml({"mig": True, "slices": [{"uuid": "MIG-1", "profile": "1g.10gb"}]}),
    "Slurm job with one of eight by variable": healthy(8)
    | libcuda(1)
    | variables(SLURM_JOB_ID="7", CUDA_VISIBLE_DEVICES="0"),
    "Secure Boot": healthy() | SECURE_BOOT,
    "a Jetson in a container without its files": DOCKER
    | {"platform.json": platform(release="5.15.148-tegra")}
    | NO_DRIVER,
    "a Jetson with a failing NVML": {
        "/proc/device-tree/compatible": "nvidia,p3737-0000\0nvidia,tegra234\0"
    }
    | nvml(init=9)
    | libcuda(1),
    "a Jetson with NVIDIA's own package for a newer CUDA": no_nvml()
    | {"platform.json": platform(machine="aarch64", release="5.15.148-tegra")}
    | libcuda(1, path="/usr/local/cuda-13.2/compat_orin/libcuda.so.1.1"),
    "the same card twice after one that is none": healthy(2)
    | variables(CUDA_VISIBLE_DEVICES="0,7,0"),
}


def probed(folder, files):
    return read_machine(source=recording(folder, files))


@pytest.mark.parametrize(("shown", "files"), MADE)
def test_each_simulated_failure_is_reported_once(tmp_path, shown, files):
    problems = probed(tmp_path, files).problems

    assert [line(one) for one in problems].count(shown) == 1, problems
    assert sum(problem.blocking for problem in problems) <= 1
    for problem in problems:
        assert problem.why
        assert problem.fix
        assert "{" not in problem.fix
        assert problem.message.count("580.95.05") <= 1


@pytest.mark.parametrize(("code", "fix", "reason", "files"), FIRST_FIXES)
def test_first_fix_addresses_the_cause(tmp_path, code, fix, reason, files):
    (problem,) = probed(tmp_path, files).problems

    assert problem.code == code
    assert problem.fix.startswith(fix)
    assert reason in problem.why


def test_every_blocking_problem_has_one_simulated_machine():
    subjects = ("machine", "cuda", "gpu", "card")
    rows = chain.from_iterable(load_symptoms()[subject] for subject in subjects)
    codes = {row.code for row in rows if row.blocking}
    codes |= {code for _, code in load_cuda_errors().values()} | {"cuda-error"}
    codes -= {row.code for row in load_symptoms()["preflight"]}
    simulated = Counter(
        shown.split(" of ")[0].split()[-1] for shown, _ in MADE if "note" not in shown
    )

    assert {code: simulated[code] for code in codes} == dict.fromkeys(codes, 1)


def line(problem):
    """Return a problem as a line of the table."""
    gpus = f" of GPU {', '.join(map(str, problem.gpus))}" if problem.gpus else ""
    parts = (problem.id, None if problem.blocking else "note", problem.code + gpus)
    return " ".join(filter(None, parts))


def test_healthy_machine_reports_no_problem(tmp_path):
    machines = {name: probed(tmp_path / name, HEALTHY[name]) for name in HEALTHY}

    assert {
        name: machine.problems for name, machine in machines.items() if machine.problems
    } == {}


def test_gpus_without_identifiers_are_matched_by_order(tmp_path):
    nameless = {"uuid": None, "bus_id": None, "compute_capability": None}
    machine = probed(tmp_path, healthy(2) | nvml(nameless, nameless))
    assert [str(gpu.compute_capability) for gpu in machine.gpus] == ["8.9", "8.9"]
