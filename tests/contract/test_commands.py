"""Tests of the exit statuses and JSON documents of all commands."""

import json
from typing import Any

import click
import pytest
from tools.docs import walk_commands

from gpuinstall.base.request import Sourcing
from gpuinstall.cli.main import run_command_line
from tests.lab.forked import gpuinstall

RUNNABLE = {
    words: {str(parameter.name) for parameter in command.params}
    for words, command in walk_commands()
    if not isinstance(command, click.Group) or command.invoke_without_command
}
"""The parameters of each command, by the command's words."""
ENVELOPE = {"gpuinstall", "command", "status", "exit_code", "data", "errors"}


def document(*arguments, cwd=None):
    """Run a command with --json, and return its document."""
    done = gpuinstall(*arguments, "--json", cwd=cwd)
    parsed: dict[str, Any] = json.loads(done.out)
    assert set(parsed) | {"data"} == ENVELOPE
    assert (parsed["gpuinstall"], parsed["command"], parsed["exit_code"]) == (
        1,
        arguments[0],
        done.status,
    )
    keys = {"code", "message", "why", "do", "hint"}
    assert all(set(error) == keys for error in parsed["errors"])
    assert (parsed["status"] == "error") == bool(parsed["errors"])
    return parsed


def test_resolving_commands_share_source_options():
    names = ("install", "remove", "run", "sync", "plan", "lock")
    # Folders for one machine, options of a request, and settings.
    others = {"wheels", "addresses", "no_sources", "extension_sources", "only_binary"}
    sourcing = set(Sourcing.__struct_fields__) - others
    takers = [*((name,) for name in names), ("lock", "check")]
    missing = {words: sourcing - RUNNABLE[words] for words in takers}
    assert not any(missing.values()), missing


@pytest.mark.parametrize(
    "line",
    [["-h"], ["plan", "-h"], ["bootstrap", "-h"], ["bootstrap", "numpy", "-h"]],
    ids=" ".join,
)
def test_short_help_option_works_for_every_command(line):
    done = gpuinstall(*line)

    assert (done.status, "Usage: gpuinstall" in done.out) == (0, True), done.err


def test_unknown_option_exits_with_2(
    capsys,
):
    wrong = {}
    for command in RUNNABLE:
        status = run_command_line([*command, "--no-such-option"])
        printed = capsys.readouterr()
        in_words = (status, printed.out) == (2, "") and printed.err.startswith(
            "error: "
        )
        status = run_command_line([*command, "--no-such-option", "--json"])
        error = json.loads(capsys.readouterr().out)["errors"][0]
        if (
            not in_words
            or "Traceback" in printed.err
            or (status, error["code"]) != (2, "usage")
        ):
            wrong[command] = (printed, error)

    assert wrong == {}
    assert document("plan", "--no-such-option")["errors"][0]["code"] == "usage"


def test_plan_reads_the_output_of_probe(tmp_path):
    (tmp_path / "machine.json").write_text(gpuinstall("probe", "--json").out)

    assert document("plan", "--machine", str(tmp_path / "machine.json"))[
        "exit_code"
    ] in {0, 8}
