from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpuinstall.install.exchange import exchange

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="this system cannot exchange two folders")
def test_two_folders_change_places(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system cannot exchange two folders")
    assert (tmp_path / "one" / "other").exists()
    assert (tmp_path / "other" / "one").exists()


@pytest.mark.skipif(sys.platform not in {"linux", "darwin"}, reason="this system cannot exchange two folders")
def test_what_is_missing_is_an_error_and_not_an_inability(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "other")
