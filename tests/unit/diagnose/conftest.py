"""Put uv on PATH, because fixes use it."""

import os

import pytest

from gpuinstall.base.uv import uv


@pytest.fixture(autouse=True)
def _uv_on_path(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("uv")
    (folder / "uv").symlink_to(uv())
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{folder}")
