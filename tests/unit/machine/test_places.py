"""Detection of Jetson, WSL, Windows adapters, and the PCI bus."""

import json

import pytest

from gpuinstall.machine.bus import normalize_address, parse_adapters, read_pci
from gpuinstall.machine.container import read_wsl
from gpuinstall.machine.jetson import read_jetson
from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import (
    card,
    no_libcuda,
    no_nvml,
    platform,
    recording,
)

ORIN = {"/proc/device-tree/compatible": "nvidia,p3737-0000\0nvidia,tegra234\0"}
THOR = {"/proc/device-tree/compatible": "nvidia,p4071-0000\0nvidia,tegra264\0"}


def release(text):
    return {"/etc/nv_tegra_release": f"# {text}, GCID: 1, BOARD: generic"}


@pytest.mark.parametrize(
    ("files", "kernel", "l4t", "capability"),
    [
        (ORIN | release("R36 (release), REVISION: 4.0"), "5.15.148", "36.4.0", "8.7"),
        (ORIN, "5.15.148", "36", "8.7"),
        (ORIN, "5.10.120", "35", "8.7"),
        (THOR, "6.8.12", "38", "11.0"),
        (release("R32 (release), REVISION: 7.1"), "4.9.253", "32.7.1", "None"),
    ],
)
def test_jetson_is_detected_by_chip_and_release(
    tmp_path, files, kernel, l4t, capability
):
    jetson = read_jetson(recording(tmp_path, files), f"{kernel}-tegra")
    assert jetson is not None
    assert jetson.l4t == l4t
    assert str(jetson.chip and jetson.chip.capability) == capability


def test_jetson_without_nvml_is_healthy(tmp_path):
    orin = {
        "name": "Orin",
        "uuid": None,
        "compute_capability": "8.7",
        "memory_mib": 64 << 10,
        "bus_id": "0000:00:00.0",
    }
    answer = {"path": "x", "driver_version": "11.4", "init": 0, "devices": [orin]}
    said = {"libcuda.txt": f"status 0\n{json.dumps(answer)}"}
    arm = {"platform.json": platform(machine="aarch64", release="5.10.120-tegra")}
    machine = read_machine(source=recording(tmp_path, ORIN, arm, no_nvml(), said))
    assert machine.problems == ()
    assert (machine.environment.l4t, machine.arch) == ("35", "aarch64")
    assert [(gpu.name, gpu.memory_mib, gpu.found_via) for gpu in machine.gpus] == [
        ("Orin", None, "libcuda")
    ]


@pytest.mark.parametrize(
    ("files", "kernel", "lends_gpu"),
    [
        ({}, "6.8.0-45-generic", None),
        ({}, "5.15.153.1-microsoft-standard-WSL2", False),
        # A container has the host's kernel.
        ({"/dev/dxg": "open\n"}, "6.8.0-45-generic", True),
    ],
)
def test_wsl_is_detected_by_kernel_or_device(tmp_path, files, kernel, lends_gpu):
    wsl = read_wsl(recording(tmp_path, files), kernel)
    assert (wsl and wsl.gpu) is lends_gpu


def test_only_display_controllers_are_listed(tmp_path):
    audio = card(1, "10de:22bc", "snd_hda_intel", "0x040300")
    bridge = card(2, "8086:1901", None, "0x060400")
    compute = card(3, "10de:2335", kind="0x030200")
    switch = card(4, "10de:22a3", kind="0x068000")
    matrox = card(5, "102b:0538", "mgag200")
    found = read_pci(recording(tmp_path, audio, bridge, compute, switch, matrox))
    assert [(device.id, device.is_display) for device in found] == [
        ("10de:2335", True),
        ("102b:0538", True),
    ]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("0000:01:00.0", "0000:01:00.0"),
        ("x", "x"),
    ],
)
def test_bus_address_has_the_format_of_sysfs(text, address):
    assert normalize_address(text) == address


ADAPTER = {
    "Name": "NVIDIA GeForce RTX 4090",
    "PNPDeviceID": "PCI\\VEN_10DE&DEV_2684&SUBSYS_16F110DE&REV_A1\\4&1A2B3C4D&0&0008",
    "DriverVersion": "32.0.15.8180",
    "ConfigManagerErrorCode": 0,
}


@pytest.mark.parametrize(
    "said", [ADAPTER, [ADAPTER], [{"PNPDeviceID": "ROOT\\BASICDISPLAY\\0000"}, ADAPTER]]
)
def test_windows_adapters_are_read_from_object_or_list(said):
    (adapter,) = parse_adapters(json.dumps(said))
    assert (adapter.id, adapter.is_display, adapter.driver_text) == (
        "10de:2684",
        True,
        "581.80",
    )


def test_windows_adapter_with_error_reports_missing_driver(tmp_path):
    broken = {
        "platform.json": platform("Windows", "AMD64", "10"),
        "adapters.json": json.dumps({**ADAPTER, "ConfigManagerErrorCode": 43}),
    }
    source = recording(tmp_path, broken, no_nvml(), no_libcuda())
    (problem,) = read_machine(source=source).problems
    assert (problem.code, problem.id) == ("driver-missing", "F01")
    assert "error code 43" in (problem.evidence or "")
    assert "https://www.nvidia.com" in (problem.fix or "")
