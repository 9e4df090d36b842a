"""A lock for AMD's GPUs, made by uv of an index that has other makers' builds too; exported, and put to the proof."""

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
from gpuinstall.export.dockerfile import dockerfile
from gpuinstall.lock.fit import Fit, best, fit
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.target import Target
from gpuinstall.lock.write import LockOptions, write_locks
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.verify.devices import device_targets
from gpuinstall.verify.runner import verify_environment
from tests.frozen import frozen_catalog
from tests.lab.environments import packages
from tests.lab.index import StandInIndex
from tests.lab.stub_torch import modules
from tests.lab.wheels import make_wheel
from tests.unit.machine.amd.test_builds import amd

PYTHON = f"3.{sys.version_info.minor}"
TAGS = f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}-manylinux_2_28_x86_64"
REQUEST = Request(python=PYTHON)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The locks of a machine with AMD's GPU and of the targets for NVIDIA's and the CPU, of one index."""
    for tag in ("rocm7.2", "cu130", "cpu"):
        make_wheel(tmp_path / "index" / "whl" / tag, "torch", f"2.11.0+{tag}", TAGS)
    make_wheel(tmp_path / "index" / "simple" / "torch", "torch", "2.11.0", TAGS)
    with StandInIndex(tmp_path / "index") as index:
        variables = {"UV_CACHE_DIR": str(tmp_path / "uv"), "XDG_CACHE_HOME": str(tmp_path / "ours")}
        for name, value in {**index.environment(), **variables}.items():
            monkeypatch.setenv(name, value)
        catalog = replace(frozen_catalog(), torch_index=index.torch_index)
        asked = (
            LockRequest(
                amd("gfx1100"), replace(REQUEST, backend="rocm7.2"), catalog, builds_here=False
            ),
            *(
                LockRequest.for_target(Target.parse(text), REQUEST, catalog)
                for text in ("cu130", "cpu")
            ),
        )
        with open_session(
            read_sources(index.torch_index, index.environment(), tmp_path), SilentReporter()
        ) as session:
            yield [written.lock for written in write_locks(LockOptions(tmp_path, asked), session)]


def test_each_machine_takes_its_makers_lock_and_plain_uv_installs_it(made, tmp_path):
    rocm, cuda, _ = made
    catalog = frozen_catalog()

    assert (rocm.name, rocm.versions["torch"]) == ("pylock.rocm7-2.toml", "2.11.0+rocm7.2")
    assert "/whl/rocm7.2/" in rocm.files[0].url
    assert rocm.files[0].sha256
    assert "gfx1100" in rocm.record.architectures
    fits = [fit(lock, amd("gfx1100"), REQUEST, catalog) for lock in made]
    found = best(fits, amd("gfx1100"), REQUEST, catalog)
    assert found is not None
    assert found.lock.target == "rocm7-2"
    assert isinstance(fit(rocm, amd("gfx1031"), REQUEST, catalog), Rejection)
    assert isinstance(fit(cuda, amd("gfx1100"), REQUEST, catalog), Rejection)
    assert not isinstance(fit(rocm, Machine("linux", "x86_64"), REQUEST, catalog), Fit)

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
    lock, python = next(tmp_path.rglob("pylock.rocm7-2.toml")), tmp_path / "env" / "bin" / "python"
    finished = process.run([uv.find_uv_bin(), "pip", "sync", "-q", "--python", python, lock])
    assert finished.status == 0, finished.err
    assert (packages(tmp_path / "env") / "torch-2.11.0+rocm7.2.dist-info").is_dir()


def test_the_image_is_given_the_devices_and_their_group(made):
    text = dockerfile(made[0])

    assert "--device /dev/kfd --device /dev/dri --group-add $(stat -c %g /dev/kfd) torch" in text
    assert "nvidia" not in text.lower()


def test_kernels_run_on_the_card_that_they_are_meant_for(tmp_path, monkeypatch):
    machine = amd("gfx1100", "gfx1201")
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
    for path, text in modules("2.14.1+rocm7.2", "rocm7.2", "gfx1100", "gfx1201").items():
        (packages(tmp_path / "env") / path).parent.mkdir(exist_ok=True)
        (packages(tmp_path / "env") / path).write_text(text)
    (tmp_path / "verdict.json").write_text(json.dumps({"*": {"architecture": "gfx1100"}}))
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))

    verdict = verify_environment(tmp_path / "env" / "bin" / "python", machine)

    assert (verdict.status, verdict.environment.backend) == ("passed", "rocm7.2")
    said = {check.name: check.message for check in verdict.devices[0].checks}
    assert said["architectures"] == "gfx1100 runs gfx1100"
    targets = device_targets(machine, kind="rocm", gpus=None, environ={})
    assert [(target.device, target.environment) for target in targets] == [
        ("cuda", {"HIP_VISIBLE_DEVICES": "0"}),
        ("cuda", {"HIP_VISIBLE_DEVICES": "1"}),
    ]
