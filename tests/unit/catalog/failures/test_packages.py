"""Tests of driver packages on each system, or of a web page without one."""

from itertools import product

import pytest

from gpuinstall.catalog.failures.problems import (
    FixContext,
    fix,
    load_packages,
    own_keys,
)

SYSTEMS = (
    "Ubuntu 24.04",
    "Linux Mint 22",
    "Debian 12",
    "Debian 13",
    "Kali GNU/Linux 2026.3",
    "Fedora Linux 44",
    "Rocky Linux 9.4",
    "AlmaLinux 10.1",
    "Amazon Linux 2023",
    "Microsoft Azure Linux 3.0",
    "openSUSE Leap 15.6",
    "SLES 15.7",
    "Arch Linux",
    "NixOS 25.11",
    "Void",
)
ARCHIVES = {
    # Packages in non-free and non-free-firmware, and those used from main, by apt-cache on 2026-11-25.
    "debian-12": {
        "linux-headers-$(dpkg": "",
        "nvidia-driver": "535.261.03-1",
        "firmware-misc-nonfree": "20230210-5",
        "dkms": "3.0.10-8+deb12u1",
        "linux-headers-{release}": "",
        "libcuda1": "535.261.03-1",
        "libnvidia-ml1": "535.261.03-1",
        "nvidia-smi": "535.261.03-1",
        "nvidia-tesla-470-driver": "470.256.02-1~deb12u1",
    },
    "debian-13": {
        "linux-headers-$(dpkg": "",
        "nvidia-driver": "550.163.01-2",
        "firmware-misc-nonfree": "20250410-2",
        "dkms": "3.2.2-1~deb13u1",
        "linux-headers-{release}": "",
        "libcuda1": "550.163.01-2",
        "libnvidia-ml1": "550.163.01-2",
        "nvidia-smi": "550.163.01-2",
    },
}


def lines(what, system, **known):
    context = FixContext(own_keys("linux", system)).knowing(**known)
    return [*map(str, fix(what, context))]


def first_line(what, system, **known):
    return lines(what, system, **known)[0]


def last_install(what, system, **known):
    found = lines(what, system, **known)
    return [line for line in found if "nstall" in line or "pacman" in line][-1]


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("Ubuntu 24.04", "apt-get install nvidia-driver-580-open && sudo reboot"),
        (
            "Debian 12",
            "nvidia-open && sudo reboot   # Debian's own packages end at driver 535",
        ),
        (
            "Debian 13",
            "nvidia-open && sudo reboot   # Debian's own packages end at driver 550",
        ),
        ("Fedora Linux 44", "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda"),
        ("Rocky Linux 9.4", "module enable nvidia-driver:580-open && sudo dnf install"),
        ("AlmaLinux 10.1", "sudo dnf install nvidia-open && sudo reboot"),
        ("Amazon Linux 2023", "module enable nvidia-driver:580-open"),
        ("Microsoft Azure Linux 3.0", "sudo dnf install nvidia-open && sudo reboot"),
        ("openSUSE Leap 15.6", "nvidia-open-driver-G06-signed-kmp-meta"),
        ("Arch Linux", "sudo pacman -S nvidia-open && sudo reboot"),
        (
            "Void",
            "Install NVIDIA driver 580 or later from https://www.nvidia.com/drivers",
        ),
    ],
)
def test_cuda_13_driver_package_exists_on_the_system(system, command):
    assert command in last_install("driver-missing", system)


def test_repository_is_added_before_its_packages():
    firsts = {
        ("F25", "Ubuntu 24.04"): "libnvidia-container/gpgkey",
        ("F25", "Fedora Linux 44"): "nvidia-container-toolkit.repo",
        ("F01", "Debian 12"): "/repos/debian12/$(uname -m",
        ("F01", "Debian 13"): "/repos/debian13/$(uname -m",
        ("F01", "Rocky Linux 9.4"): "/cuda-rhel9.repo",
        ("F01", "AlmaLinux 10.1"): "/cuda-rhel10.repo",
        ("F01", "Amazon Linux 2023"): "repos/amzn2023/",
        ("F01", "Fedora Linux 44"): "rpmfusion-nonfree-release",
        ("F10", "Ubuntu 24.04"): '"nvidia-fabricmanager-580=$(cat /sys/module',
    }
    wrong = {
        place: first_line(*place, running=580)
        for place, part in firsts.items()
        if part not in first_line(*place, running=580)
    }
    assert wrong == {}


def test_package_table_covers_every_system():
    assert all("linux" in table.commands for table in load_packages().values())
    empty = [
        (what, system)
        for what in ("F01", "F04", "F06", "F10", "F25", "libcuda-missing", "F39")
        for system in SYSTEMS
        if not first_line(what, system)
    ]
    assert empty == []


def test_debian_fixes_install_only_archive_packages():
    wrong = []
    for action, key in product(("install", "libraries", "module"), ARCHIVES):
        names = fix_names(action, key)
        wrong += [(action, key, name) for name in names if name not in ARCHIVES[key]]
    assert wrong == []


def fix_names(action, release):
    """Return the packages of Debian that a step for older GPUs installs."""
    commands = load_packages()[action].commands
    steps = commands.get(f"{release}-legacy") or commands["debian"]
    for step in steps:
        words = step.run.partition(" install ")[2].partition(" &&")[0].split()
        yield from (word for word in words if not word.startswith("--print"))


def test_container_wsl_and_jetson_fixes_install_no_driver():
    for key in ("container", "wsl", "jetson"):
        lines = map(str, fix("F01", FixContext((key, "ubuntu", "apt", "linux"))))
        assert [line for line in lines if line.startswith("sudo apt")] == [], key
