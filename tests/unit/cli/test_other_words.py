"""Mistyped command lines, and options of pip and uv."""

import sys

import pytest

from gpuinstall.cli.main import run_command_line
from gpuinstall.machine.pythons import python_version
from tests.lab.clone import ROOT
from tests.lab.index_text import steps_of

COMMANDS = (ROOT / "tests/data/other_words.txt").read_text("utf-8").rstrip()
"""Command lines, each with its expected hint."""


@pytest.mark.parametrize(("line", "advice"), list(steps_of(COMMANDS)))
def test_unknown_option_has_a_hint(line, advice, capsys, monkeypatch):
    monkeypatch.setattr("gpuinstall.cli.commands.detect_shell", lambda: "sh")
    assert run_command_line(line.split()[2:]) == 2
    _, _, told = capsys.readouterr().err.partition("  do    ")
    # A program that is not on PATH has its path.
    told = told.replace(f"{sys.prefix}/bin/", "").replace("\n        ", "\n")
    assert told.strip().splitlines() == advice


VERSIONS = {
    "3.12": "3.12",
    "3.12.1": "3.12.1",
    "python3.12": "3.12",
    "cpython@3.12": "3.12",
    "cpython-3.12": "3.12",
    ">=3.10": ">=3.10",
    "python3": None,
    "pypy@3.10": None,
    "/usr/bin/python3": None,
}


def test_uv_python_versions_are_parsed():
    assert {text: python_version(text) for text in VERSIONS} == VERSIONS
