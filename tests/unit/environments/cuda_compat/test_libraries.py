"""Where libraries of cuda-compat are unpacked: what a killed run has left goes, and nothing else of that name."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuinstall.environments.cuda_compat.libraries import remove_abandoned, unpacking_folder
from gpuinstall.environments.records import remember


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_the_folder_goes_when_the_run_ends(folder):
    with unpacking_folder(folder) as work:
        (work / "libcuda.so.1").touch()
        assert work.parent == folder

    assert list(folder.iterdir()) == []


def test_a_folder_in_use_is_not_abandoned(folder):
    with unpacking_folder(folder) as work:
        remove_abandoned(folder)

        assert work.is_dir()


def test_only_what_this_user_was_unpacking_is_removed(folder):
    stranger = folder / ".cuda-compat-01234567"
    named = folder / ".cuda-compat-of-mine"
    abandoned = folder / ".cuda-compat-89abcdef"
    for path in (stranger, named, abandoned):
        (path / ".cuda-compat").mkdir(parents=True)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    link = folder / ".cuda-compat-00000000"
    link.symlink_to(elsewhere)
    for path in (abandoned, named, link):
        remember(path, "unpacking")

    remove_abandoned(folder)

    assert set(folder.iterdir()) == {stranger, named, elsewhere, link}
