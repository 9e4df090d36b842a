"""AMD's machines: what their kernels write, read and planned for. No card was at hand: each row names where it is from.

``recorded``: the numbers stand in a public recording; ``documented``: in a public description of the chip;
``made``: the numbers of the chip are documented, the machine around them is made up here.
"""

import json

import pytest

from gpuinstall.base.machine import Machine
from gpuinstall.machine.words import machine_in_words
from tests.lab.recorded import card, healthy, platform
from tests.lab.topology import NODES, Node, topology
from tests.unit.machine.made import DOCKER, Made, outcome, planned, read

MI300X = Node(90402, 0x74A1, 192)
RX_7900_XTX = Node(110000, 0x744C, 24)
RAPHAEL = Node(100306, 0x164E)

# ROCm/k8s-device-plugin testdata/topo-mi210-xgmi-pcie/nodes/2/properties, the lines that are read.
MI210 = {
    f"{NODES}/2/properties": (
        "cpu_cores_count 0\nsimd_count 416\nmem_banks_count 1\ngfx_target_version 90010\nvendor_id 4098\n"
        "device_id 29711\nlocation_id 25344\ndomain 0\ndrm_render_minor 128\nlocal_mem_size 0\n"
        "unique_id 1801979520617338022\nnum_xcc 1\n"
    ),
    "/dev/dri/renderD128": "open\n",
    "/dev/kfd": "open\n",
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
    "an RX 9070": Made(
        topology(Node(120001, 0x7550, 16)),
        ("gfx1201",),
        "2.14.1+rocm7.2",
        "documented: TheRock",
    ),
    "a Strix Halo": Made(
        topology(Node(110501, 5510)),
        ("gfx1151",),
        "2.14.1+rocm7.2",
        "recorded: 8060S, a public test",
    ),
    "a Phoenix": Made(
        topology(Node(110003, 0x15BF)),
        ("gfx1103",),
        "2.14.1+rocm7.2",
        "documented: pytorch#179653",
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
    "a card that may not be opened": Made(
        topology(RX_7900_XTX, kfd="denied"),
        ("gfx1100",),
        "kfd-not-permitted",
        "documented: ROCm/vllm#893",
    ),
    "a card whose own node may not be opened": Made(
        topology(RX_7900_XTX, render="denied"),
        ("gfx1100",),
        "kfd-not-permitted",
        "documented: ROCm/vllm#893",
    ),
    "a card below NVIDIA's open driver": Made(
        healthy(1) | topology(Node(0, 0x2684, 24, vendor=4318), RX_7900_XTX),
        ("", "gfx1100"),
        "2.15.0+cu130",
        "documented",
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_read_and_planned_for(name, tmp_path):
    made = MACHINES[name]
    machine = read(tmp_path, made.files)

    assert tuple(gpu.architecture or "" for gpu in machine.gpus) == made.chips
    assert [gpu.index for gpu in machine.gpus] == list(range(len(machine.gpus)))
    assert Machine.from_dict(machine.to_dict()) == machine
    assert outcome(planned(machine)) == made.comes_to


def test_memory_and_names_are_the_kernels_own(tmp_path):
    product = {"/sys/class/drm/renderD128/device/product_name": "AMD Instinct MI300X\n"}
    gpus = read(tmp_path, topology(MI300X, RX_7900_XTX) | product).gpus

    assert [(gpu.name, gpu.pci_id, gpu.memory_mib) for gpu in gpus] == [
        ("AMD Instinct MI300X", "1002:74a1", 192 << 10),
        ("AMD Navi 31", "1002:744c", 24 << 10),
    ]
    assert (
        read(tmp_path / "apu", topology(Node(110501, 5510, 2))).gpus[0].memory_mib
        is None
    )


def test_the_processors_graphics_stay_out_beside_a_card(tmp_path):
    plan = planned(read(tmp_path, topology(RAPHAEL, RX_7900_XTX)))

    assert (plan.status, [run.how for run in plan.gpus]) == (
        "partial",
        ["none", "sass"],
    )
    assert (
        "is the processor's own and is not used with GPU 1" in plan.warnings[0].message
    )


def test_facts_of_the_kernel_stand_under_the_makers_name(tmp_path):
    module = {"/sys/module/amdgpu/version": "6.12.12\n"}
    machine = read(tmp_path, topology(RX_7900_XTX) | module)

    assert machine.makers == {
        "amd": {"kernel": "6.8.0-45-generic", "amdgpu": "6.12.12"}
    }


def test_a_mixed_machine_serves_nvidia_first_and_amd_where_it_is_asked_for(tmp_path):
    machine = read(
        tmp_path, healthy(1) | topology(Node(0, 0x2684, 24, vendor=4318), RX_7900_XTX)
    )
    plan, asked = planned(machine), planned(machine, "rocm7.2")

    assert [warning.code for warning in plan.warnings] == ["gpu-not-supported"]
    assert (
        plan.warnings[0].message
        == "GPU 1 (AMD Navi 31) is not used: it is not from NVIDIA"
    )
    assert (outcome(asked), [run.index for run in asked.gpus]) == (
        "2.14.1+rocm7.2",
        [1],
    )
    assert "GPU 0 (GeForce RTX 4090) is not used: it is not from AMD" in [
        each.message for each in asked.warnings
    ]


@pytest.mark.parametrize(
    ("name", "chips", "comes_to"),
    [
        ("AMD Radeon RX 9070 XT", ("gfx1201",), "amd-elsewhere"),
        ("AMD Radeon(TM) 8060S", ("gfx1151",), "amd-elsewhere"),
        ("AMD Radeon(TM) Graphics", (), "2.15.0+cpu"),
    ],
)
def test_on_windows_a_card_is_known_by_its_name_and_refused_with_the_way_to_amds_guide(
    name, chips, comes_to, tmp_path
):
    adapter = {
        "Name": name,
        "PNPDeviceID": "PCI\\VEN_1002&DEV_7550&SUBSYS_24141458",
        "DriverVersion": "32.0.21013.1000",
    }
    machine = read(
        tmp_path,
        {
            "platform.json": platform("Windows", "AMD64", "11"),
            "adapters.json": json.dumps([adapter]),
        },
    )
    plan = planned(machine)

    assert tuple(gpu.architecture for gpu in machine.gpus) == chips
    assert outcome(plan) == comes_to
    assert ("rocm.docs.amd.com" in (plan.fix or "")) == bool(chips)


def test_cards_of_two_makers_in_words_are_a_mixed_machine():
    machine = machine_in_words(("RTX 4090", "RX 7900 XTX"), "580")

    assert outcome(planned(machine)).endswith("+cu130")
    assert outcome(planned(machine, "rocm7.2")) == "2.14.1+rocm7.2"
