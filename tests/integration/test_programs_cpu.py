"""Tests of PyPI packages with torch on the CPU."""

import os
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.lab.processes import succeed

pytestmark = [pytest.mark.network, pytest.mark.heavy]

OPTIONS = ("torch==2.13.0", "--backend", "cpu", "--python", "3.11")
#: Common programs, and code to run for each; none requires torchvision.
PROGRAMS = {
    "transformers": "from transformers import BertConfig, BertModel; BertModel(BertConfig(num_hidden_layers=1))",
    "accelerate": "import torch; from accelerate import Accelerator; Accelerator().prepare(torch.nn.Linear(2, 2))",
    "sentence-transformers": "from sentence_transformers import SentenceTransformer",
    "lightning": "from lightning import Trainer; Trainer(logger=False)",
    "peft": "from peft import LoraConfig, get_peft_model",
    "diffusers": "from diffusers import DDPMScheduler; DDPMScheduler().set_timesteps(10)",
}


@pytest.fixture(autouse=True)
def torch():
    """Skip the tests without a wheel of the real torch."""
    wheels = Path(os.environ.get("PIP_FIND_LINKS", ""))
    if not any(wheels.glob("torch-2.13.0+cpu-cp311-*linux*_x86_64.whl")):
        pytest.skip("no wheel of torch 2.13.0+cpu in PIP_FIND_LINKS")


def test_locked_packages_run_with_gpuinstall_uv_and_pip(tmp_path):
    caches = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "UV_CACHE_DIR": str(tmp_path / "uv-cache"),
    }
    variables = {**os.environ, **caches}

    def run(*words):
        succeed(words, env=variables, cwd=tmp_path, seconds=1800)

    run(*GPUINSTALL, "install", *PROGRAMS, *OPTIONS)
    lock = tmp_path / "pylock.cpu.toml"
    ours, by_uv, by_pip = (
        tmp_path / name / "bin/python" for name in (".venv", "by-uv", "by-pip")
    )
    for python in (by_uv, by_pip):
        run(ours.resolve(), "-m", "venv", "--without-pip", python.parent.parent)
    run(uv.uv(), "pip", "sync", "-q", "--python", by_uv, lock)
    pip = (sys.executable, "-m", "pip", "--python", by_pip)
    run(*pip, "install", "-q", "--no-compile", "-r", lock)

    failures = []
    for python in (ours, by_uv, by_pip):
        for program, code in PROGRAMS.items():
            done = process.run([python, "-c", code], cwd=tmp_path, seconds=600)
            if not done.ok:
                failures.append(f"{python}: {program}: {done.err}")
    assert failures == []
