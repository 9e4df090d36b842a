"""What stays of an environment is given to the next one as links; an older environment may be what that begins with."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpuinstall.install.clone import link_packages
from tests.lab.environments import put_package

SITE = "lib/python3.12/site-packages"


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    venv = tmp_path / "venv"
    put_package(venv / SITE, "torch", {"torch/__init__.py": "1", "torch/lib/libtorch.so": "22"})
    put_package(venv / SITE, "numpy", {"numpy/__init__.py": "333"})
    compiled = venv / SITE / "torch/__pycache__/__init__.cpython-312.pyc"
    compiled.parent.mkdir()
    compiled.touch()
    return venv


NOW = sys.maxsize
"""Later than any change."""


def links(folder: Path) -> dict[str, int]:
    """Return the inode of every file in a folder, by its path there."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return {path.relative_to(folder).as_posix(): path.lstat().st_ino for path in files}


def test_an_older_environment_becomes_the_same_as_a_fresh_one(venv, tmp_path):
    fresh, older = tmp_path / "fresh", tmp_path / "older"
    names = {"torch", "numpy"}
    assert link_packages(venv, fresh, names, NOW) == names
    link_packages(venv, older, {"torch"}, NOW)
    torch = older / SITE / "torch/__init__.py"
    torch.unlink()
    torch.write_text("another")
    put_package(older / SITE, "einops", {"einops/__init__.py": "4"})
    put_package(older / SITE, "numpy", {"numpy": "a file in the place of a folder"}, version="0.9")
    (older / "bin").mkdir()
    (older / "bin" / "python").symlink_to(os.devnull)
    (older / "pyvenv.cfg").write_text("home = /nowhere\n")

    assert link_packages(venv, older, names, NOW) == names

    assert links(older) == links(fresh) == links(venv)
    assert not (older / SITE / "einops").exists()


def test_nothing_behind_a_link_in_an_older_environment_is_touched(venv, tmp_path):
    elsewhere, older = tmp_path / "elsewhere", tmp_path / "older"
    put_package(elsewhere, "torch", {"torch/__init__.py": "not ours"})
    (older / SITE).mkdir(parents=True)
    (older / SITE / "torch").symlink_to(elsewhere / "torch")
    (older / "notes").symlink_to(elsewhere)

    assert link_packages(venv, older, {"torch"}, NOW) == {"torch"}

    assert (elsewhere / "torch/__init__.py").read_text() == "not ours"
    assert not (older / SITE / "torch").is_symlink()
    assert not (older / "notes").is_symlink()


def test_a_file_that_two_packages_wrote_stays_while_both_stay(venv, tmp_path):
    """The second has overwritten what the first has recorded, which nobody has while it has gone."""
    put_package(venv / SITE, "opencv", {"cv2/__init__.py": "55555", "cv2/a.py": "6"})
    put_package(venv / SITE, "opencv_headless", {"cv2/__init__.py": "7777777", "cv2/a.py": "6"})
    every = {"torch", "numpy", "opencv", "opencv-headless"}
    assert link_packages(venv, tmp_path / "both", every, NOW) == every
    assert link_packages(venv, tmp_path / "one", every - {"opencv-headless"}, NOW) == {
        "torch",
        "numpy",
    }
