"""Pythons that the tests find on this machine."""

import platform
import sys
from pathlib import Path

import pytest

from tests.lab.programs import write_program
from tests.lab.pythons import interpreter


@pytest.mark.parametrize(
    "shim",
    [
        "echo 'pyenv: python3.99: command not found' >&2; exit 127",
        f'exec "{sys.executable}" "$@"',  # the active Python, of another version
    ],
)
def test_python_shim_without_requested_version_is_skipped(shim, tmp_path, monkeypatch):
    write_program(tmp_path / "python3.99", shim)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=r"no Python 3\.99"):
        interpreter("3.99")


def test_python_is_found_behind_a_shim(tmp_path, monkeypatch):
    version = ".".join(platform.python_version_tuple()[:2])
    write_program(tmp_path / f"python{version}", f'exec "{sys.executable}" "$@"')
    monkeypatch.setattr("tests.lab.pythons.FOLDERS", ())
    monkeypatch.setattr("tests.lab.pythons.USER_HOME", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter(version) == Path(sys.executable)
