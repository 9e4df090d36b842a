"""Compiled wheels that others may have put into a run folder: nothing is removed or read beyond it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpuinstall.base.files import sha256_of
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.lock.compiled import kept_wheel

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and pipes as Unix has them")


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim" / "wheels"
    folder.mkdir(parents=True)
    (folder / "a.whl").write_text("mine")
    return folder


def test_a_link_in_the_place_of_a_folder_removes_nothing_elsewhere(victim, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "0").symlink_to(victim)
    (tmp_path / "linked").symlink_to(victim.parent)

    for folder in (tmp_path / "kept", tmp_path / "linked"):
        assert kept_wheel(folder, SilentReporter()) is None
    assert (victim / "a.whl").exists()


def test_a_pipe_and_a_link_without_end_are_removed_unread(tmp_path):
    folder = tmp_path / "kept" / "0"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "a.whl")
    (folder / "b.whl").symlink_to("/dev/zero")

    assert kept_wheel(tmp_path / "kept", SilentReporter()) is None
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", "{sha256}", "{sha256}/a.whl"])
def test_a_wheel_of_another_user_is_not_taken(tmp_path, name):
    wheel = tmp_path / "a.whl"
    wheel.write_text("not ours")
    sha256 = sha256_of(wheel)
    folder = tmp_path / "kept"
    (folder / sha256).mkdir(parents=True)
    kept = wheel.rename(folder / sha256 / "a.whl")
    assert kept_wheel(folder, SilentReporter()) == kept
    os.chown(folder / name.format(sha256=sha256), 12345, -1)

    assert kept_wheel(folder, SilentReporter()) is None
    assert kept.exists()
