"""A recording of the tests reads as the machine did."""

import pytest

from tests.lab.recorded import Recording, recorded_name


def test_a_recording_reads_as_the_machine_did(tmp_path):
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


def test_an_answer_that_was_not_recorded_is_empty_and_nobody_is_asked(tmp_path):
    def ask():
        raise AssertionError

    assert Recording(tmp_path).answer("nvml.txt", ask) == ""


def test_names_that_some_file_systems_refuse_are_encoded():
    assert (
        recorded_name("/sys/bus/pci/devices/0000:01:00.0/class")
        == "sys/bus/pci/devices/0000%3A01%3A00.0/class"
    )


@pytest.mark.parametrize("text", ["", "x", "[]", "[" * 100_000, '{"CUDA_VISIBLE_DEVICES": null}'])
def test_recorded_variables_that_cannot_be_read_are_none(tmp_path, text):
    (tmp_path / "environment.json").write_text(text, encoding="utf-8")
    assert Recording(tmp_path).variable("CUDA_VISIBLE_DEVICES") is None
