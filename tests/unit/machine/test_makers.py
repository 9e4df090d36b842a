"""Machines with GPUs of other vendors, and plans for them.

No such GPU was available. The source of a row is ``recorded`` (a public
recording), ``documented`` (a public description), or ``made`` (a documented
GPU in an invented machine).
"""

import json

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.machine.options import machine_from_options
from gpuinstall.machine.probe import preflight
from tests.lab.recorded import PCI, bus, card, healthy, platform
from tests.lab.topology import NODES, Node, topology
from tests.unit.machine.made import DOCKER, Made, outcome, planned, read

MI300X = Node(90402, 0x74A1, 192)
RX_7900_XTX = Node(110000, 0x744C, 24)
RAPHAEL = Node(100306, 0x164E)
STRIX_HALO = Node(110501, 5510, 2)
# AMD's driver also lists NVIDIA's GPU.
BESIDE_NVIDIA = topology(Node(0, 0x2684, 24, vendor=4318), RX_7900_XTX)

# The relevant lines of ROCm/k8s-device-plugin testdata/topo-mi210-xgmi-pcie/nodes/2/properties.
MI210 = {
    f"{NODES}/2/properties": (
        "cpu_cores_count 0\nsimd_count 416\nmem_banks_count 1\ngfx_target_version 90010\nvendor_id 4098\n"
        "device_id 29711\nlocation_id 25344\ndomain 0\ndrm_render_minor 128\nlocal_mem_size 0\n"
        "unique_id 1801979520617338022\nnum_xcc 1\n"
    ),
    "/dev/dri/renderD128": "open\n",
    "/dev/kfd": "open\n",
}
LEVEL_ZERO = {"/usr/lib/x86_64-linux-gnu/libze_loader.so.1": ""}


def arc(number, device, driver="xe", node="open"):
    """Return an Intel GPU on the bus, with its render node."""
    files = card(number, f"8086:{device}", driver)
    if node is None:
        return files
    minor = f"renderD{127 + number}"
    return files | {
        f"{PCI}/{bus(number)}/drm/{minor}/dev": "226:128\n",
        f"/dev/dri/{minor}": f"{node}\n",
    }


def mac(chip, macos, machine="arm64", virtual=0, translated="0"):
    """Return the output of a Mac's programs, as documented by Apple."""
    return {
        "platform.json": platform("Darwin", machine, "24.5.0", translated),
        "sysctl.txt": f"kern.osproductversion: {macos}\nmachdep.cpu.brand_string: {chip}\n"
        f"hw.memsize: {24 << 30}\nkern.hv_vmm_present: {virtual}\n",
    }


