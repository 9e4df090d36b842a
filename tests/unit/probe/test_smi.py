"""nvidia-smi's texts: both headers, the query, the list, and what stands there instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.probe import smi
from gpuinstall.probe.smi import parse

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("header", "driver", "cuda"),
    [
        ("| NVIDIA-SMI 580.95.05     Driver Version: 580.95.05     CUDA Version: 13.0     |", "580.95.05", "13.0"),
        ("| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02     CUDA UMD Version: 13.3     |", "610.43.02", "13.3"),
        ("| NVIDIA-SMI 545.46      Driver Version: 546.80       CUDA Version: ERR!     |", "546.80", "None"),
        ("| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14    CUDA Version: N/A      |", "550.54.14", "None"),
        ("| NVIDIA-SMI 540.3.0     Driver Version: N/A          CUDA Version: 12.2     |", "None", "12.2"),
        ("| NVIDIA-SMI 352.39     Driver Version: 352.39         |", "352.39", "None"),
    ],
)
def test_both_spellings_of_the_header_are_read(header: str, driver: str, cuda: str) -> None:
    facts = parse(header)
    assert (str(facts.driver), str(facts.cuda)) == (driver, cuda)


def test_a_query_is_read_with_its_unknown_fields() -> None:
    (gpu,) = parse("0, NVIDIA GB10, GPU-1, 0000000F:01:00.0, 0x2E1210DE, [N/A], [N/A], 12.1\n").gpus
    assert (gpu.name, gpu.uuid, gpu.bus_id, gpu.pci_id) == ("NVIDIA GB10", "GPU-1", "000f:01:00.0", "10de:2e12")
    assert (gpu.memory_mib, gpu.mig, str(gpu.compute_capability)) == (None, False, "12.1")


def test_a_query_of_a_driver_without_compute_cap_is_read() -> None:
    (gpu,) = parse("0, Tesla K80, GPU-1, 00000000:05:00.0, 0x102D10DE, 11441, [N/A]\n").gpus
    assert (gpu.memory_mib, gpu.compute_capability) == (11441, None)


@pytest.mark.parametrize(
    ("text", "init"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n", 18),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure …", 9),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure …", 12),
        ("Failed to initialize NVML: Unknown Error", 999),
        ("Failed to initialize NVML: Insufficient Permissions", 4),
        ("No devices were found", 0),
    ],
)
def test_a_refusal_is_the_number_of_nvml_behind_it(text: str, init: int) -> None:
    facts = parse(text)
    assert (facts.init, facts.gpus, facts.fault) == (init, (), None)


def test_a_lost_card_is_one_that_nvml_refuses() -> None:
    text = "Unable to determine the device handle for GPU0000:0B:00.0: GPU is lost.  Reboot the system\n"
    (gpu,) = parse(text).gpus
    assert (gpu.bus_id, gpu.error) == ("0000:0b:00.0", 15)


def test_lines_that_only_look_like_a_query_are_no_cards() -> None:
    assert parse('0,,,,,,,\n0, \0, x,,,,,\n1, "' + "a" * 200_000 + '", c, d, e, f, g, h\n').gpus == ()


@pytest.mark.parametrize(
    "text", ["", "ERR!", 'Field "compute_cap" is not a valid field to query.\n', "bash: nvidia-smi"]
)
def test_junk_with_a_good_exit_status_is_no_answer(text: str) -> None:
    facts = parse(text)
    assert (facts.init, facts.fault, facts.gpus) == (None, "missing", ())


def test_a_program_in_a_folder_that_everyone_can_write_to_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(smi, "PLACES", ())
    monkeypatch.setenv("PATH", str(folder))
    folder.chmod(0o755)
    assert smi.find_smi() == str(program)
    folder.chmod(0o777)
    assert smi.find_smi() is None
    program.rename(tmp_path / "nvidia-smi")
    program.symlink_to(tmp_path / "nvidia-smi")
    assert smi.find_smi() is None


@pytest.mark.parametrize("path", ["", ".", "./", ":/no/such/folder", "/no/such/folder:", "../here"])
def test_a_program_in_the_working_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    elsewhere = [place for place in smi.PLACES if place.startswith("C:")]
    for name in ("nvidia-smi", *elsewhere):
        (folder / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(smi, "PLACES", elsewhere)
    monkeypatch.setenv("PATH", path)
    monkeypatch.chdir(folder)
    assert smi.find_smi() is None
    monkeypatch.delenv("PATH")
    assert smi.find_smi() is None
