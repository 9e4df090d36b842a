"""Parsers read any text without raising."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.versions import DriverVersion
from gpuinstall.machine import bus, container, host, jetson
from gpuinstall.machine.nvidia import linux

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)

PARSERS = {
    "proc version": (
        linux.parse_proc_version,
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun",
    ),
    "sysfs number": (bus.parse_number, "0x10de\n"),
    "bus address": (bus.normalize_address, "00000000:01:00.0"),
    "os-release": (host.parse_os_release, 'NAME="Ubuntu"\nID=ubuntu\n'),
    "cpuinfo": (host.parse_avx, "flags\t: fpu avx avx2\n"),
    "mountinfo": (
        container.select_own_mounts,
        "636 620 254:1 /docker/containers/4c01/hosts /etc/hosts rw - ext4 /dev/vda1 rw\n",
    ),
    "own mounts": (
        container.has_host_file_mounts,
        "636 620 254:1 /docker/containers/4c01/hosts /etc/hosts rw - ext4 /dev/vda1 rw\n",
    ),
    "cgroup": (container.detect_engine, "0::/kubepods/besteffort\n"),
    "device tree": (jetson.parse_compatible, "nvidia,p3737\0nvidia,tegra234\0"),
    "tegra release": (jetson.parse_l4t, "# R36 (release), REVISION: 4.0, GCID: 1"),
    "adapters": (
        lambda text: list(bus.parse_adapters(text)),
        '[{"PNPDeviceID": "PCI\\\\VEN_10DE&DEV_2684"}]',
    ),
    "Windows driver": (DriverVersion.from_windows, "32.0.15.8180"),
}


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_modified_text_is_parsed_without_error(name, data):
    parse, text = PARSERS[name]
    first, last = sorted(
        data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text))))
    )
    parse(text[:first] + data.draw(st.text()) + text[last:])


def test_nested_json_is_parsed_without_error():
    assert list(bus.parse_adapters("[" * 100_000)) == []


@given(value=JSON)
def test_arbitrary_json_is_parsed_without_error(value):
    list(bus.parse_adapters(json.dumps(value)))
