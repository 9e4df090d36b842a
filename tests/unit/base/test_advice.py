"""Hints: commands that work when pasted, or sentences."""

import re
import sys
from itertools import chain

import pytest

from gpuinstall.base.advice import (
    Advice,
    apply_to_install,
    list_commands,
    make_change,
    make_command,
    make_shell_line,
)
from gpuinstall.base.text import join_names
from gpuinstall.catalog.failures.problems import load_packages
from gpuinstall.catalog.failures.table import (
    Step,
    load_failures,
    load_lookalikes,
    load_problems,
)
from gpuinstall.cli import commands
from tests.lab.advice import check_hint_line

CPU = make_change("--backend", "cpu", note="selects the CPU build")


def test_hints_apply_to_another_installation():
    hints = apply_to_install(("Update the driver", CPU), "--venv", "env")
    assert [*map(str, hints)] == [
        "Update the driver",
        "gpuinstall install --venv env --backend cpu   # selects the CPU build",
    ]


def test_documents_list_commands_without_sentences_and_notes():
    hints = ("Update the driver", make_command("lock", note="updates it"), CPU)
    assert list_commands(hints) == ["gpuinstall lock"]


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("sh", "export A='b c'   # why"),
        ("powershell", "$env:A = 'b c'   # why"),
    ],
)
def test_hints_set_variables_in_the_shell_syntax(shell, line, monkeypatch):
    monkeypatch.setattr(commands, "detect_shell", lambda: shell)
    assert commands.format_hint(Advice("export", ("A=b c",), note="why")) == line


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("sh", "cd 'a b' && gpuinstall sync --venv 'it'\\''s'"),
        ("powershell", "cd 'a b'; gpuinstall sync --venv 'it''s'"),
    ],
)
def test_hints_name_their_folder_and_quote_words(shell, line, tmp_path):
    advice = make_command("sync", "--venv", "it's", place=tmp_path / "a b")
    assert advice.format(shell).replace(f"{tmp_path}/", "") == line


@pytest.mark.parametrize(("shell", "sign"), [("sh", ""), ("powershell", "& ")])
def test_command_contains_path_of_program_off_path(shell, sign, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "detect_shell", lambda: shell)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a b" / "python"))
    monkeypatch.setattr("gpuinstall.base.uv.uv", lambda: tmp_path / "a b" / "uv")
    monkeypatch.setenv("PATH", str(tmp_path))
    hints = {
        "gpuinstall": make_command("sync"),
        "uv": make_shell_line("uv pip list && ls"),
        "git": Advice("git", ("status",)),
    }

    printed = {name: commands.format_hint(hint) for name, hint in hints.items()}
    assert printed == {
        "gpuinstall": f"{sign}'{tmp_path}/a b/gpuinstall' sync",
        "uv": f"{sign}'{tmp_path}/a b/uv' pip list && ls",
        "git": "git status",
    }

    for name in hints:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert [*map(commands.format_hint, hints.values())] == [*map(str, hints.values())]


def test_list_of_eight_names_is_shortened_to_six():
    assert join_names(["numpy", "pandas"]) == "numpy, pandas"
    assert join_names(list("abcdefg")) == "a, b, c, d, e, f, g"
    assert join_names(list("abcdefgh")) == "a, b, c, d, e, f and 2 more"


def test_every_failure_fix_is_prose_or_valid_command():
    lines = [str(step) for step in catalogue_steps()]
    assert len(lines) > 400
    for line in lines:
        command = re.sub(r"\{(?:at|into|anew)\}", "", line)
        assert check_hint_line(re.sub(r"\{\w+\}", "x", command)) is None, line


def test_fix_sentences_contain_no_commands():
    lines = [step.command.removeprefix("sudo ") for step in catalogue_steps()]
    programs = {line.split()[0] for line in lines if not line[0].isupper()}
    names = "|".join(map(re.escape, programs))
    hidden = re.compile(rf": (sudo |[A-Z_]+=\S* )?({names}) ")
    assert list(filter(hidden.search, lines)) == []


def catalogue_steps():
    """Return all steps of failures, problems, and driver packages."""
    entries = [*load_failures().values(), *load_lookalikes().values()]
    tables = [entry.fix for entry in entries]
    tables += [kind.fix for kind in load_problems().values() if kind.fix]
    tables += load_packages().values()
    steps: list[Step] = []
    for table in tables:
        steps += chain(*table.commands.values())
    return steps
