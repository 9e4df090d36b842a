"""Hints: commands that work when pasted, or prose."""

import ast
import re
import sys
from itertools import chain

import pytest

from gpuinstall.base.advice import expand_hint
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
from tests.lab.clone import ROOT

REFUSED = """\
sudo reboot
Run it again with --backend cpu: selects the CPU build
Run it again with --backend cpu --torch-index https://index.example/whl: uses another index
Run it again without --python 3.8"""


def test_hint_repeats_the_whole_command_without_password():
    login = "https://me:secret@index.example"
    run = ("gpuinstall", "run", "--backend=cu130", "--backend", "xpu", login)
    again = "gpuinstall run https://****@index.example --backend cpu"
    mirror = "--torch-index https://index.example/whl"
    assert expand_hint(REFUSED, run, ("my program",)) == (
        "sudo reboot",
        f"{again} 'my program'   # selects the CPU build",
        f"{again} {mirror} 'my program'   # uses another index",
        "Run it again without --python 3.8",
    )


def test_hint_repeats_the_command_without_an_option():
    hint = "Run it again without --target cu126: --backend selects the build"
    lock = ("gpuinstall", "lock", "torch", "--target=cpu", "--target", "cu126", "-q")
    assert expand_hint(hint, lock) == (
        "gpuinstall lock torch -q   # --backend selects the build",
    )


def test_hints_omit_options_that_the_command_lacks():
    lines = ("sudo reboot", "Run it again without --python 3.8")
    assert expand_hint(REFUSED, ["it"], options={"--any"}) == lines


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("sh", "export A='b c'   # why"),
        ("powershell", "$env:A = 'b c'   # why"),
    ],
)
def test_hints_set_variables_in_the_shell_syntax(shell, line, monkeypatch):
    monkeypatch.setattr(commands, "detect_shell", lambda: shell)
    assert commands.format_text("export A='b c'   # why") == line


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


def test_every_source_hint_is_prose_or_valid_command():
    hints = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.keyword(arg="hint", value=ast.Constant(value=str(hint))):
                    hints.append(hint)
    assert len(hints) >= 50
    for line in "\n".join(hints).splitlines():
        assert check_hint_line(line) is None, line
        # The hint is printed as a whole command line.
        assert "--torch-index URL" not in line


@pytest.mark.parametrize(("shell", "sign"), [("sh", ""), ("powershell", "& ")])
def test_command_contains_path_of_program_off_path(shell, sign, tmp_path, monkeypatch):
    text = "gpuinstall sync\ncd p && uv pip list\nto use it: uv pip list; run gpuinstall verify\ngpuinstall --version"
    prose = "gpuinstall does not build it\nuv pips\npython -m gpuinstall.cli, or /x/gpuinstall run"
    monkeypatch.setattr(commands, "detect_shell", lambda: shell)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a b" / "python"))
    monkeypatch.setattr("gpuinstall.base.uv.uv", lambda: tmp_path / "a b" / "uv")
    monkeypatch.setenv("PATH", str(tmp_path))
    paths = {name: f"{sign}'{tmp_path}/a b/{name}'" for name in ("gpuinstall", "uv")}

    expected = re.sub("gpuinstall|uv", lambda name: paths[name[0]], text)
    assert commands.format_text(text, "\n") == expected
    assert commands.format_text(prose, "\n") == prose

    for name in paths:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert commands.format_text(text, "\n") == text
