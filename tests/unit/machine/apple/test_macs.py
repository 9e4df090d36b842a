"""Macs: what macOS' programs print, read and planned for. No Mac was at hand."""

import json
from typing import NamedTuple

import pytest

from gpuinstall.api import choose
from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.probe import read_machine
from gpuinstall.machine.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.lab.recorded import platform, recording


class Made(NamedTuple):
    """A Mac: its chip, its macOS, the name that is listed, the plan's status, and the torch (or the first reason)."""

    chip: str
    macos: str
    listed: tuple[str, ...]
    comes_to: tuple[str, str]
    machine: str = "arm64"
    virtual: str = "0"
    translated: str = "0"


MACS = {
    "an M1": Made("Apple M1", "13.7.2", ("Apple M1",), ("ok", "2.8.0")),
    "an M3": Made("Apple M3", "14.5", ("Apple M3",), ("ok", "2.15.0")),
    "an M5 Max": Made("Apple M5 Max", "26.4", ("Apple M5 Max",), ("ok", "2.15.0")),
    "an M3 before its first macOS with Metal for torch": Made(
        "Apple M3", "12.2", ("Apple M3",), ("refused", "macos-too-old")
    ),
    "a virtual Mac": Made(
        "Apple M1 (Virtual)", "15.6", (), ("cpu", "2.15.0"), virtual="1"
    ),
    "a Mac with Intel's processor": Made(
        "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz",
        "14.5",
        (),
        ("cpu", "2.2.2"),
        machine="x86_64",
    ),
    # platform.machine() and sysctl.proc_translated as Apple documents them.
    "an Intel Python on Apple silicon": Made(
        "VirtualApple @ 2.50GHz",
        "14.5",
        ("VirtualApple @ 2.50GHz",),
        ("refused", "python-under-rosetta"),
        machine="x86_64",
        translated="1",
    ),
}


@pytest.mark.parametrize("name", MACS)
def test_a_mac_is_read_and_planned_for(name, tmp_path):
    made = MACS[name]
    machine = read(tmp_path, made)
    plan = choose(machine, Request(), frozen_catalog())

    assert tuple(gpu.name for gpu in machine.gpus) == made.listed
    assert Machine.from_dict(machine.to_dict()) == machine
    assert (
        plan.status,
        str(plan.choice.build.torch) if plan.choice else plan.reasons[0].code,
    ) == made.comes_to
    assert all(run.runs == "mps" for run in plan.gpus if plan.choice)


def test_memory_is_shared_and_stands_with_apples_facts(tmp_path):
    machine = read(tmp_path, MACS["an M3"])

    assert machine.gpus[0].memory_mib is None
    assert machine.makers == {"apple": {"macos": "14.5"}}


def test_the_build_is_the_one_of_macos_without_a_label(tmp_path):
    document = choose(
        read(tmp_path, MACS["an M3"]),
        Request(("torch", "torchvision")),
        frozen_catalog(),
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
def test_torchs_own_use_of_metal_may_ask_for_a_newer_macos_than_its_wheel(
    torch, oldest
):
    mac = machine_in_words(("M1",))
    before = replace(mac, makers={"apple": {"macos": f"{int(oldest[:2]) - 1}.0"}})
    with_it = replace(mac, makers={"apple": {"macos": oldest}})
    asked = Request((f"torch=={torch}",))

    assert choose(with_it, asked, frozen_catalog()).status == "ok"
    assert choose(before, asked, frozen_catalog()).reasons[0].code == "macos-too-old"


def test_mps_is_no_backend():
    with pytest.raises(UsageError, match="is not a backend such as cu126"):
        choose(machine_in_words(("M3 Max",)), Request(backend="mps"), frozen_catalog())


def test_the_shipped_rows_have_a_floor_for_every_build_of_macos():
    builds = load_catalog().builds_for("macos", "arm64")

    assert {build.macos for build in builds} == {"11.0", "14.0"}


def read(folder, made):
    return read_machine(source=recording(folder, mac(made)))


def mac(made):
    """The answers of a Mac with 24 GB."""
    said = {
        "kern.osproductversion": made.macos,
        "machdep.cpu.brand_string": made.chip,
        "hw.memsize": 24 << 30,
        "kern.hv_vmm_present": made.virtual,
    }
    return {
        "platform.json": platform("Darwin", made.machine, "24.5.0", made.translated),
        "sysctl.txt": "".join(f"{key}: {value}\n" for key, value in said.items()),
        "environment.json": json.dumps({}),
    }
