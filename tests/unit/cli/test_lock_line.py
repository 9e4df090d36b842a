"""Subcommands and options of ``lock``."""

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.lock import lock_command as command
from gpuinstall.cli.main import run_command_line


def test_upgrade_package_with_version_suggests_a_requirement(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    line = ["lock", "--target", "cu126", "--offline", "--upgrade-package", "Idna==3.10"]
    assert run_command_line(line) == 2
    way = "do    gpuinstall lock --upgrade-package idna idna==3.10"
    assert way in capsys.readouterr().err


def test_lock_subcommand_must_precede_options():
    hints = ["gpuinstall lock check --help"]
    hints.append("gpuinstall lock -- check   # a package of that name")
    for line in ("--offline check --json", "--upgrade check"):
        with pytest.raises(UsageError) as caught:
            command.make_context("lock", line.split())
        assert (caught.value.hint or "").splitlines() == hints
    for line in ("-- check", "torch check"):
        context = command.make_context("lock", line.split())
        assert context.params["requirements"][-1] == "check"
