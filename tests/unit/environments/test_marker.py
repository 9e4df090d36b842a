from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.environments.marker import NAME, Marker, read_marker

if TYPE_CHECKING:
    from pathlib import Path

MARKER = Marker("1", "pylock.cpu.toml", "0" * 64, "3.11", "2.13.0+cpu", "cpu", "m", {"status": "passed"})


def test_a_marker_is_read_as_it_was_written(tmp_path: Path) -> None:
    MARKER.write(tmp_path)
    assert read_marker(tmp_path) == MARKER


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema": "gpuinstall.environment/1"}', '{"schema": "x"}'])
def test_any_other_file_is_no_marker(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text, encoding="utf-8")
    assert read_marker(tmp_path) is None


def test_a_folder_without_one_has_none(tmp_path: Path) -> None:
    assert read_marker(tmp_path) is None
