"""Distribution, package manager, architecture, and C library of the host."""

import pytest

from gpuinstall.catalog.failures.problems import own_keys
from gpuinstall.machine import host
from gpuinstall.machine.host import (
    detect_architecture,
    parse_avx,
    parse_os_release,
    read_assumed_glibc,
    read_host,
)
from tests.lab.recorded import platform, recording


@pytest.mark.parametrize(
    ("text", "name", "manager"),
    [
        (
            'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n',
            "Ubuntu 22.04",
            "apt",
        ),
        (
            'PRETTY_NAME="x"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n',
            "Debian 12",
            "apt",
        ),
        (
            'NAME="Rocky Linux"\nVERSION_ID="9.4"\nID="rocky"\nID_LIKE="rhel centos fedora"\n',
            "Rocky Linux 9.4",
            "dnf",
        ),
        (
            'NAME="openSUSE Leap"\nVERSION_ID="15.6"\nID="opensuse-leap"\nID_LIKE="suse opensuse"\n',
            "openSUSE Leap 15.6",
            "zypper",
        ),
        ('NAME="Arch Linux"\nID=arch\n', "Arch Linux", "pacman"),
        ("NAME=NixOS\nID=nixos\nVERSION_ID='24.05'\n", "NixOS 24.05", "nixos"),
        ('NAME="Gibberish OS"\nID=gibberish\n', "Gibberish OS", None),
        ("", None, None),
    ],
)
def test_distribution_and_package_manager_are_read(text, name, manager):
    names = parse_os_release(text)
    assert host.format_distribution(names) == name
    # The package manager's key precedes the system's, if the distribution is known.
    assert (None, *own_keys("system", name))[-2] == manager


@pytest.mark.parametrize(
    ("machine", "system", "processor", "translated", "architecture"),
    [
        ("x86_64", "Linux", "flags : avx", "", "x86_64"),
        ("AMD64", "Windows", "", "", "x86_64"),
        ("aarch64", "Linux", "CPU implementer : 0x41", "", "aarch64"),
        ("arm64", "Darwin", "", "", "arm64"),
        ("ARM64", "Windows", "", "", "arm64"),
        ("x86_64", "Darwin", "", "1", "arm64"),
        ("AMD64", "Windows", "", "1", "arm64"),
        ("x86_64", "Linux", "CPU implementer : 0x41", "", "aarch64"),
        ("x86_64", "Darwin", "", "0", "x86_64"),
    ],
)
def test_emulated_process_reports_the_native_architecture(
    machine, system, processor, translated, architecture
):
    assert detect_architecture(machine, system, processor, translated) == architecture


NO_GLIBC = {"platform.json": '{"system": "Linux", "machine": "x86_64"}'}
MUSL = {"/lib/ld-musl-x86_64.so.1": ""}


@pytest.mark.parametrize(
    ("files", "libc", "glibc"),
    [
        ({}, "glibc", "2.35"),
        (NO_GLIBC | MUSL, "musl", None),
        # A musl Python on a host with glibc.
        (NO_GLIBC | MUSL | {"/lib64/ld-linux-x86-64.so.2": ""}, "glibc", None),
        ({"platform.json": platform("Windows", "AMD64")}, None, None),
        ({"platform.json": platform("Darwin", "arm64")}, None, None),
    ],
)
def test_c_library_of_the_host_is_detected(tmp_path, files, libc, glibc):
    facts = read_host(recording(tmp_path, files)).machine
    assert (facts.libc, facts.glibc) == (libc, glibc)


@pytest.mark.parametrize(
    ("text", "avx"),
    [
        ("flags\t\t: fpu avx avx2\n", True),
        ("flags\t\t: fpu sse2\n", False),
        ("flags\t\t: fpu ss", None),
        ("", None),
    ],
)
def test_avx_is_read_from_cpu_flags(text, avx):
    assert parse_avx(text) is avx


@pytest.mark.parametrize(
    ("libc", "glibc"),
    [("glibc 2.28", "2.28"), ("glibc 2.39", "2.34"), ("", "2.34")],
)
def test_assumed_glibc_is_at_most_2_34(monkeypatch, libc, glibc):
    monkeypatch.setattr("os.confstr", lambda _: libc, raising=False)
    assert read_assumed_glibc() == glibc
