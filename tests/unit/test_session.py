"""The temporary folder of a run."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from gpuinstall.base.in_use import IN_USE, hold_alone
from gpuinstall.sources.session import remove_abandoned_scratch

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_only_what_a_killed_run_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "gpuinstall-notes").mkdir()
    for name in ("gpuinstall-killed", "gpuinstall-running", "gpuinstall-new"):
        (tmp_path / name / "uv").mkdir(parents=True)
        (tmp_path / name / IN_USE).touch()
        if name != "gpuinstall-new":
            os.utime(tmp_path / name / IN_USE, (0, 0))
    (tmp_path / "gpuinstall-link").symlink_to(tmp_path / "gpuinstall-running")
    running = hold_alone(str(tmp_path / "gpuinstall-running"))
    assert running is not None

    remove_abandoned_scratch()
    os.close(running)

    left = {entry.name for entry in tmp_path.iterdir()}
    assert left == {
        "gpuinstall-link",
        "gpuinstall-new",
        "gpuinstall-notes",
        "gpuinstall-running",
    }
