from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuinstall.install.pip_settings import settle_pip
from gpuinstall.lock.lock import parse
from tests.unit.install.environments import lock_text

if TYPE_CHECKING:
    from pathlib import Path


def test_an_environment_being_built_is_configured_for_the_place_it_goes_to(tmp_path: Path) -> None:
    built, final = tmp_path / "staging", tmp_path / ".venv"
    settle_pip(built, final, parse("pylock.cu126.toml", lock_text("2.14.1+cu126")))
    configuration = built / ("pip.ini" if os.name == "nt" else "pip.conf")
    assert (final / "constraints.txt").as_uri() in configuration.read_text(encoding="utf-8")
    assert "torch==2.14.1+cu126\n" in (built / "constraints.txt").read_text(encoding="utf-8")
