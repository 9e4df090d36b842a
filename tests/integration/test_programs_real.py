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


def test_targets_for_two_architectures_lock_same_versions(
    workshop,
):
    (workshop.folder / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\ndependencies = ["vllm>=0.30"]\n',
        "utf-8",
    )
    words = ("--target", "cu130", "--target", "cu130-linux-aarch64", "--python", PYTHON)
    made = workshop.document("lock", *words)["data"]
    first, second = (
        parse("x", workshop.lock(f"pylock.{target}.toml")).versions
        for target in ("cu130", "cu130-linux-aarch64")
    )
    assert Version(first["vllm"]) >= Version("0.30")
    assert first["torch"].partition("+")[0] == second["torch"].partition("+")[0]
    assert {
        name: first[name]
        for name in first.keys() & second.keys()
        if "+" not in first[name]
    } == {
        name: second[name]
        for name in first.keys() & second.keys()
        if "+" not in first[name]
    }
    assert made["differences"] == {}


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


def test_xformers_version_matches_the_gpu(
    workshop,
):
    workshop.document(
        "lock",
        "xformers",
        "--gpu",
        "V100",
        "--driver",
        "535.183.01",
        "--python",
        PYTHON,
    )
    found = parse("x", workshop.lock("pylock.cu126.toml")).versions
    assert found["xformers"] == "0.0.30"
    assert found["torch"].partition("+")[0] == "2.7.0"
