from __future__ import annotations

from pathlib import Path

from gpuinstall.export.constraints import constraints, pip_configuration
from tests.unit.export.locks import FAMILY, cuda_lock


def pins(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_the_family_alone_is_held_each_to_its_very_build() -> None:
    assert pins(constraints(cuda_lock(), FAMILY)) == ["torch==2.14.1+cu126", "triton==3.8.0"]


def test_the_file_says_how_to_lift_it() -> None:
    assert "pip.conf" in constraints(cuda_lock(), FAMILY).splitlines()[0]


def test_a_folder_with_spaces_is_one_word_for_pip() -> None:
    text = pip_configuration(Path("/home/a b/.venv/constraints.txt"))
    assert text.splitlines() == ["[install]", "constraint = file:///home/a%20b/.venv/constraints.txt"]
