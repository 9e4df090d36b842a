"""The GPU of a Mac, put to the proof by kernels of a stand-in for torch."""

import json
import sys

import pytest
import uv

from gpuinstall.base import process
from gpuinstall.machine.words import machine_in_words
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import packages
from tests.lab.stub_torch import modules

MAC = machine_in_words(("M3 Max",))


@pytest.mark.parametrize(
    ("plays", "status"),
    [({}, "passed"), ({"failed": {"matmul-float32": "off by 3"}}, "failed")],
)
def test_kernels_are_tried_on_the_gpu_and_not_on_the_cpu(
    plays, status, tmp_path, monkeypatch
):
    process.run(
        [
            uv.find_uv_bin(),
            "venv",
            "-q",
            "--no-project",
            "--python",
            sys.executable,
            tmp_path / "env",
        ]
    )
    for path, text in modules("2.11.0", "cpu").items():
        (packages(tmp_path / "env") / path).parent.mkdir(exist_ok=True)
        (packages(tmp_path / "env") / path).write_text(text)
    (tmp_path / "verdict.json").write_text(json.dumps({"*": plays}))
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))

    verdict = verify_environment(tmp_path / "env" / "bin" / "python", MAC)

    (device,) = verdict.devices
    assert (device.label, device.name, verdict.status) == (
        "GPU 0",
        "Apple M3 Max",
        status,
    )
    names = {check.name for check in device.checks}
    assert {"matmul-float32", "convolution", "optimizer-step"} <= names
    assert not {"copies", "numpy"} & names
