"""Interpreters, found by looking into the folders of those who bring them."""

import platform

import pytest

from gpuinstall.machine.pythons import newest_patches, read_pythons
from gpuinstall.machine.source import Source


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home folder, and an empty PATH."""
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def program(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 1\n", "utf-8")
    path.chmod(0o755)


def found(home):
    assert home.exists()
    return set(read_pythons(Source())) - {platform.python_version()}


def test_every_manager_is_looked_at(home):
    program(home / ".pyenv/versions/3.9.18/bin/python3")
    program(home / ".local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3")
    program(home / "bin/python3.10")
    assert {"3.9.18", "3.13.1", "3.10"} <= found(home)


def test_a_shim_is_passed_by_and_never_run(home, monkeypatch):
    program(home / ".pyenv/shims/python3.14")
    monkeypatch.setenv("PATH", str(home / ".pyenv/shims"))
    assert not any(version.startswith("3.14") for version in found(home))


def test_a_link_is_followed_to_its_manager(home):
    program(home / "tools/versions/3.12.9/bin/python3.12")
    (home / "bin").mkdir()
    (home / "bin/python3").symlink_to(home / "tools/versions/3.12.9/bin/python3.12")
    assert "3.12.9" in found(home)


def test_only_final_releases_count(home):
    for name in ("3.14.0rc1", "3.13.1t", "pypy3.10-7.3.17", "miniconda3-latest"):
        program(home / ".pyenv/versions" / name / "bin/python3")
    assert not any(version.startswith(("3.14", "3.13.1")) for version in found(home))


@pytest.mark.parametrize(
    ("versions", "pythons"),
    [
        (["3.11", "3.11.7", "3.9.18", "3.12"], ("3.9.18", "3.11.7", "3.12")),
        (["3.10.2", "3.9.18", "3.10.13"], ("3.9.18", "3.10.2", "3.10.13")),
        ([], ()),
    ],
)
def test_a_bare_minor_gives_way_to_a_full_version(versions, pythons):
    assert newest_patches(versions) == pythons
