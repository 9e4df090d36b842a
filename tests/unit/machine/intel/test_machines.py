"""Intel's machines: the bus, read and planned for. No card was at hand: each row has a source.

``recorded``: the numbers of the bus stand in a public recording; ``made``: the numbers of the chip are documented, the
machine around them is made up here.
"""

import json

import pytest

from gpuinstall.base.machine import Machine
from tests.lab.recorded import (
    PCI,
    bus,
    card,
    healthy,
    platform,
)
from tests.unit.machine.made import DOCKER, Made, outcome, planned, read

LOADER = {"/usr/lib/x86_64-linux-gnu/libze_loader.so.1": ""}


def arc(number, device, driver="xe", node="open"):
    """A GPU of Intel's on the bus, with its render node."""
    files = card(number, f"8086:{device}", driver)
    if node is None:
        return files
    minor = f"renderD{127 + number}"
    return files | {
        f"{PCI}/{bus(number)}/drm/{minor}/dev": "226:128\n",
        f"/dev/dri/{minor}": f"{node}\n",
    }


MACHINES = {
    "an Arc B580": Made(
        arc(3, "e20b") | LOADER,
        ("xe 20.1",),
        "2.15.0+xpu",
        "recorded: lspci of intel/ipex-llm#12994",
    ),
    "a Panther Lake": Made(
        arc(0, "b080") | LOADER,
        ("xe 30",),
        "2.15.0+xpu",
        "recorded: lspci of intel/compute-runtime#949",
    ),
    "four Data Center GPU Max": Made(
        arc(1, "0bd5", "i915")
        | arc(2, "0bd5", "i915")
        | arc(3, "0bd5", "i915")
        | arc(4, "0bd5", "i915")
        | LOADER,
        ("xe 12.60",) * 4,
        "2.15.0+xpu",
        "made: Linux pciids.h",
    ),
    "an Arc beside the graphics of its processor": Made(
        arc(0, "4680", "i915") | arc(3, "e20b") | LOADER,
        ("xe 20.1",),
        "2.15.0+xpu",
        "made: intel-variant-provider devices.py",
    ),
    "the graphics of a Raptor Lake alone": Made(
        card(0, "8086:a780", "i915"), (), "2.15.0+cpu", "made: Linux pciids.h"
    ),
    "an Arc B580 without Level Zero": Made(
        arc(3, "e20b"),
        ("xe 20.1",),
        "level-zero-missing",
        "documented: invoke-ai/launcher#137",
    ),
    "an Arc B580 that its container was not given": Made(
        arc(3, "e20b", node=None) | DOCKER, (), "2.15.0+cpu", "made"
    ),
    "an Arc beside an NVIDIA card": Made(
        healthy(1) | arc(9, "e20b") | LOADER, ("", "xe 20.1"), "2.15.0+cu130", "made"
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_read_and_planned_for(name, tmp_path):
    made = MACHINES[name]
    machine = read(tmp_path, made.files)

    assert tuple(gpu.architecture or "" for gpu in machine.gpus) == made.chips
    assert Machine.from_dict(machine.to_dict()) == machine
    assert outcome(planned(machine)) == made.comes_to


def test_a_card_of_the_bus_has_the_name_of_its_chip_and_no_memory(tmp_path):
    machine = read(tmp_path, MACHINES["an Arc B580"].files)

    assert [
        (gpu.name, gpu.pci_id, gpu.memory_mib, gpu.found_via) for gpu in machine.gpus
    ] == [("Intel Battlemage", "8086:e20b", None, "pci")]


def test_a_loader_in_a_folder_of_the_users_counts(tmp_path):
    files = arc(3, "e20b") | {"/opt/intel/lib/libze_loader.so.1": ""}
    machine = read(tmp_path, files, LD_LIBRARY_PATH="/opt/other:/opt/intel/lib")

    assert machine.problems == ()


def test_a_missing_level_zero_names_its_packages_and_the_way_to_the_cpu(tmp_path):
    plan = planned(read(tmp_path, MACHINES["an Arc B580 without Level Zero"].files))

    assert plan.exit_code == 8
    assert (plan.fix or "").startswith(
        "sudo apt-get install libze1 libze-intel-gpu1   # Ubuntu 24.10 and newer"
    )
    assert (plan.fix or "").endswith(": the CPU build instead")


def test_a_mixed_machine_serves_nvidia_first_and_intel_where_it_is_asked_for(
    tmp_path,
):
    machine = read(tmp_path, MACHINES["an Arc beside an NVIDIA card"].files)
    asked = planned(machine, "xpu")

    assert [warning.message for warning in planned(machine).warnings] == [
        "GPU 1 (Intel Battlemage) is not used: it is not from NVIDIA"
    ]
    assert (outcome(asked), [run.index for run in asked.gpus]) == ("2.15.0+xpu", [1])


def test_windows_is_served_by_its_adapters(tmp_path):
    adapter = {
        "Name": "Intel(R) Arc(TM) B580 Graphics",
        "PNPDeviceID": "PCI\\VEN_8086&DEV_E20B&SUBSYS_11008086",
    }
    files = {
        "platform.json": platform("Windows", "AMD64", "10"),
        "adapters.json": json.dumps([adapter]),
    }
    machine = read(tmp_path, files)

    assert (outcome(planned(machine)), machine.problems) == ("2.15.0+xpu", ())
