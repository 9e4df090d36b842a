"""Put uv on PATH, because fixes use it."""

import os
from pathlib import Path

import pytest

from gpuinstall.base.uv import uv


@pytest.fixture(autouse=True)
def _uv_on_path(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("uv")
    if os.name == "nt":
        folder = Path(uv()).parent
    else:
        (folder / "uv").symlink_to(uv())
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{folder}")
