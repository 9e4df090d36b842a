"""Interpreters on PATH and of version managers."""

import json
import platform
import sys
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import TextOrigin
from gpuinstall.base.version import RUNNING_PYTHON
from gpuinstall.machine import pythons
from gpuinstall.machine.pythons import (
    Python,
    drop_redundant_minors,
    find_python,
    read_active_python,
    read_pythons,
    select_base_python,
    start_python,
)
from gpuinstall.machine.source import Source
from gpuinstall.project import open_project
from tests.lab.nobody import open_folder, run_as_nobody
from tests.lab.skips import needs_posix, needs_sh


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Create an empty home folder and an empty PATH."""
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


@needs_posix
def test_pyenv_uv_and_path_interpreters_are_found(home):
    program(home / ".pyenv/versions/3.9.18/bin/python3")
    program(home / ".local/share/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3")
    program(home / "bin/python3.10")
    assert {"3.9.18", "3.13.1", "3.10"} <= found(home)


@pytest.mark.skipif(sys.platform == "win32", reason="requires Unix links")
def test_active_python_is_the_first_on_path(home):
    assert read_active_python() is None
    program(home / "versions" / "3.13.1" / "bin" / "python3")
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(home / "versions/3.13.1/bin/python3")
    assert read_active_python() == "3.13.1"
    (home / "bin" / "python3").unlink()
    (home / "bin" / "python3").symlink_to(sys.executable)
    assert platform.python_version().startswith(read_active_python() or "?")


@pytest.mark.skipif(sys.platform == "win32", reason="requires Unix links")
def test_new_environment_prefers_the_active_python(home):
    program(home / "bin" / "python3.13")
    (home / "bin" / "python3").symlink_to("python3.13")
    machine = Machine("linux", "x86_64")
    with open_project(home, here=machine) as project:
        assert project.preferred_pythons == ("3.13", RUNNING_PYTHON)
    (home / ".venv").mkdir()
    (home / ".venv" / "pyvenv.cfg").touch()
    with open_project(home, here=machine) as project:
        assert project.preferred_pythons == (RUNNING_PYTHON,)


@pytest.mark.root
def test_inaccessible_interpreters_are_skipped(monkeypatch):
    with open_folder() as folder:
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", str(folder / "bin"))
        program(folder / "bin/python3.10")
        closed = folder / ".local/share/uv/python"
        installed = closed / "cpython-3.13.1-linux-x86_64-gnu/bin/python3"
        program(installed)
        (folder / "bin/python3.9").symlink_to(installed)
        closed.chmod(0o700)

        assert run_as_nobody(lambda: found(folder)) == "{'3.10'}"


def shim(home, version, command):
    path = home / f".asdf/shims/python{version}"
    program(path)
    path.write_text(f'#!/bin/sh\necho "$0" >> {home}/started\n{command}\n', "utf-8")


@needs_sh
def test_only_working_python_shim_is_found(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home / ".asdf/shims"))
    answer = json.dumps(
        {"version": "3.99.2", "level": "final"}
        | {"flags": "", "base": "/opt/python3.99"}
    )
    shim(home, "3.99", f"echo '{answer}'")
    shim(home, "3.98", "exit 127")
    shim(home, "3.97", f"echo '{answer}'")
    assert found(home) == {"3.99.2"}
    assert find_python("3.99") == Path("/opt/python3.99")
    assert find_python("3.98") is find_python("3.97") is None
    assert len((home / "started").read_text("utf-8").splitlines()) == 3


@needs_sh
def test_shim_of_a_found_version_is_not_started(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home / ".asdf/shims"))
    program(home / ".asdf/versions/3.13.1/bin/python3")
    shim(home, "3.13", "exit 1")
    assert found(home) == {"3.13.1"}
    assert not (home / "started").exists()


def test_failing_interpreter_is_not_selected(home):
    program(home / "bin/python3.10")
    assert "3.10" in found(home)
    assert find_python("3.10") is None


@needs_sh
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("exit 3", "exited with status 3: no output"),
        ("echo 127 {}", "exited with status 0: no output"),
        ("while :; do :; done", "not finished after 0 s"),
    ],
)
def test_failed_interpreter_start_has_a_reason(home, monkeypatch, command, reason):
    if "while" in command:
        monkeypatch.setattr(pythons, "_START_SECONDS", 0.2)
    shim(home, "3.9", command)
    error = start_python(home / ".asdf/shims/python3.9")
    assert isinstance(error, UsageError)
    assert error.why == reason


def test_interpreter_reports_its_version_and_base_interpreter():
    python = start_python(Path(sys.executable))
    assert isinstance(python, Python)
    assert python.version == platform.python_version().rstrip("+")
    assert Path(python.base).exists()


@pytest.mark.parametrize("text", ["3.12", "python3.12", "cpython@3.12"])
def test_python_version_does_not_select_base_interpreter(text):
    request, base = select_base_python(Request(python=text))
    assert (request.python, base) == ("3.12", None)


def test_python_path_selects_version_and_base_interpreter():
    request, base = select_base_python(Request(python=sys.executable))
    release = platform.python_version().rstrip("+")
    version = release.rpartition(".")[0]
    assert (request.python, request.preferred_pythons) == (version, (release,))
    assert request.places == {version: TextOrigin(sys.executable)}
    assert base is not None
    assert base.exists()


@needs_posix
def test_link_to_a_managed_python_is_followed(home):
    program(home / "tools/versions/3.12.9/bin/python3.12")
    (home / "bin").mkdir()
    (home / "bin/python3").symlink_to(home / "tools/versions/3.12.9/bin/python3.12")
    assert "3.12.9" in found(home)


def test_prerelease_pythons_are_ignored(home):
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
def test_latest_patch_of_each_python_is_kept(versions, pythons):
    assert drop_redundant_minors(versions) == pythons
