from pathlib import Path

import pytest

from gpuinstall.environments.stamp import stamp_python
from tests.lab.skips import needs_links
from tests.unit.install.environments import PYTHON, SCRIPTS


@pytest.fixture
def base(tmp_path):
    """A base interpreter."""
    python = tmp_path / "base" / Path(PYTHON).name
    python.parent.mkdir()
    python.write_text("base")
    return python


@pytest.fixture
def venv(tmp_path, base):
    """An environment with a copy of its interpreter, as on Windows."""
    venv = tmp_path / "staged"
    (venv / SCRIPTS).mkdir(parents=True)
    (venv / PYTHON).write_text("launcher")
    (venv / "pyvenv.cfg").write_text(f"home = {base.parent}\nuv = 1.0\n")
    return venv


def test_moved_environment_has_same_python(venv):
    before = stamp_python(str(venv))
    moved = venv.rename(venv.with_name(".venv"))
    assert stamp_python(str(moved)) == before


def test_upgraded_base_of_a_copy_is_noticed(venv, base):
    before = stamp_python(str(venv))
    base.write_text("upgraded base")
    assert stamp_python(str(venv)) != before


@needs_links
def test_upgraded_base_of_a_link_is_noticed(venv, base):
    python = venv / PYTHON
    python.unlink()
    python.symlink_to(base)
    before = stamp_python(str(venv))
    base.write_text("upgraded base")
    assert stamp_python(str(venv)) != before
