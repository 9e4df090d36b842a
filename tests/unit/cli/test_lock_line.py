"""The subcommands of ``lock``: what means nothing together cannot be written, and is never passed over."""

from __future__ import annotations

import click
import pytest

from gpuinstall.cli.lock import command, subcommand_line
from gpuinstall.cli.main import run_command_line
from gpuinstall.errors import UsageError

NAMES = command.commands

LINES: dict[tuple[str, ...], tuple[str, list[str]] | None] = {
    ("check", "torch"): ("check", ["torch"]),
    ("--check",): ("check", []),
    ("torch", "--check", "--target", "cu126"): ("check", ["torch", "--target", "cu126"]),
    ("--diff", "a", "b", "--json"): ("diff", ["a", "b", "--json"]),
    ("--json", "--diff", "a", "b"): ("diff", ["--json", "a", "b"]),
    ("--download=wheels", "--offline"): ("download", ["wheels", "--offline"]),
    ("--gpu", "RTX 30", "--cover", "--driver", ">=470"): (
        "cover",
        ["--gpu", "RTX 30", "--driver", ">=470"],
    ),
    ("--merge", "ours", "theirs"): ("merge", ["ours", "theirs"]),
    ("--audit",): ("audit", []),
    ("torch", "check"): None,
    ("--", "check"): None,
    ("--upgrade", "--", "--check"): None,
    (): None,
}
REFUSED = (
    "--diff a b --check --audit --prune --target nonsense",
    "diff a b --target cu126",
    "--diff a",
    "--check --audit",
    "check --upgrade",
    "check --prune",
    "check --per-target newest",
    "cover --target cu126 --gpu A100",
    "cover --gpu A100 --all-supported",
    "cover",
    "cover --all-supported --script a.py",
    "--all-supported",
    "merge a b torch",
    "download wheels torch",
    "download wheels --check",
    "--audit torch",
)


def test_an_old_spelling_is_the_subcommand_with_the_rest_of_the_line() -> None:
    wrong = {line: subcommand_line(line, NAMES) for line, meant in LINES.items()}
    assert {line: found for line, found in wrong.items() if found != LINES[line]} == {}


def test_what_means_nothing_together_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    statuses = {line: run_command_line(["lock", *line.split()]) for line in REFUSED}
    assert {line: status for line, status in statuses.items() if status != 2} == {}
    assert "Traceback" not in capsys.readouterr().err


def test_a_subcommand_is_never_taken_for_a_package() -> None:
    hints = []
    for line in (["--offline", "check", "--json"], ["--upgrade", "check"]):
        with pytest.raises(UsageError) as caught:
            command.make_context("lock", line)
        hints += (caught.value.hint or "").splitlines()
    assert hints == [
        "gpuinstall lock check --offline --json",
        "gpuinstall lock --offline --json -- check   # a package of that name",
        "gpuinstall lock check --help",
        "gpuinstall lock --upgrade -- check   # a package of that name",
    ]
    for line in (["--", "check"], ["torch", "check"]):
        assert command.make_context("lock", list(line)).params["requirements"][-1] == "check"


def test_each_subcommand_has_only_options_that_it_reads() -> None:
    shared = {"as_json", "json_events", "quiet", "verbose", "progress", "color", "help"}
    own = {name: {each.name for each in one.params} - shared for name, one in NAMES.items()}
    assert {
        name: names for name, names in own.items() if name in {"audit", "diff", "download", "merge"}
    } == {
        "audit": {"offline"},
        "diff": {"old", "new"},
        "download": {"folder", "torch_index", "offline"},
        "merge": {"ours", "theirs"},
    }
    assert {"upgrade", "packages", "prune", "per_target"} & own["check"] == set()
    assert {"targets", "machines", "script"} & own["cover"] == set()
    assert isinstance(command, click.Group)
