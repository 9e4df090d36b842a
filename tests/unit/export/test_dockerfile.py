from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.export.dockerfile import UV, dockerfile
from gpuinstall.lock.lock import parse
from tests.unit.export.locks import cpu_lock, cuda_lock, dockerfile_findings, lock, source, wheel

TEXTS = {
    "cuda": dockerfile(cuda_lock()),
    "cpu": dockerfile(cpu_lock()),
    "jupyter": dockerfile(cuda_lock(), ["jupyter"]),
    "compiled": dockerfile(cuda_lock("cu126", source("flash-attn", "2.9")), ["jupyter"]),
}


@pytest.mark.heavy
def test_the_linter_for_dockerfiles_finds_nothing(tmp_path):
    assert dockerfile_findings(TEXTS, tmp_path) == ""


def test_a_cuda_base_is_taken_only_where_something_is_compiled():
    assert "nvidia/cuda" not in TEXTS["cuda"]
    assert (
        "# Compiled with the toolkit: flash-attn\nFROM nvidia/cuda:12.6.0-devel-ubuntu22.04 AS build"
        in (TEXTS["compiled"])
    )
    assert TEXTS["compiled"].count("FROM nvidia/cuda") == 1
    assert "nvidia/cuda" not in dockerfile(cpu_lock())


def test_the_uv_of_the_image_is_the_pinned_one():
    pins = Path(__file__).parents[3] / "lockfiles" / "uv.txt"
    assert pins.read_text("utf-8").startswith(f"uv=={UV} ")


def test_a_lock_that_does_not_say_its_python_is_refused():
    text = cuda_lock().text.replace('requires-python = "==3.12.*"', 'requires-python = ">=3.10"')
    with pytest.raises(UsageError, match="which Python"):
        dockerfile(parse("pylock.cu126.toml", text))


def test_the_image_is_built_for_the_locks_platform():
    arm = cuda_lock("cu130-linux-aarch64")
    assert "docker build --platform linux/amd64 " in TEXTS["cuda"]
    assert "docker build --platform linux/arm64 " in dockerfile(arm)


@pytest.mark.parametrize("target", ["cu130-windows-x86_64", "cpu-macos-arm64"])
def test_a_lock_for_another_system_is_refused(target):
    with pytest.raises(UsageError, match="is not for Linux"):
        dockerfile(lock(target, wheel("torch", "2.14.1")))


@pytest.mark.parametrize(
    "mine",
    [
        {"name": "mine", "directory": {"path": "mine"}},
        {
            "name": "mine",
            "vcs": {"type": "git", "url": "https://git.example/mine", "commit-id": "0" * 40},
        },
    ],
)
def test_a_package_that_the_image_cannot_have_is_refused_by_name(mine):
    with pytest.raises(UsageError, match=r"mine in pylock\.cpu\.toml"):
        dockerfile(lock("cpu", wheel("torch", "2.14.1+cpu"), mine))
