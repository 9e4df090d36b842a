"""Macs: what macOS' programs print, read and planned for. No Mac was at hand: each row names where its text is from.

``recorded``: the lines of the GPU stand in a public text; ``made``: the same lines, the machine around them made up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuinstall.api import choose
from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.apple.prober import gpu_lines
from gpuinstall.machine.probe import read_machine
from gpuinstall.verify.devices import device_targets
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.lab.recorded import platform, recording

M1_OF_2020 = """\
Chipset Model: Apple M1
Type: GPU
Bus: Built-In
Total Number of Cores: 7
Vendor: Apple (0x106b)
Metal Family: Supported, Metal GPUFamily Apple 7
"""
M3 = """\
Graphics/Displays:

    Apple M3:

      Chipset Model: Apple M3
      Type: GPU
      Bus: Built-In
      Total Number of Cores: 10
      Vendor: Apple (0x106b)
      Metal Support: Metal 3
      Displays:
        Color LCD:
          Display Type: Built-in Liquid Retina XDR Display
          Resolution: 3024 x 1964 Retina
          Main Display: Yes
          Connection Type: Internal
"""
M5_MAX = (
    M3.replace("Apple M3", "Apple M5 Max")
    .replace("Cores: 10", "Cores: 40")
    .replace("Metal 3", "Metal 4")
)
GUEST = "Chipset Model: Apple Paravirtual device\nType: GPU\nVendor: Apple (0x106b)\nMetal Support: Metal 3\n"
RADEON = (
    "Chipset Model: AMD Radeon Pro 5300M\nType: GPU\nVendor: AMD (0x1002)\nMetal Support: Metal 3\n"
)


class Made(NamedTuple):
    """A Mac: its GPU's text, its macOS, what is listed, the plan's status, and the torch (or the first reason)."""

    gpus: str
    macos: str
    listed: tuple[tuple[str, str], ...]
    comes_to: tuple[str, str]
    source: str
    machine: str = "arm64"
    virtual: str = "0"
    translated: str = "0"


MACS = {
    "an M1": Made(
        M1_OF_2020,
        "13.7.2",
        (("Apple M1", "metal"),),
        ("ok", "2.8.0"),
        "recorded: the measurements of crossbeam's skip list",
    ),
    "an M3": Made(
        M3, "14.5", (("Apple M3", "metal 3"),), ("ok", "2.15.0"), "recorded: narugit/smctemp#26"
    ),
    "an M5 Max": Made(
        M5_MAX,
        "26.4",
        (("Apple M5 Max", "metal 4"),),
        ("ok", "2.15.0"),
        "recorded: two public transcripts",
    ),
    "an M3 before its first macOS with Metal for torch": Made(
        M3, "12.2", (("Apple M3", "metal 3"),), ("refused", "macos-too-old"), "made"
    ),
    "a virtual Mac": Made(
        GUEST, "15.6", (), ("cpu", "2.15.0"), "recorded: runners of GitHub Actions", virtual="1"
    ),
    "a Mac with Intel's processor": Made(
        RADEON, "14.5", (), ("cpu", "2.2.2"), "made", machine="x86_64"
    ),
    "an Intel Python on Apple silicon": Made(
        M3,
        "14.5",
        (("Apple M3", "metal 3"),),
        ("refused", "python-under-rosetta"),
        "made: platform.machine() and sysctl.proc_translated as Apple documents them",
        machine="x86_64",
        translated="1",
    ),
}


@pytest.mark.parametrize("name", MACS)
def test_a_mac_is_read_and_planned_for(name, tmp_path):
    made = MACS[name]
    machine = read(tmp_path, made)
    plan = choose(machine, Request(), frozen_catalog())

    assert tuple((gpu.name, gpu.architecture) for gpu in machine.gpus) == made.listed
    assert Machine.from_dict(machine.to_dict()) == machine
    assert (
        plan.status,
        str(plan.choice.build.torch) if plan.choice else plan.reasons[0].code,
    ) == made.comes_to
    assert all(run.runs == "mps" for run in plan.gpus if plan.choice)


def test_memory_is_shared_and_stands_with_apples_facts(tmp_path):
    machine = read(tmp_path, MACS["an M3"])

    assert machine.gpus[0].memory_mib is None
    assert machine.makers == {"apple": {"macos": "14.5", "chip": "Apple M3", "memory_mib": 24576}}


def test_the_build_is_the_one_of_macos_without_a_label(tmp_path):
    document = choose(
        read(tmp_path, MACS["an M3"]), Request(("torch", "torchvision")), frozen_catalog()
    ).to_dict()

    assert document["build"]["backend"] == "cpu"
    assert document["build"]["requirements"] == ["torch==2.15.0", "torchvision==0.29.2"]
    assert document["gpus"] == [{"index": 0, "runs": "mps", "how": "sass"}]
    assert [warning["code"] for warning in document["warnings"]] == ["not-proven"]


def test_the_floor_of_macos_is_the_wheels_and_keeps_newer_torches_away(tmp_path):
    machine = read(tmp_path, MACS["an M1"])
    plan = choose(machine, Request(), frozen_catalog())
    asked = choose(machine, Request(("torch==2.15.0",)), frozen_catalog())

    assert plan.reasons[0].message == "2.8.0 is the newest torch that macOS 13.7.2 runs"
    assert "needs macOS 14.0 or newer; this is macOS 13.7.2" in asked.reasons[0].message
    assert "Update to macOS 14.0 or newer" in (asked.fix or "")


@pytest.mark.parametrize(
    ("torch", "oldest"),
    [("2.15.0", "14.0"), ("2.9.1", "14.0"), ("2.8.0", "13.0"), ("2.4.1", "12.3")],
)
def test_torchs_own_use_of_metal_may_ask_for_a_newer_macos_than_its_wheel(torch, oldest):
    mac = machine_in_words(("M1",))
    before = replace(mac, makers={"apple": {"macos": f"{int(oldest[:2]) - 1}.0"}})
    with_it = replace(mac, makers={"apple": {"macos": oldest}})
    asked = Request((f"torch=={torch}",))

    assert choose(with_it, asked, frozen_catalog()).status == "ok"
    assert choose(before, asked, frozen_catalog()).reasons[0].code == "macos-too-old"


def test_an_intel_python_is_named_with_the_way_out(tmp_path):
    (problem,) = read(tmp_path, MACS["an Intel Python on Apple silicon"]).problems

    assert (problem.code, problem.blocking) == ("python-under-rosetta", True)
    assert (problem.fix or "").startswith("arch -arm64 python3 bootstrap.py")


def test_the_gpu_of_a_virtual_mac_is_left_to_verify_with_a_word(tmp_path):
    (problem,) = read(tmp_path, MACS["a virtual Mac"]).problems

    assert (problem.code, problem.blocking) == ("gpu-of-a-virtual-mac", False)


def test_the_cpu_may_be_asked_for(tmp_path):
    plan = choose(read(tmp_path, MACS["an M3"]), Request(backend="cpu"), frozen_catalog())

    assert (plan.status, [run.how for run in plan.gpus]) == ("cpu", ["none"])


def test_a_recording_keeps_nothing_of_the_displays():
    display = f"{M3}          Display Serial Number: C02XYZ\n"

    assert gpu_lines(display).splitlines() == [
        "Chipset Model: Apple M3",
        "Total Number of Cores: 10",
        "Vendor: Apple (0x106b)",
        "Metal Support: Metal 3",
    ]


@pytest.mark.parametrize("name", ["M3 Max", "m1", "Apple M4 Pro", "M2 Ultra"])
def test_a_mac_in_words_is_a_mac(name):
    machine = machine_in_words((name,))
    plan = choose(machine, Request(), frozen_catalog())

    assert (machine.os, machine.arch) == ("macos", "arm64")
    assert (plan.status, plan.choice and plan.choice.build.name) == ("ok", "2.15.0+cpu")


def test_apples_gpu_is_nowhere_but_in_a_mac():
    plan = choose(machine_in_words(("M3 Max",), os="linux"), Request(), frozen_catalog())

    assert (plan.exit_code, plan.reasons[0].code) == (3, "no-build-ever")


def test_mps_is_no_backend_and_the_hint_says_what_to_do():
    with pytest.raises(UsageError, match="is torch's name for a GPU") as caught:
        choose(machine_in_words(("M3 Max",)), Request(backend="mps"), frozen_catalog())

    assert "Leave out --backend" in (caught.value.hint or "")


def test_a_child_tries_the_gpu_and_may_not_fall_back_to_the_cpu():
    (target,) = device_targets(machine_in_words(("M3 Max",)), kind="cpu", gpus=None, environ={})

    assert (target.device, target.environment) == ("mps", {"PYTORCH_ENABLE_MPS_FALLBACK": "0"})


def test_the_shipped_rows_have_a_floor_for_every_build_of_macos():
    builds = load_catalog().builds_for("macos", "arm64")

    assert {build.macos for build in builds} == {"11.0", "14.0"}


def read(folder: Path, made: Made) -> Machine:
    return read_machine(source=recording(folder, mac(made)))


def mac(made: Made) -> Mapping[str, str]:
    """The answers of a Mac with 24 GB."""
    chip = (
        "Apple M3"
        if made.machine == "arm64" or made.translated == "1"
        else "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz"
    )
    said = {
        "machdep.cpu.brand_string": chip,
        "hw.memsize": 24 << 30,
        "kern.hv_vmm_present": made.virtual,
    }
    return {
        "platform.json": platform("Darwin", made.machine, "24.5.0", made.translated),
        "sw_vers.txt": f"ProductName:\t\tmacOS\nProductVersion:\t\t{made.macos}\nBuildVersion:\t\t23F79\n",
        "sysctl.txt": "".join(f"{key}: {value}\n" for key, value in said.items()),
        "system_profiler.txt": gpu_lines(made.gpus),
        "environment.json": json.dumps({}),
    }
