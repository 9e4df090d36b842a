"""nvidia-smi's answers: its XML, the list of slices, the capabilities, and what stands there instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinstall.probe import read_machine
from gpuinstall.vendors.nvidia import smi
from gpuinstall.vendors.nvidia.smi import parse_smi
from tests.lab.recorded import recording
from tests.lab.smi_table import as_xml

MACHINES = Path(__file__).parents[3] / "data" / "machines"
TABLES = sorted(MACHINES.glob("*/nvidia-smi.txt"))

A100 = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>Fri Oct 11 18:24:09 2024</timestamp>
\t<driver_version>535.129.03</driver_version>
\t<cuda_version>12.2</cuda_version>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:10:00.0">
\t\t<product_name>NVIDIA A100-SXM4-80GB</product_name>
\t\t<product_brand>NVIDIA</product_brand>
\t\t<mig_mode>
\t\t\t<current_mig>Enabled</current_mig>
\t\t\t<pending_mig>Enabled</pending_mig>
\t\t</mig_mode>
\t\t<mig_devices>
\t\t\t<mig_device>
\t\t\t\t<index>0</index>
\t\t\t\t<gpu_instance_id>9</gpu_instance_id>
\t\t\t\t<fb_memory_usage>
\t\t\t\t\t<total>9728 MiB</total>
\t\t\t\t</fb_memory_usage>
\t\t\t</mig_device>
\t\t</mig_devices>
\t\t<serial>1562721004031</serial>
\t\t<uuid>GPU-feba7e40-d724-01ff-b00f-3a439a28a6c7</uuid>
\t\t<pci>
\t\t\t<pci_device_id>20B210DE</pci_device_id>
\t\t\t<pci_bus_id>00000000:10:00.0</pci_bus_id>
\t\t</pci>
\t\t<fb_memory_usage>
\t\t\t<total>81920 MiB</total>
\t\t\t<reserved>551 MiB</reserved>
\t\t</fb_memory_usage>
\t</gpu>
</nvidia_smi_log>
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-feba7e40-d724-01ff-b00f-3a439a28a6c7)
  MIG 1g.10gb     Device  0: (UUID: MIG-feb88891-0321-5fef-9c87-d4af3b54259e)
8.0
"""


def log(*lines: str) -> str:
    return "<nvidia_smi_log>\n" + "\n".join(lines) + "\n</nvidia_smi_log>\n"


def test_a_card_is_read_with_its_slices_and_its_capability() -> None:
    facts = parse_smi(A100)
    (gpu,) = facts.gpus
    assert (str(facts.driver), str(facts.cuda), facts.init, facts.fault) == (
        "535.129.03",
        "12.2",
        0,
        None,
    )
    assert (gpu.name, gpu.bus_id, gpu.pci_id) == (
        "NVIDIA A100-SXM4-80GB",
        "0000:10:00.0",
        "10de:20b2",
    )
    assert (gpu.uuid, gpu.memory_mib, gpu.mig) == (
        "GPU-feba7e40-d724-01ff-b00f-3a439a28a6c7",
        81920,
        True,
    )
    assert str(gpu.compute_capability) == "8.0"
    assert [(part.profile, part.uuid[:12]) for part in gpu.slices] == [("1g.10gb", "MIG-feb88891")]


@pytest.mark.parametrize(
    ("lines", "driver", "cuda"),
    [
        (
            ("<driver_version>580.95.05</driver_version>", "<cuda_version>13.0</cuda_version>"),
            "580.95.05",
            "13.0",
        ),
        (
            (
                "<kmd_version>610.43.02</kmd_version>",
                "<cuda_version>Deprecated</cuda_version>",
                "<cuda_umd_version>13.3</cuda_umd_version>",
            ),
            "610.43.02",
            "13.3",
        ),
        (
            ("<driver_version>546.80</driver_version>", "<cuda_version>ERR!</cuda_version>"),
            "546.80",
            "None",
        ),
        (
            ("<driver_version>N/A</driver_version>", "<cuda_version>12.2</cuda_version>"),
            "None",
            "12.2",
        ),
        (("<driver_version>352.39</driver_version>",), "352.39", "None"),
    ],
)
def test_the_versions_are_read_under_either_name(
    lines: tuple[str, ...], driver: str, cuda: str
) -> None:
    facts = parse_smi(log(*lines))
    assert (str(facts.driver), str(facts.cuda)) == (driver, cuda)


def test_what_a_card_does_not_say_is_unknown() -> None:
    unknown = "<pci><pci_bus_id>N/A</pci_bus_id></pci><fb_memory_usage><total>N/A</total></fb_memory_usage>"
    (gpu,) = parse_smi(
        log(f'<gpu id="N/A"><product_name>Orin (nvgpu)</product_name>{unknown}</gpu>')
    ).gpus
    assert (gpu.name, gpu.bus_id, gpu.memory_mib, gpu.mig, gpu.uuid) == (
        "Orin (nvgpu)",
        None,
        None,
        False,
        None,
    )


