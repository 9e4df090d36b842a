"""What errors and pages tell people to type is there: the command, and the options that follow it."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from gpuinstall.cli.main import COMMANDS, entrance

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(rf"\bgpuinstall ((?:{'|'.join(COMMANDS)})\b[^`#|;&\n]*)")
FILES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "src").rglob("*.toml")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bootstrap.py")),
]


def hints() -> set[tuple[str, str]]:
    """The words of each call up to its first option, and each option in it; a program that is run has its own."""
    return {
        (re.sub(r"\{[^}]*\}", "", call).partition(" -")[0], option)
        for path in FILES
        for call in CALL.findall(path.read_text(encoding="utf-8"))
        if not re.match(r"run \w", call)
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", call)
    }


def known(words: str) -> set[str]:
    """The options of the command that ``words`` begin with."""
    command: click.Command | None = entrance
    for word in words.split():
        if not isinstance(command, click.Group):
            break
        below = command.get_command(click.Context(command), word)
        if below is None and command.invoke_without_command:  # a package
            break
        command = below
    assert command is not None, words
    options = (option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts))
    return {*options, "--help"}


@pytest.mark.parametrize(("words", "option"), sorted(hints()), ids=" ".join)
def test_an_option_that_is_told_is_one_of_its_command(words: str, option: str) -> None:
    assert option in known(words)


def test_there_are_hints() -> None:
    assert ("lock", "--upgrade") in hints()
    assert ("install", "--backend") in hints()