MACHINES = {
    "one MI210": Made(
        MI210, ("gfx90a",), "2.14.1+rocm7.2", "recorded: ROCm/k8s-device-plugin"
    ),
    "eight MI300X": Made(
        topology(*[MI300X] * 8),
        ("gfx942",) * 8,
        "2.14.1+rocm7.2",
        "documented: ROCm/TheRock tests",
    ),
    "an MI300X in CPX: eight nodes, one card on the bus": Made(
        topology(*[Node(90402, 0x74A1, 24)] * 8)
        | card(3, "1002:74a1", "amdgpu", "0x120000"),
        ("gfx942",) * 8,
        "2.14.1+rocm7.2",
        "documented: amdgpu, partitions (amdgpu_xcp) have the device id of their card",
    ),
    "an RX 7900 XTX": Made(
        topology(RX_7900_XTX),
        ("gfx1100",),
        "2.14.1+rocm7.2",
        "recorded: tinygrad mockgpu",
    ),
    "a Strix Halo": Made(
        topology(STRIX_HALO),
        ("gfx1151",),
        "2.14.1+rocm7.2",
        "recorded: 8060S, a public test",
    ),
    "a card beside its processor's graphics": Made(
        topology(RAPHAEL, RX_7900_XTX),
        ("gfx1036", "gfx1100"),
        "2.14.1+rocm7.2",
        "made: two documented chips",
    ),
    "an MI300X that its container was not given": Made(
        topology(MI300X, render=None)
        | card(3, "1002:74a1", "amdgpu", "0x120000")
        | DOCKER,
        (),
        "2.15.0+cpu",
        "made",
    ),
    "a Radeon beside an NVIDIA card": Made(
        healthy(1) | BESIDE_NVIDIA,
        ("", "gfx1100"),
        "2.15.0+cu130",
        "documented",
    ),
    "an Arc B580": Made(
        arc(3, "e20b") | LEVEL_ZERO,
        ("xe 20.1",),
        "2.15.0+xpu",
        "recorded: lspci of intel/ipex-llm#12994",
    ),
    "a Panther Lake": Made(
        arc(0, "b080") | LEVEL_ZERO,
        ("xe 30",),
        "2.15.0+xpu",
        "recorded: lspci of intel/compute-runtime#949",
    ),
    "two Data Center GPU Max": Made(
        arc(1, "0bd5", "i915") | arc(2, "0bd5", "i915") | LEVEL_ZERO,
        ("xe 12.60",) * 2,
        "2.15.0+xpu",
        "made: Linux pciids.h",
    ),
    "an Arc beside the graphics of its processor": Made(
        arc(0, "4680", "i915") | arc(3, "e20b") | LEVEL_ZERO,
        ("xe 20.1",),
        "2.15.0+xpu",
        "made: intel-variant-provider devices.py",
    ),
    "the graphics of a Raptor Lake alone": Made(
        card(0, "8086:a780", "i915"), (), "2.15.0+cpu", "made: Linux pciids.h"
    ),
    "an Arc B580 that its container was not given": Made(
        arc(3, "e20b", node=None) | DOCKER, (), "2.15.0+cpu", "made"
    ),
    "an Arc beside an NVIDIA card": Made(
        healthy(1) | arc(9, "e20b") | LEVEL_ZERO,
        ("", "xe 20.1"),
        "2.15.0+cu130",
        "made",
    ),
    "an M1": Made(mac("Apple M1", "13.7.2"), ("metal",), "2.8.0+cpu", "made"),
    "an M3": Made(mac("Apple M3", "14.5"), ("metal",), "2.15.0+cpu", "made"),
    "an M3 before its first macOS with Metal for torch": Made(
        mac("Apple M3", "12.2"), ("metal",), "macos-too-old", "made"
    ),
    "a virtual Mac": Made(
        mac("Apple M1 (Virtual)", "15.6", virtual=1), (), "2.15.0+cpu", "made"
    ),
    "a Mac with Intel's processor": Made(
        mac("Intel(R) Core(TM) i7-9750H CPU", "14.5", "x86_64"),
        (),
        "2.2.2+cpu",
        "made",
    ),
    "an Intel Python on Apple silicon": Made(
        mac("VirtualApple @ 2.50GHz", "14.5", "x86_64", translated="1"),
        ("metal",),
        "python-under-rosetta",
        "documented",
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_vendor_machine_selects_the_expected_build(name, tmp_path):
    made = MACHINES[name]
    machine = read(tmp_path, made.files)
    plan = planned(machine)

    assert tuple(gpu.architecture or "" for gpu in machine.gpus) == made.chips
    assert [gpu.index for gpu in machine.gpus] == list(range(len(machine.gpus)))
    assert Machine.from_dict(machine.to_dict()) == machine
    assert outcome(plan) == made.comes_to
    # The build without CUDA uses a Mac's GPU.
    is_for_cpu = made.comes_to.endswith("+cpu") and not made.chips
    assert (plan.status == "cpu") is is_for_cpu


@pytest.mark.parametrize(
    ("files", "gpus"),
    [
        (
            topology(MI300X, RX_7900_XTX)
            | {
                "/sys/class/drm/renderD128/device/product_name": "AMD Instinct MI300X\n"
            },
            [
                ("AMD Instinct MI300X", "1002:74a1", 192 << 10),
                ("AMD Navi 31", "1002:744c", 24 << 10),
            ],
        ),
        # Integrated graphics use the machine's memory.
        (topology(STRIX_HALO), [("AMD Strix Halo", "1002:1586", None)]),
        (arc(3, "e20b"), [("Intel Battlemage", "8086:e20b", None)]),
        (mac("Apple M3", "14.5"), [("Apple M3", None, None)]),
    ],
)
def test_gpu_has_name_and_memory(files, gpus, tmp_path):
    machine = read(tmp_path, files)
    assert [(gpu.name, gpu.pci_id, gpu.memory_mib) for gpu in machine.gpus] == gpus


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        (
            topology(MI300X) | {"/sys/module/amdgpu/version": "6.12.12\n"},
            {"amd": {"kernel": "6.8.0-45-generic", "amdgpu": "6.12.12"}},
        ),
        (mac("Apple M3", "14.5"), {"apple": {"macos": "14.5"}}),
    ],
)
def test_system_facts_are_stored_by_vendor(files, facts, tmp_path):
    assert read(tmp_path, files).makers == facts


@pytest.mark.parametrize(
    ("name", "backend", "gpu", "other"),
    [
        (
            "a Radeon beside an NVIDIA card",
            "rocm7.2",
            "GPU 1 (AMD Navi 31)",
            "it is not an AMD GPU",
        ),
        (
            "an Arc beside an NVIDIA card",
            "xpu",
            "GPU 1 (Intel Battlemage)",
            "it is not an Intel GPU",
        ),
    ],
)
def test_nvidia_gpu_is_preferred_to_other_vendors(name, backend, gpu, other, tmp_path):
    machine = read(tmp_path, MACHINES[name].files)
    plan = planned(machine)
    asked = planned(machine, backend)

    assert [(warning.code, warning.message) for warning in plan.warnings] == [
        ("gpu-not-supported", f"{gpu} is not used: it is not an NVIDIA GPU")
    ]
    assert [run.index for run in asked.gpus] == [1]
    assert outcome(asked).endswith(f"+{backend}")
    assert f"GPU 0 (GeForce RTX 4090) is not used: {other}" in [
        warning.message for warning in asked.warnings
    ]


