"""The kernel module: release, license, folder, and Secure Boot."""

import pytest

from gpuinstall.machine.nvidia import linux
from gpuinstall.machine.nvidia.linux import (
    SECURE_BOOT,
    has_module,
    lists_nvidia,
    parse_proc_version,
    read_secure_boot,
)
from gpuinstall.machine.source import Source
from tests.lab.recorded import recording


@pytest.mark.parametrize(
    ("text", "version", "is_open"),
    [
        (
            "x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            "535.183.01",
            False,
        ),
        (
            "Open Kernel Module for x86_64  580.95.05  Release Build  (b@h)",
            "580.95.05",
            True,
        ),
        ("Open Kernel Module for aarch64  540.4.0  Release Build", "540.4.0", True),
        ("x86_64 Kernel Module  470.82.01", "470.82.01", False),
    ],
)
def test_module_version_and_license_are_read(text, version, is_open):
    module = parse_proc_version(f"NVRM version: NVIDIA UNIX {text}\n")
    assert module is not None
    assert (str(module.version), module.open) == (version, is_open)


def test_kernel_modules_of_distributions_are_recognized():
    # NixOS, Ubuntu, Fedora, RHEL, SUSE, and Debian's DKMS packages 535, 550, and 470.
    modules = {
        "kernel/drivers/video/nvidia.ko.zst:": True,
        "kernel/nvidia-580-open/nvidia.ko:": True,
        "extra/nvidia/nvidia.ko.xz:": True,
        "weak-updates/nvidia.ko:": True,
        "updates/nvidia.ko.zst:": True,
        "updates/dkms/nvidia-current.ko.xz:": True,
        "updates/dkms/nvidia-current-open.ko.xz:": True,
        "updates/dkms/nvidia-tesla-470.ko.xz:": True,
        "updates/dkms/nvidia-legacy-390xx.ko:": True,
        # The kernels of Debian (6.12) and Ubuntu (6.8) include these.
        "kernel/drivers/net/ethernet/nvidia/forcedeth.ko.xz:": False,
        "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko.xz:": False,
        "kernel/drivers/usb/typec/altmodes/typec_nvidia.ko.xz:": False,
        "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.zst:": False,
        "kernel/drivers/hid/hid-nvidia-shield.ko.zst:": False,
    }
    assert {line: lists_nvidia(line) for line in modules} == modules


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("\x06\0\0\0\x01", True),
        ("\x06\0\0\0\0", False),
        ("", False),
        (None, False),
        ("\x06", False),
    ],
)
def test_secure_boot_is_read_from_fifth_byte(tmp_path, text, on):
    files = {} if text is None else {SECURE_BOOT: text}
    assert read_secure_boot(recording(tmp_path, files)) is on


@pytest.mark.parametrize(
    "folder", ["lib/modules", "run/booted-system/kernel-modules/lib/modules"]
)
def test_module_is_found_in_folders_of_distributions(tmp_path, monkeypatch, folder):
    modules = tmp_path / folder / "6.8.0"
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text(
        "kernel/drivers/net/e1000.ko:\nkernel/drivers/video/nvidia.ko.xz: kernel/x.ko\n",
        "utf-8",
    )
    # NixOS has no /lib/modules.
    folders = tuple(f"{tmp_path}{path}" for path in linux.MODULES)
    monkeypatch.setattr(linux, "MODULES", folders)
    assert has_module(Source(), "6.8.0")
