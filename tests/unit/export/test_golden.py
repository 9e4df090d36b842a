"""Every format as a whole, read by eye once; a change shows in the diff of these files.

To write them again: ``python -m tests.unit.export.test_golden``.
"""

from pathlib import Path

import pytest

from gpuinstall.export.dockerfile import dockerfile
from gpuinstall.export.formats import conda, pixi, requirements
from gpuinstall.export.uv_project import groups, patched
from tests.unit.export.locks import FAMILY, cpu_lock, cuda_lock, source

GOLDEN = Path(__file__).with_name("golden")
LOCKS = [cuda_lock(), cuda_lock("cu130-windows-x86_64"), cuda_lock("cu130"), cpu_lock()]
PROJECT = '[project]\nname = "x"\nversion = "0"\n\n[tool.uv.sources]\ntorch = { index = "theirs" }  # theirs\n'
TEXTS = {
    "requirements.txt": requirements(cuda_lock(), FAMILY),
    "environment.yml": conda(cuda_lock(), FAMILY),
    "pixi.toml": pixi(cuda_lock(), FAMILY),
    "pyproject.toml": patched(PROJECT, groups(LOCKS, FAMILY), "https://index.example/whl"),
    "Dockerfile": dockerfile(cuda_lock()),
    "Dockerfile.cpu": dockerfile(cpu_lock()),
    "Dockerfile.compiled": dockerfile(
        cuda_lock("cu126", source("flash-attn", "2.9")), jupyter=True
    ),
    "Dockerfile.proven": dockerfile(cuda_lock(), proof=True),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_format_is_what_was_read_by_eye(name):
    assert (GOLDEN / name).read_text(encoding="utf-8") == TEXTS[name]


def test_no_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == TEXTS.keys()


if __name__ == "__main__":
    for name, text in TEXTS.items():
        (GOLDEN / name).write_text(text, encoding="utf-8")