def test_a_driver_without_the_query_leaves_the_capability_unknown() -> None:
    text = (
        log('<gpu id="00000000:05:00.0"></gpu>')
        + 'Field "compute_cap" is not a valid field to query.\n'
    )
    assert parse_smi(text).gpus[0].compute_capability is None


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa">]><nvidia_smi_log><uuid>&a;</uuid></nvidia_smi_log>'
    assert parse_smi(bomb).gpus == ()


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.parent.name)
def test_a_posted_table_is_what_its_recording_holds(table: Path) -> None:
    recorded = table.with_suffix(".xml").read_text(encoding="utf-8")
    assert as_xml(table.read_text(encoding="utf-8")) == recorded


@pytest.mark.parametrize(
    ("text", "init"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n",
            18,
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure …",
            9,
        ),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure …", 12),
        ("Failed to initialize NVML: Unknown Error", 999),
        ("Failed to initialize NVML: Insufficient Permissions", 4),
        ("No devices were found", 0),
    ],
)
def test_a_refusal_is_the_number_of_nvml_behind_it(text: str, init: int) -> None:
    facts = parse_smi(text)
    assert (facts.init, facts.gpus, facts.fault) == (init, (), None)


def test_every_releases_refusal_of_a_card_is_read() -> None:
    address = "0000:0b:00.0"
    lines = {
        "GPU0000:0B:00.0: GPU is lost.  Reboot the system": (address, 15),
        "GPU 0000:0B:00.0: Unknown Error": (address, 999),
        "GPU1: 0000:0B:00.0: GPU is lost.": (address, 15),
        "gpu 0000:0B:00.0: Unknown Error": (address, 999),
        "GPU 00000000:0B:00.0: Not Found": (address, 999),
        "GPU0: Unknown Error": (None, 999),
    }
    read = {}
    for line in lines:
        # Each of the three answers says it.
        refused = parse_smi(f"Unable to determine the device handle for {line}\n" * 3).gpus
        read[line] = [(gpu.bus_id, gpu.error) for gpu in refused]

    assert read == {line: [card] for line, card in lines.items()}


def test_an_answer_that_is_cut_short_lists_no_card() -> None:
    assert parse_smi(A100[:400]).gpus == ()
    assert parse_smi(log('<gpu id="00000000:05:00.0">')).gpus == ()


@pytest.mark.parametrize(
    "text", ["", "ERR!", 'Field "compute_cap" is not a valid field to query.\n', "bash: nvidia-smi"]
)
def test_junk_with_a_good_exit_status_is_no_answer(text: str) -> None:
    facts = parse_smi(text)
    assert (facts.init, facts.fault, facts.gpus) == (None, "missing", ())


def test_a_program_in_a_folder_that_everyone_can_write_to_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(smi, "KNOWN_PATHS", ())
    monkeypatch.setenv("PATH", str(folder))
    folder.chmod(0o755)
    assert smi.find_smi() == str(program)
    folder.chmod(0o777)
    assert smi.find_smi() is None
    program.rename(tmp_path / "nvidia-smi")
    program.symlink_to(tmp_path / "nvidia-smi")
    assert smi.find_smi() is None


@pytest.mark.parametrize("path", ["", ".", "./", ":/no/such/folder", "/no/such/folder:", "../here"])
def test_a_program_in_the_working_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    elsewhere = [place for place in smi.KNOWN_PATHS if place.startswith("C:")]
    for name in ("nvidia-smi", *elsewhere):
        (folder / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(smi, "KNOWN_PATHS", elsewhere)
    monkeypatch.setenv("PATH", path)
    monkeypatch.chdir(folder)
    assert smi.find_smi() is None
    monkeypatch.delenv("PATH")
    assert smi.find_smi() is None


def test_a_recording_of_nvidia_smi_alone_knows_its_cards_by_name(tmp_path: Path) -> None:
    capabilities = {
        "GeForce GTX 1080": "6.1",
        "Quadro RTX 4000": "7.5",
        "NVIDIA GeForce RTX 5070 ...": "12.0",
        "GRID V100D-8Q": "7.0",
        "GeForce GTX 860M": "None",  # two chips have this name
        "NVIDIA GeForce ...": "None",
        "Graphics Device": "None",
    }
    read = dict[str, str]()
    for number, name in enumerate(capabilities):
        card = f'<gpu id="00000000:01:00.0"><product_name>{name}</product_name></gpu>'
        answer = {"nvidia-smi.xml": log("<driver_version>470.82.01</driver_version>", card)}
        (gpu,) = read_machine(source=recording(tmp_path / str(number), answer)).gpus
        read[name] = str(gpu.compute_capability)
    assert read == capabilities
