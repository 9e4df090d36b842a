import sysconfig
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.export.dockerfile import UV, dockerfile
from tests.unit.export import test_any_image
from tests.unit.export.locks import cpu_lock, cuda_lock, source

TEXTS = {
    "cuda": dockerfile(cuda_lock()),
    "cpu": dockerfile(cpu_lock()),
    "jupyter": dockerfile(cuda_lock(), ["jupyter"]),
    "built": dockerfile(cuda_lock("cu126", source("flash-attn", "2.9")), ["jupyter"]),
}


@pytest.mark.heavy
def test_the_linter_for_dockerfiles_finds_nothing(tmp_path):
    texts = TEXTS | test_any_image.TEXTS
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = process.run([program, "--no-color", *texts], cwd=tmp_path)
    assert (done.out, done.err) == ("", "")


def test_the_uv_of_the_image_is_the_pinned_one():
    pins = Path(__file__).parents[3] / "lockfiles" / "uv.txt"
    assert pins.read_text("utf-8").startswith(f"uv=={UV} ")