def test_gpu_options_accept_two_vendors():
    machine = machine_from_options(("RTX 4090", "RX 7900 XTX"), "580")

    assert outcome(planned(machine)).endswith("+cu130")
    assert outcome(planned(machine, "rocm7.2")) == "2.14.1+rocm7.2"


@pytest.mark.parametrize(
    ("name", "device", "chips", "comes_to"),
    [
        ("AMD Radeon RX 9070 XT", "1002&DEV_7550", ("gfx1201",), "amd-elsewhere"),
        ("AMD Radeon(TM) 8060S", "1002&DEV_1586", ("gfx1151",), "amd-elsewhere"),
        ("AMD Radeon(TM) Graphics", "1002&DEV_1638", (), "2.15.0+cpu"),
        ("Intel(R) Arc(TM) B580", "8086&DEV_E20B", ("xe 20.1",), "2.15.0+xpu"),
    ],
)
def test_windows_gpu_is_identified_by_id_or_name(
    name, device, chips, comes_to, tmp_path
):
    adapter = {"Name": name, "PNPDeviceID": f"PCI\\VEN_{device}&SUBSYS_24141458"}
    files = {
        "platform.json": platform("Windows", "AMD64", "11"),
        "adapters.json": json.dumps([adapter]),
    }
    machine = read(tmp_path, files)
    plan = planned(machine)

    assert tuple(gpu.architecture for gpu in machine.gpus) == chips
    assert machine.problems == () or not chips
    assert outcome(plan) == comes_to
    is_refused = comes_to == "amd-elsewhere"
    assert ("rocm.docs.amd.com" in (plan.fix or "")) is is_refused


def test_integrated_graphics_are_skipped_next_to_gpu(tmp_path):
    plan = planned(read(tmp_path, topology(RAPHAEL, RX_7900_XTX)))

    assert plan.status == "partial"
    assert [run.how for run in plan.gpus] == ["none", "sass"]
    message = plan.warnings[0].message
    assert "is the processor's own and is not used with GPU 1" in message


def test_level_zero_is_found_in_ld_library_path(tmp_path):
    files = arc(3, "e20b") | {"/opt/intel/lib/libze_loader.so.1": ""}
    machine = read(tmp_path, files, LD_LIBRARY_PATH="/opt/other:/opt/intel/lib")

    assert machine.problems == ()


def test_missing_level_zero_suggests_its_packages(tmp_path):
    plan = planned(read(tmp_path, arc(3, "e20b")))

    assert plan.exit_code == 8
    first, *_, last = (plan.fix or "").splitlines()
    assert first.startswith("sudo apt-get install libze1 libze-intel-gpu1   # Ubuntu")
    assert last.endswith(": selects the CPU build")


def test_macos_build_has_no_local_version_label(tmp_path):
    machine = read(tmp_path, mac("Apple M3", "14.5"))
    document = planned(machine, requirements=("torch", "torchvision")).to_dict()

    assert document["build"]["backend"] == "cpu"
    assert document["build"]["requirements"] == ["torch==2.15.0", "torchvision==0.29.2"]
    assert document["gpus"] == [{"index": 0, "runs": "mps", "how": "sass"}]
    assert [warning["code"] for warning in document["warnings"]] == ["not-proven"]


def test_macos_minimum_version_excludes_newer_torch(tmp_path):
    machine = read(tmp_path, mac("Apple M1", "13.7.2"))
    asked = planned(machine, requirements=("torch==2.15.0",))

    newest = planned(machine).reasons[0].message
    rejection = (
        "2.15.0+cpu does not run on macOS 13.7.2: it requires macOS 14.0 or newer"
    )
    assert newest == f"2.8.0 is the newest that fits; {rejection}"
    assert (
        asked.reasons[0].message == f"no build of torch fits torch==2.15.0; {rejection}"
    )
    assert "Update to macOS 14.0 or newer" in (asked.fix or "")


@pytest.mark.parametrize(
    ("torch", "oldest"),
    [("2.15.0", "14.0"), ("2.9.1", "14.0"), ("2.8.0", "13.0"), ("2.4.1", "12.3")],
)
def test_macos_older_than_metal_requirement_is_rejected(torch, oldest):
    for macos, comes_to in (
        (oldest, f"{torch}+cpu"),
        (f"{int(oldest[:2]) - 1}.0", "macos-too-old"),
    ):
        machine = replace(
            machine_from_options(("M1",)), makers={"apple": {"macos": macos}}
        )
        assert outcome(planned(machine, requirements=(f"torch=={torch}",))) == comes_to


def test_preflight_skips_usable_amd_gpus():
    closed = Finding("kfd-not-permitted", "may not be opened", gpus=(0,))
    machine = machine_from_options(("MI300X", "MI300X")).add_problems([closed])

    found = preflight(machine, Reporter())
    assert (found.outcomes, found.problems) == ({1: "unproven"}, ())
