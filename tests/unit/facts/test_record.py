"""A recording: what was read is written down, and nothing that names the machine or its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.facts.source import Recording, private_words, recorded_name, scrubbed

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE = private_words("gpu-07.cluster.example", "ada", "/home/ada")


def test_a_recording_reads_as_the_machine_did(tmp_path: Path) -> None:
    device = tmp_path / "sys" / "bus" / "0000%3A01%3A00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n", encoding="utf-8")
    (tmp_path / "sys" / "driver").write_text("../../bus/pci/drivers/nvidia", encoding="utf-8")
    (tmp_path / "sys" / "node").write_text("denied", encoding="utf-8")
    (tmp_path / "environment.json").write_text('{"CUDA_VISIBLE_DEVICES": "0"}', encoding="utf-8")
    recording = Recording(tmp_path)

    assert recording.names("/sys/bus") == ("0000:01:00.0",)
    assert recording.text("/sys/bus/0000:01:00.0/vendor") == "0x10de\n"
    assert recording.text("/sys/missing") is None
    assert recording.link("/sys/driver") == "../../bus/pci/drivers/nvidia"
    assert recording.access("/sys/node") == "denied"
    assert recording.variable("CUDA_VISIBLE_DEVICES") == "0"
    assert recording.variable("SLURM_JOB_ID") is None


def test_an_answer_that_was_not_recorded_is_empty_and_nobody_is_asked(tmp_path: Path) -> None:
    def ask() -> str:
        raise AssertionError

    assert Recording(tmp_path).answer("nvml.txt", ask) == ""


def test_names_that_some_file_systems_refuse_are_encoded() -> None:
    assert (
        recorded_name("/sys/bus/pci/devices/0000:01:00.0/class")
        == "sys/bus/pci/devices/0000%3A01%3A00.0/class"
    )


def test_serials_and_names_are_taken_out() -> None:
    text = (
        "\t\t<serial>1562721004031</serial>\n"
        "\t\t<board_part_number>692-2G506-0200-003</board_part_number>\n"
        "\t\t<uuid>GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16</uuid>\n"
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@gpu-07)\n"
        "/home/ada/.local/lib ada@gpu-07 gpu-07.cluster.example canada\n"
    )
    assert scrubbed(text, PRIVATE) == (
        "\t\t<serial>removed</serial>\n"
        "\t\t<board_part_number>removed</board_part_number>\n"
        "\t\t<uuid>GPU-7fdaf0a5-179b-f636-d15d-daf243e3ff16</uuid>\n"
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder@host)\n"
        "/home/user/.local/lib user@host host canada\n"
    )


def test_what_runs_on_the_cards_and_whose_it_is_is_taken_out() -> None:
    process = "<process_info>\n<pid>4711</pid>\n<process_name>/home/bob/secret/python</process_name>\n</process_info>"
    text = f"<gpu>\n<processes>\n{process}\n</processes>\n</gpu>\n<gpu>\n<processes>\n{process}"
    assert (
        scrubbed(text, ())
        == "<gpu>\n<processes></processes>\n</gpu>\n<gpu>\n<processes></processes>"
    )
    assert (
        scrubbed("LD_LIBRARY_PATH=/home/bob/lib:/home/eve", ())
        == "LD_LIBRARY_PATH=/home/user/lib:/home/user"
    )


def test_the_administrators_own_name_says_nothing() -> None:
    assert private_words("gpu-07", "root", "/root") == (("gpu-07", "host"), ("gpu-07", "host"))


@pytest.mark.parametrize("name", ["ubuntu", "nvidia", "jetson"])
def test_a_name_that_images_come_with_leaves_the_facts_as_they_are(name: str) -> None:
    facts = "ID=ubuntu\nnvidia,tegra234\n../drivers/nvidia\nupdates/dkms/nvidia.ko\njetson\n"
    assert scrubbed(facts, private_words(name, name, f"/home/{name}")) == facts


@pytest.mark.parametrize("text", ["", "x", "[]", "[" * 100_000, '{"CUDA_VISIBLE_DEVICES": null}'])
def test_recorded_variables_that_cannot_be_read_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "environment.json").write_text(text, encoding="utf-8")
    assert Recording(tmp_path).variable("CUDA_VISIBLE_DEVICES") is None
