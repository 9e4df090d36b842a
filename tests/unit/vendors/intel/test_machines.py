"""Intel's machines: the bus and Level Zero's answers, read and planned for. No card was at hand: each row has a source.

``recorded``: the numbers of the bus stand in a public recording; ``made``: the numbers of the chip are documented, the
machine around them is made up here. Level Zero's answers are all made: of its documented structures.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gpuinstall.api import choose
from gpuinstall.machine import Machine
from gpuinstall.probe import read_machine
from gpuinstall.request import Request
from gpuinstall.vendors.intel.rules import architecture_of
from gpuinstall.verify.devices import device_targets
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.lab.recorded import (
    PCI,
    bus,
    card,
    healthy,
    libcuda,
    no_libcuda,
    no_nvml,
    nvml,
    platform,
    recording,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.api import Refusal
    from gpuinstall.plan import Plan

NO_NVIDIA = no_nvml() | no_libcuda()
DOCKER = {
    "/.dockerenv": "",
    "own-mounts.txt": "636 620 254:1 /docker/containers/4c01/hosts /etc/hosts rw - ext4 /dev/vda1 rw\n",
}
MISSING = "libze_loader.so.1: cannot open shared object file: No such file or directory"


def arc(
    number: int, device: str, driver: str | None = "xe", node: str | None = "open"
) -> dict[str, str]:
    """A GPU of Intel's on the bus, with its render node."""
    files = card(number, f"8086:{device}", driver)
    if node is None:
        return files
    minor = f"renderD{127 + number}"
    return files | {
        f"{PCI}/{bus(number)}/drm/{minor}/dev": "226:128\n",
        f"/dev/dri/{minor}": f"{node}\n",
    }


def level_zero(
    *gpus: tuple[str, int, tuple[int, int, int], bool], library: bool = True
) -> dict[str, str]:
    """Level Zero's answer: the name, the device, the three numbers of its IP version, whether it is integrated."""
    devices = [
        {
            "name": name,
            "vendor": 0x8086,
            "device": device,
            "ip": ip[0] << 22 | ip[1] << 14 | ip[2],
            "integrated": integrated,
            "memory_bytes": 12 << 30,
        }
        for name, device, ip, integrated in gpus
    ]
    answer = {
        "library": "libze_loader.so.1",
        "status": 0,
        "drivers": 1,
        "api": "1.13",
        "devices": devices,
    }
    said = answer if library else {"library": None, "error": MISSING}
    return {"level-zero.txt": f"status 0\n{json.dumps(said)}\n"}


B580 = ("Intel(R) Arc(TM) B580 Graphics", 0xE20B, (20, 1, 4), False)
UHD_770 = ("Intel(R) UHD Graphics 770", 0x4680, (12, 2, 0), True)
MAX_1550 = ("Intel(R) Data Center GPU Max 1550", 0x0BD5, (12, 60, 7), False)
LUNAR = ("Intel(R) Arc(TM) 140V GPU (16GB)", 0x64A0, (20, 4, 4), True)
NO_LIBRARY = level_zero(library=False)


class Made(NamedTuple):
    """A machine by its files; the code of its GPUs, the build that is chosen (or the first reason), the source."""

    files: Mapping[str, str]
    chips: tuple[str, ...]
    comes_to: str
    source: str


