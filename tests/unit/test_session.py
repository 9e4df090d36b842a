"""The temporary folder of a run."""

import os
import tempfile

from gpuinstall.base.in_use import IN_USE, hold_alone
from gpuinstall.sources.session import remove_abandoned_scratch


def test_only_what_a_killed_run_left_is_removed(tmp_path, monkeypatch):
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
