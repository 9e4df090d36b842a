"""Questions before environments are removed."""

import io
import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.env import _confirm_removal
from gpuinstall.cli.terminal import Terminal
from tests.unit.install.environments import make_environment, write_files


def test_all_user_files_are_printed_before_removal(tmp_path, monkeypatch):
    names = [f"{number:060}.txt" for number in range(200)]
    venv = make_environment(write_files(tmp_path / ".venv", *names), "old")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError) as refused:
        _confirm_removal({venv: 1})
    printed = io.StringIO()
    Terminal(err=printed).fault(refused.value)
    assert all(name in printed.getvalue() for name in names)
