"""Questions before environments are removed."""

import io
import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.env import _confirm_removal
from gpuinstall.cli.main import run_command_line
from gpuinstall.cli.outcome import confirm
from gpuinstall.cli.terminal import Terminal
from tests.unit.install.environments import make_environment, write_files


def test_all_user_files_are_printed_before_removal(tmp_path, monkeypatch):
    names = [f"{number:060}.txt" for number in range(200)]
    venv = make_environment(write_files(tmp_path / ".venv", *names), "old")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError) as refused:
        _confirm_removal({venv: 1})
    printed = io.StringIO()
    Terminal(err=printed).fault(refused.value.finding)
    assert all(name in printed.getvalue() for name in names)


def test_removal_question_requires_a_finished_change(tmp_path, capsys):
    venv = make_environment(tmp_path / ".venv", "old")
    write_files(tmp_path, ".venv.gpuinstall/changing/journal.json")
    assert run_command_line(["env", "remove", "--venv", str(venv)]) == 4
    assert "was interrupted" in capsys.readouterr().err
    assert venv.exists()


def test_ended_input_does_not_confirm(monkeypatch):
    class Nul(io.StringIO):
        """Input like NUL on Windows, a terminal without text."""

        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Nul())
    with pytest.raises(UsageError) as refused:
        confirm("Remove .venv?", "nothing was removed")
    assert (refused.value.code, refused.value.why) == (
        "not-confirmed",
        "stdin is not a terminal",
    )
