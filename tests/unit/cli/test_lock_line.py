"""Subcommands and options of ``lock``."""

import click
import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli.lock import lock_command as command
from gpuinstall.cli.main import run_command_line

NAMES = command.commands

REFUSED = (
    "--check",
    "torch --download wheels",
    "check --upgrade",
    "download wheels torch",
    "download wheels --check",
)


def test_contradicting_options_are_rejected(capsys):
    for line in REFUSED:
        assert run_command_line(["lock", *line.split()]) == 2, line
    assert "Traceback" not in capsys.readouterr().err


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


def test_lock_subcommands_have_only_their_options():
    shared = {"as_json", "as_events", "quiet", "verbose", "help"}
    own = {
        name: {each.name for each in one.params} - shared for name, one in NAMES.items()
    }
    assert own["download"] == {"folder", "torch_index", "offline"}
    assert {"upgrade", "packages"} & own["check"] == set()
    assert isinstance(command, click.Group)
