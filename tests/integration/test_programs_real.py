"""Tests of PyPI packages with torch from any source."""

import sys

import pytest
from packaging.version import Version

from gpuinstall.base import process
from gpuinstall.lock.file.lock import parse
from tests.lab.workshop import Workshop

pytestmark = [pytest.mark.network, pytest.mark.heavy]

PYTHON = "3.12"


class ShippedWorkshop(Workshop):
    """A workshop with the shipped catalog."""

    def run(self, *arguments):
        """Run ``gpuinstall`` with the shipped catalog."""
        return process.run(
            [sys.executable, "-m", "gpuinstall", *arguments],
            env=self.environment,
            cwd=self.folder,
        )


@pytest.fixture
def workshop(tmp_path):
    return ShippedWorkshop.made(tmp_path, {"PIP_FIND_LINKS": ""})


@pytest.mark.parametrize(
    ("words", "name"),
    [(("vllm",), "vllm"), (("torch", "vllm"), "vllm"), (("sglang",), "sglang")],
)
def test_locked_version_is_not_older_than_with_uv(workshop, words, name):
    machine = ("--gpu", "H100", "--driver", "580.95.05", "--python", PYTHON)
    workshop.document("lock", *words, *machine)
    (lock,) = workshop.folder.glob("pylock.*.toml")
    found = parse("x", lock.read_text("utf-8"))
    assert Version(found.versions[name]) >= Version(
        {"vllm": "0.32.0", "sglang": "0.5.10"}[name]
    )
    assert all(
        file.name.endswith(".whl") for file in found.files if file.package == name
    )
