from __future__ import annotations

import os
from pathlib import Path

from gpuinstall.environments.environment import pip_configuration, pip_constraints, write_pip_settings

VERSIONS = {"torch": "2.14.1+cu126", "triton": "3.8.0"}


def pins(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_each_is_held_to_its_very_build() -> None:
    assert pins(pip_constraints("pylock.cu126.toml", VERSIONS)) == ["torch==2.14.1+cu126", "triton==3.8.0"]


def test_the_file_says_how_to_lift_it() -> None:
    assert "pip.conf" in pip_constraints("pylock.cu126.toml", VERSIONS).splitlines()[0]


def test_a_folder_with_spaces_is_one_word_for_pip() -> None:
    text = pip_configuration(Path("/home/a b/.venv/constraints.txt"))
    assert text.splitlines() == ["[install]", "constraint = file:///home/a%20b/.venv/constraints.txt"]


def test_an_environment_being_built_is_configured_for_the_place_it_goes_to(tmp_path: Path) -> None:
    built, final = tmp_path / "staging", tmp_path / ".venv"
    built.mkdir()
    write_pip_settings(built, final, "pylock.cu126.toml", VERSIONS)
    configuration = built / ("pip.ini" if os.name == "nt" else "pip.conf")
    assert (final / "constraints.txt").as_uri() in configuration.read_text(encoding="utf-8")
    assert "torch==2.14.1+cu126\n" in (built / "constraints.txt").read_text(encoding="utf-8")
