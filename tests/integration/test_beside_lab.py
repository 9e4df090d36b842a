"""pip and uv beside us: what they change of torch is seen at the next command, and one command brings it back."""

import json
import os

import pytest

from gpuinstall.base import process, uv
from tests.lab.cases import mostly_heavy
from tests.lab.driver import RTX_4090
from tests.lab.wheels import make_wheel


@pytest.fixture
def workshop(workshop, stand_in_folder, play):
    play(RTX_4090)
    make_wheel(stand_in_folder / "simple", "torch", "2.15.0", requires=["nvidia-cublas"])
    make_wheel(stand_in_folder / "simple", "nvidia-cublas", "13.1")
    made = workshop
    made.document("install", "torch==2.13.0", "numpy")
    return made


def by_uv(workshop, *words):
    python = workshop.folder / ".venv" / "bin" / "python"
    done = process.run(
        [uv.uv(), "pip", *words, "--python", python], env=workshop.environment, cwd=workshop.folder
    )
    assert done.ok, done.err


def by_pip(workshop, *words):
    """As somebody does who lifted the constraints."""
    python, index = (
        workshop.folder / ".venv" / "bin" / "python",
        workshop.environment["UV_DEFAULT_INDEX"],
    )
    done = process.run(
        [python, "-m", "pip", *words, "--index-url", index],
        env={**workshop.environment, "PIP_CONFIG_FILE": "/dev/null"},
        cwd=workshop.folder,
    )
    assert done.ok, done.err


def packages(workshop):
    return {
        path.name for path in (workshop.folder / ".venv").glob("lib/*/site-packages/*.dist-info")
    }


@pytest.mark.parametrize("by", mostly_heavy([by_uv, by_pip], [by_uv]), ids=["uv", "pip"])
def test_a_torch_that_was_replaced_is_seen_by_every_command_and_brought_back_by_one(workshop, by):
    before, lock = packages(workshop), workshop.lock("pylock.cu126.toml")
    assert callable(by)
    by(workshop, "install", "torch==2.15.0", "cowsay")
    change = "torch is 2.15.0 instead of 2.13.0+cu126"

    refused = workshop.run("run", "python", "-c", "print('it ran')")
    assert (refused.status, refused.out) == (6, "")
    assert f"error: {change}" in " ".join(refused.err.split())
    assert "do gpuinstall sync" in " ".join(refused.err.split())
    stopped = workshop.refusal("install", exit_code=2)
    assert (stopped["code"], stopped["message"]) == ("users-packages", change)
    assert stopped["hint"].startswith("gpuinstall sync   #")
    findings = json.loads(workshop.run("doctor", "--json").out)["data"]["findings"]
    found = {one["code"]: one for one in findings}["changed-by-hand"]
    assert (found["title"], "gpuinstall sync" in found["fix"]) == (change, True)

    restored = workshop.run("sync")
    assert restored.status == 0, restored.err
    assert change in " ".join(restored.err.split())
    assert packages(workshop) == before
    assert workshop.lock("pylock.cu126.toml") == lock
    assert (
        workshop.run("run", "python", "-c", "import torch; print(torch.__version__)").out
        == "2.13.0+cu126\n"
    )
    kept = workshop.folder / ".venv.gpuinstall" / "previous"
    assert list(kept.glob("lib/*/site-packages/cowsay"))


@pytest.mark.heavy
def test_a_torch_that_an_installer_damaged_is_never_called_proven(workshop):
    site = next((workshop.folder / ".venv").glob("lib/*/site-packages"))
    module = site / "torch" / "__init__.py"
    record = next(site.glob("torch-*.dist-info/RECORD"))
    module.unlink()
    os.utime(record)
    refused = workshop.run("run", "true")
    assert refused.status == 6
    assert "torch 2.13.0+cu126 is damaged: torch/__init__.py is missing or truncated" in " ".join(
        refused.err.split()
    )
    done = workshop.run("install")
    assert done.status == 0, done.err
    assert "Changed torch 2.13.0+cu126 is damaged" in " ".join(done.err.split())
    assert workshop.run("run", "true").status == 0
    module.write_bytes(module.read_bytes()[:-1])  # which is the same file in uv's cache
    os.utime(record)
    broken = workshop.refusal("install", exit_code=4)
    assert (broken["code"], "uv cache clean torch" in broken["hint"]) == ("cache-damaged", True)


RESTORING = [("sync",), ("sync", "--replace"), ("install",)]


@pytest.mark.parametrize("words", mostly_heavy(RESTORING, RESTORING[:1]), ids=" ".join)
def test_a_lost_module_of_a_proven_torch_is_named_and_brought_back(workshop, words):
    [module] = (workshop.folder / ".venv").glob("lib/*/site-packages/torch/version.py")
    module.unlink()
    lost = "torch 2.13.0+cu126 is damaged: torch/version.py is missing or truncated"

    refused = workshop.run("run", "true")
    told = " ".join(refused.err.split())
    assert (refused.status, f"error: {lost}" in told, "do gpuinstall sync #" in told) == (
        6,
        True,
        True,
    )
    dry = workshop.run(*words, "--dry-run")
    assert (dry.status, "already up to date" in dry.out, lost in " ".join(dry.err.split())) == (
        0,
        False,
        True,
    )
    restored = workshop.run(*words)
    assert (restored.status, f"Changed {lost}" in " ".join(restored.err.split())) == (0, True)
    assert "Verified" in restored.err
    assert module.is_file()
    assert "already up to date" in workshop.run(*words).out
    assert workshop.run("run", "python", "-c", "import torch.version").status == 0
