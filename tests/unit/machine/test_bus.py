from gpuinstall.machine.bus import read_pci
from tests.lab.elsewhere import lay
from tests.lab.recorded import Recording


def test_only_whole_display_controllers_and_accelerators_are_read(tmp_path):
    identity = {"vendor": "0x10de", "device": "0x2684"}
    functions = {
        "0000:01:00.0": {
            "class": "0x030000",
            **identity,
            "driver": "../../../bus/pci/drivers/nvidia",
        },
        "0000:02:00.0": {"class": "0x120000", **identity, "uevent": "DRIVER=vfio-pci\n"},
        "0000:03:00.0": {"class": "0x020000", **identity},
        "0000:04:00.0": {"class": "0x030200", "vendor": "0x10de"},
        "0000:05:00.0": identity,
    }
    files = {
        f"/sys/bus/pci/devices/{address}/{name}": text
        for address, held in functions.items()
        for name, text in held.items()
    }
    lay(tmp_path, files)

    devices = read_pci(Recording(tmp_path))
    assert [(device.address, device.id, device.driver) for device in devices] == [
        ("0000:01:00.0", "10de:2684", "nvidia"),
        ("0000:02:00.0", "10de:2684", "vfio-pci"),
    ]