MACHINES = {
    "an Arc B580": Made(
        arc(3, "e20b") | level_zero(B580),
        ("xe 20.1.4",),
        "2.15.0+xpu",
        "recorded: lspci of intel/ipex-llm#12994",
    ),
    "an Arc A770 of a recording without Level Zero's answer": Made(
        arc(3, "56a0", "i915"),
        ("xe 12.55",),
        "2.15.0+xpu",
        "recorded: xpu-smi of ggml-org/llama.cpp#28725",
    ),
    "a Panther Lake": Made(
        arc(0, "b080") | level_zero(("Intel(R) Graphics", 0xB080, (30, 0, 4), True)),
        ("xe 30.0.4",),
        "2.15.0+xpu",
        "recorded: lspci of intel/compute-runtime#949",
    ),
    "four Data Center GPU Max": Made(
        arc(1, "0bd5", "i915") | level_zero(*[MAX_1550] * 4),
        ("xe 12.60.7",) * 4,
        "2.15.0+xpu",
        "made: Linux pciids.h",
    ),
    "a Lunar Lake": Made(
        arc(0, "64a0") | level_zero(LUNAR), ("xe 20.4.4",), "2.15.0+xpu", "made: Linux pciids.h"
    ),
    "an Arc beside the graphics of its processor": Made(
        arc(0, "4680", "i915") | arc(3, "e20b") | level_zero(B580, UHD_770),
        ("xe 20.1.4", "xe 12.2.0"),
        "2.15.0+xpu",
        "made: intel-variant-provider devices.py",
    ),
    "the graphics of a Raptor Lake alone": Made(
        card(0, "8086:a780", "i915") | level_zero(UHD_770), (), "2.15.0+cpu", "made: Linux pciids.h"
    ),
    "an Arc B580 without Level Zero": Made(
        arc(3, "e20b") | NO_LIBRARY,
        ("xe 20.1",),
        "level-zero-missing",
        "documented: invoke-ai/launcher#137",
    ),
    "an Arc B580 that its compute runtime does not know": Made(
        arc(3, "e20b") | level_zero(),
        ("xe 20.1",),
        "level-zero-without-gpu",
        "documented: vllm-project/vllm#47661",
    ),
    "an Arc B580 whose node may not be opened": Made(
        arc(3, "e20b", node="denied") | level_zero(), ("xe 20.1",), "render-not-permitted", "made"
    ),
    "an Arc B580 that its container was not given": Made(
        arc(3, "e20b", node=None) | level_zero() | DOCKER, (), "2.15.0+cpu", "made"
    ),
    "a Meteor Lake that draws beside an NVIDIA card": Made(
        healthy(1) | arc(9, "7d55", "i915") | NO_LIBRARY, ("",), "2.15.0+cu130", "made"
    ),
    "an Arc beside an NVIDIA card": Made(
        healthy(1) | arc(9, "e20b") | level_zero(B580), ("", "xe 20.1.4"), "2.15.0+cu130", "made"
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_read_and_planned_for(name: str, tmp_path: Path) -> None:
    made = MACHINES[name]
    machine = read(tmp_path, made.files)

    assert tuple(gpu.architecture or "" for gpu in machine.gpus) == made.chips
    assert Machine.from_dict(machine.to_dict()) == machine
    assert outcome(planned(machine)) == made.comes_to


def test_names_memory_and_the_interface_are_level_zeros(tmp_path: Path) -> None:
    machine = read(tmp_path, MACHINES["an Arc B580"].files)
    lunar = read(tmp_path / "lunar", MACHINES["a Lunar Lake"].files)

    assert [(gpu.name, gpu.pci_id, gpu.memory_mib) for gpu in machine.gpus] == [
        ("Intel Arc B580 Graphics", "8086:e20b", 12 << 10)
    ]
    assert machine.makers == {"intel": {"level_zero": "1.13"}}
    assert lunar.gpus[0].memory_mib is None


def test_what_torch_is_not_for_stays_out_with_a_word(tmp_path: Path) -> None:
    beside = planned(
        read(tmp_path / "arc", MACHINES["an Arc beside the graphics of its processor"].files)
    )
    alone = read(tmp_path / "uhd", MACHINES["the graphics of a Raptor Lake alone"].files)

    assert (beside.status, [run.how for run in beside.gpus]) == ("partial", ["sass", "none"])
    assert [problem.code for problem in alone.problems] == ["gpu-not-supported"]
    assert planned(alone).status == "cpu"


def test_a_missing_level_zero_names_its_packages_and_the_way_to_the_cpu(tmp_path: Path) -> None:
    plan = planned(read(tmp_path, MACHINES["an Arc B580 without Level Zero"].files))

    assert plan.exit_code == 8
    assert (plan.fix or "").startswith("sudo apt-get install libze1 libze-intel-gpu1")
    assert (plan.fix or "").endswith(": the CPU build instead")


def test_what_a_container_was_not_given_is_named(tmp_path: Path) -> None:
    machine = read(tmp_path, MACHINES["an Arc B580 that its container was not given"].files)

    assert [problem.code for problem in machine.problems] == ["gpu-not-ours"]


def test_a_mixed_machine_serves_nvidia_first_and_intel_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    machine = read(tmp_path, MACHINES["an Arc beside an NVIDIA card"].files)
    asked = planned(machine, "xpu")

    assert [warning.message for warning in planned(machine).warnings] == [
        "GPU 1 (Intel Arc B580 Graphics) is not used: it is not from NVIDIA"
    ]
    assert (outcome(asked), [run.index for run in asked.gpus]) == ("2.15.0+xpu", [1])


def test_windows_is_served_and_its_adapters_are_read_where_nobody_answers(tmp_path: Path) -> None:
    files = NO_NVIDIA | {"platform.json": platform("Windows", "AMD64", "10")}
    adapter = {
        "Name": "Intel(R) Arc(TM) B580 Graphics",
        "PNPDeviceID": "PCI\\VEN_8086&DEV_E20B&SUBSYS_11008086",
    }
    answering = read_machine(source=recording(tmp_path / "with", files | level_zero(B580)))
    without = read_machine(
        source=recording(
            tmp_path / "without", files | NO_LIBRARY, {"adapters.json": json.dumps([adapter])}
        )
    )

    assert outcome(planned(answering)) == "2.15.0+xpu"
    assert [problem.code for problem in without.problems if problem.blocking] == [
        "level-zero-missing"
    ]
    assert "graphics driver of Intel" in (without.problems[0].fix or "")


def test_on_windows_the_graphics_of_a_processor_stay_out_beside_a_driver_that_answers(
    tmp_path: Path,
) -> None:
    files = {"platform.json": platform("Windows", "AMD64", "10")} | nvml({}) | libcuda(1)
    meteor = level_zero(("Intel(R) Arc(TM) Graphics", 0x7D55, (12, 71, 4), True))
    machine = read_machine(source=recording(tmp_path, files, meteor))

    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA GeForce RTX 4090"]


def test_in_wsl_level_zero_is_asked_where_windows_lends_intels_driver(tmp_path: Path) -> None:
    wsl = {
        "platform.json": platform(release="5.15.153.1-microsoft-standard-WSL2"),
        "/dev/dxg": "open\n",
        "/usr/lib/wsl/drivers/iigd_dch_d.inf_amd64_1/libze_intel_gpu.so": "",
    }
    machine = read(tmp_path, wsl | level_zero(B580))

    assert (outcome(planned(machine)), machine.environment.wsl) == ("2.15.0+xpu", True)


def test_a_child_sees_the_gpu_that_it_tries() -> None:
    machine = machine_in_words(("Arc B580", "Arc A770"))
    targets = device_targets(machine, kind="xpu", gpus=None, environ={})

    assert [(target.device, target.environment) for target in targets] == [
        ("xpu", {"ONEAPI_DEVICE_SELECTOR": "level_zero:0"}),
        ("xpu", {"ONEAPI_DEVICE_SELECTOR": "level_zero:1"}),
    ]


def test_level_zeros_number_is_written_as_the_compiler_names_it() -> None:
    assert architecture_of(0x05004000) == "xe 20.1.0"
    assert architecture_of(0x030DC008) == "xe 12.55.8"
    assert architecture_of(0) is None


@pytest.mark.parametrize(
    ("name", "chip"),
    [
        ("Arc B580", "xe 20.1"),
        ("Intel Arc A770", "xe 12.55"),
        ("b570", "xe 20.1"),
        ("Lunar Lake", "xe 20.4"),
    ],
)
def test_a_machine_in_words_needs_no_driver(name: str, chip: str) -> None:
    machine = machine_in_words((name,))

    assert machine.gpus[0].architecture == chip
    assert outcome(planned(machine)) == "2.15.0+xpu"


def read(folder: Path, files: Mapping[str, str]) -> Machine:
    return read_machine(source=recording(folder, NO_NVIDIA, files))


def planned(machine: Machine, backend: str | None = None) -> Plan | Refusal:
    return choose(machine, Request(backend=backend), frozen_catalog())


def outcome(plan: Plan | Refusal) -> str:
    return plan.choice.build.name if plan.choice else plan.reasons[0].code
