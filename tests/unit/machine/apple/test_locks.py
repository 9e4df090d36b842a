"""A lock for Macs, made by uv of an index that has other makers' builds too; installed as uv would on a Mac; proven."""

import json
import sys
from dataclasses import replace

import pytest
import uv

from gpuinstall.base import process
from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.request import Request
from gpuinstall.lock.cover import cover
from gpuinstall.lock.fit import Fit, fit
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.target import Target
from gpuinstall.lock.write import LockOptions, write_locks
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.verify.runner import verify_environment
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.lab.environments import packages
from tests.lab.index import StandInIndex
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel

PYTHON = f"3.{sys.version_info.minor}"
CPYTHON = f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}"
REQUEST = Request(python=PYTHON)
MAC = machine_in_words(("M3 Max",))


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The locks of a Mac and of a target for NVIDIA's GPUs, of one index."""
    make_wheel(
        tmp_path / "index" / "whl" / "cpu", "torch", "2.11.0", f"{CPYTHON}-macosx_11_0_arm64"
    )
    make_wheel(
        tmp_path / "index" / "whl" / "cpu",
        "torch",
        "2.11.0+cpu",
        f"{CPYTHON}-manylinux_2_28_x86_64",
    )
    make_wheel(
        tmp_path / "index" / "whl" / "cu130",
        "torch",
        "2.11.0+cu130",
        f"{CPYTHON}-manylinux_2_28_x86_64",
    )
    make_wheel(
        tmp_path / "index" / "simple" / "torch",
        "torch",
        "2.11.0",
        f"{CPYTHON}-manylinux_2_28_x86_64",
    )
    with StandInIndex(tmp_path / "index") as index:
        variables = {"UV_CACHE_DIR": str(tmp_path / "uv"), "XDG_CACHE_HOME": str(tmp_path / "ours")}
        for name, value in {**index.environment(), **variables}.items():
            monkeypatch.setenv(name, value)
        catalog = replace(frozen_catalog(), torch_index=index.torch_index)
        asked = (
            LockRequest(MAC, REQUEST, catalog, builds_here=False),
            LockRequest.for_target(Target.parse("cu130"), REQUEST, catalog),
        )
        with open_session(
            read_sources(index.torch_index, index.environment(), tmp_path), SilentReporter()
        ) as session:
            yield [written.lock for written in write_locks(LockOptions(tmp_path, asked), session)]


def test_a_macs_lock_serves_its_gpu_and_uv_takes_it_for_macs_alone(made, tmp_path):
    mac, cuda = made

    assert (mac.name, mac.versions["torch"]) == ("pylock.cpu-macos-arm64.toml", "2.11.0")
    assert "macosx_11_0_arm64" in mac.files[0].url
    assert mac.files[0].sha256
    assert mac.record.floors == {"macos": "14.0"}
    found = fit(mac, MAC, REQUEST, frozen_catalog())
    assert isinstance(found, Fit)
    assert found.plan.status == "ok"
    assert isinstance(fit(cuda, MAC, REQUEST, frozen_catalog()), Rejection)
    assert isinstance(fit(mac, Machine("linux", "x86_64"), REQUEST, frozen_catalog()), Rejection)
    old = replace(MAC, makers={"apple": {"macos": "11.7"}})
    assert isinstance(fit(mac, old, REQUEST, frozen_catalog()), Rejection)

    lock = next(tmp_path.rglob("pylock.cpu-macos-arm64.toml"))
    command = [
        uv.find_uv_bin(),
        "pip",
        "install",
        "-q",
        "--target",
        str(tmp_path / "there"),
        "--python",
        sys.executable,
    ]
    there = process.run([*command, "--python-platform", "aarch64-apple-darwin", "-r", str(lock)])
    assert there.status == 0, there.err
    assert (tmp_path / "there" / "torch-2.11.0.dist-info").is_dir()
    here = process.run([*command, "-r", str(lock)])
    assert here.status != 0


def test_two_macs_are_covered_by_one_target():
    found = cover([LockRequest(MAC, REQUEST, frozen_catalog())] * 2)

    assert [target.filename for target in found] == ["pylock.cpu-macos-arm64.toml"]


@pytest.mark.parametrize(
    ("plays", "status"), [({}, "passed"), ({"failed": {"matmul-float32": "off by 3"}}, "failed")]
)
def test_kernels_are_tried_on_the_gpu_and_not_on_the_cpu(plays, status, tmp_path, monkeypatch):
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
    assert (device.label, device.name, verdict.status) == ("GPU 0", "Apple M3 Max", status)
    names = {check.name for check in device.checks}
    assert {"matmul-float32", "convolution", "optimizer-step"} <= names
    assert not {"copies", "numpy"} & names
