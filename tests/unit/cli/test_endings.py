"""Errors of the system that end a command."""

import errno
import os
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import UsageError
from gpuinstall.cli import main, run
from tests.lab.skips import needs_links

A = Path("/a")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.EPERM, "", "/a"),
            f"{A} cannot be used: Operation not permitted",
        ),
        (
            OSError(errno.ENAMETOOLONG, "", b"/a"),
            f"{A} cannot be used: File name too long",
        ),
        (OSError(errno.EMFILE, ""), "Too many open files"),
        (
            ModuleNotFoundError("", name="tomli"),
            "gpuinstall's own environment is incomplete: tomli is missing",
        ),
    ],
)
def test_os_error_is_reported_without_traceback(
    monkeypatch,
    capsys,
    error,
    message,
):
    def fail(_):
        raise error

    monkeypatch.setattr(main, "_run_command", fail)
    assert main.run_command_line(["plan"]) in {2, 4}
    assert f"error: {message}" in capsys.readouterr().err


PATHS = "Check the path; if it is a URL, download it first"


@pytest.mark.parametrize(
    ("line", "reason", "hint"),
    [
        ("trian.py 3", "no such file", PATHS),
        ("./x/y", "no such file", PATHS),
        ("./folder 3", "Permission denied", "gpuinstall run python ./folder 3"),
        (
            "-",
            "no such program in the environment or on PATH",
            "gpuinstall run python -",
        ),
    ],
)
@pytest.mark.skipif(
    os.name == "nt", reason="Windows selects programs by file extension"
)
def test_unexecutable_program_is_reported_with_reason(
    line, reason, hint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    (tmp_path / "closed").mkdir(mode=0)
    monkeypatch.setenv("PATH", f"{tmp_path}/closed", prepend=os.pathsep)
    words = line.split()
    with pytest.raises(UsageError) as refused:
        run._execute(words, EnvironmentPaths.at(tmp_path / ".venv"))
    assert refused.value.message == f"{words[0]} cannot be run: {reason}"
    assert refused.value.hint == hint


@needs_links
def test_permission_hint_refers_to_the_symlink_target(tmp_path):
    (tmp_path / "root").mkdir()
    python = tmp_path / "python"
    python.symlink_to(tmp_path / "root" / "pyenv" / "python")
    error = main._find_machine_error(
        PermissionError(errno.EACCES, "denied", str(python))
    )
    assert error is not None
    folder = (tmp_path / "root").resolve()
    assert error.hint == f"ls -ld {folder}; df -h {folder}; df -i {folder}"
