import os
import sysconfig
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import UsageError
from gpuinstall.cli.main import run_command_line
from gpuinstall.export.dockerfile import (
    format_dockerfile,
    format_image_dockerfile,
    select_image_locks,
)
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, source, wheel

LAB = wheel("jupyterlab", "4.5.0")
LOCKS = [cuda_lock("cu126", LAB), cuda_lock("cu130", LAB)]
WINDOWS = lock("cu130-windows-x86_64", wheel("torch", "2.14.1"))
BUILT = cuda_lock("cu126", source("flash-attn", "2.9"))


@pytest.mark.heavy
@pytest.mark.skipif(os.name == "nt", reason="needs hadolint")
def test_dockerfile_passes_linter(tmp_path):
    texts = {
        "cuda": format_dockerfile(cuda_lock()),
        "cpu": format_dockerfile(cpu_lock()),
        "jupyter": format_dockerfile(cuda_lock(), ["jupyter"]),
        "built": format_dockerfile(BUILT, ["jupyter"]),
        "any": format_image_dockerfile(LOCKS),
        "any-jupyter": format_image_dockerfile(LOCKS, ["jupyter"]),
        "any-ssh": format_image_dockerfile(LOCKS, ["ssh"]),
        "any-both": format_image_dockerfile(LOCKS, ["ssh", "jupyter"]),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = process.run([program, "--no-color", *texts], cwd=tmp_path)
    assert (done.out, done.err) == ("", "")


def test_dockerfile_builds_no_wheel_by_url():
    hashes = {"sha256": "0" * 64}
    address = "https://files.example/d-1-py3-none-any.whl?a=1"
    by_url = {"name": "d", "archive": {"url": address, "hashes": hashes}}
    assert format_dockerfile(cuda_lock("cu126", by_url)) == format_dockerfile(
        cuda_lock("cu126")
    )


def test_dockerfile_contains_locks_of_one_platform():
    arm = cuda_lock("cu130-linux-aarch64")
    assert select_image_locks([*LOCKS, WINDOWS, arm]) == LOCKS
    assert "build --platform linux/arm64" in format_image_dockerfile(
        select_image_locks([arm])
    )
    with pytest.raises(UsageError, match="is not for Linux"):
        select_image_locks([WINDOWS])


def test_dockerfile_export_succeeds_or_is_rejected(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for one in (*LOCKS, WINDOWS):
        (tmp_path / one.name).write_text(one.text, "utf-8")
    words = ["export", "dockerfile", "--any", "--with", "ssh", "-o", "Dockerfile"]
    assert run_command_line(words) == 0
    assert (tmp_path / "Dockerfile").read_text("utf-8") == format_image_dockerfile(
        LOCKS, ["ssh"]
    )
    assert (
        f"omitted from the image because they are for another platform: {WINDOWS.name}"
        in capsys.readouterr().err
    )
    one_lock = ["export", "dockerfile", "--lock", LOCKS[0].name, "--with", "ssh"]
    assert run_command_line(one_lock) == 2
    assert " --any\n" in capsys.readouterr().err
