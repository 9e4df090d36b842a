"""What ends a command and is no fault of gpuinstall is told as what it is."""

import errno

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli import main
from gpuinstall.cli.terminal import hint_of


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(errno.EPERM, "Operation not permitted", "/a"),
            "/a cannot be used: Operation not permitted",
        ),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", b"/a"),
            "/a cannot be used: File name too long",
        ),
        (
            OSError(errno.EMFILE, "Too many open files"),
            "Too many open files",
        ),
        (
            ModuleNotFoundError("No module named 'tomli'", name="tomli"),
            "gpuinstall's own environment lacks tomli",
        ),
    ],
)
def test_what_is_no_fault_of_ours_is_an_ordinary_error(
    monkeypatch,
    capsys,
    error,
    message,
):
    def fail(_):
        raise error

    monkeypatch.setattr(main, "_run", fail)
    assert main.run_command_line(["plan"]) in {2, 4}
    assert f"error: {message}" in capsys.readouterr().err


def test_a_hint_repeats_no_option_for_programs(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpuinstall", "env", "--json", "remove"])
    error = UsageError("not-confirmed", "", hint="Run it again with --yes")
    assert hint_of(error) == "gpuinstall env remove --yes"
