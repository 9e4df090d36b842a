"""What errors and pages tell people to type is there: the command, and the options that follow it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.advice import in_full
from gpuinstall.cli.main import COMMANDS, entrance
from tests.lab.advice import judged

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def test_an_option_that_is_told_is_one_of_its_command() -> None:
    options = hints()

    assert {("lock", "--upgrade"), ("install", "--backend")} <= options
    assert [(words, option) for words, option in sorted(options) if option not in known(words)] == []


def changes() -> set[str]:
    """Each line in the source that says what to change of the command that was run, a name in each of its gaps."""
    lines = set[str]()
    for path in (ROOT / "src").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        # What stands between the gaps of a text is no text of its own.
        parts = {id(part) for node in formatted for part in ast.walk(node)}
        texts = ["".join(map(_part, node.values)) for node in formatted]
        constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in parts)
        texts += [node.value for node in constants if isinstance(node.value, str)]
        for text in texts:
            lines.update(re.findall(r"(?m)^the same (?:again|with(?:out)? \S.*)", text))
    return lines


def _part(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "numpy"


def commands(group: click.Group = entrance, words: tuple[str, ...] = ()) -> Iterator[tuple[list[str], click.Command]]:
    """Yield the words that run each command, with whatever it needs, and the command."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
            if not command.invoke_without_command:
                continue
        needs = [_needed(parameter) for parameter in command.params if parameter.required]
        yield ["gpuinstall", *words, name, *(word for need in needs for word in need)], command


def _needed(parameter: click.Parameter) -> list[str]:
    value = parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "needed"
    return [value] if isinstance(parameter, click.Argument) else [parameter.opts[0], value]


def test_what_the_same_with_a_change_becomes_runs_for_every_command() -> None:
    lines = changes()
    assert {"the same again", "the same with --into   # installs torch into it, and keeps the rest"} <= lines
    wrong = {}
    for words, command in commands():
        assert judged(shlex.join(words)) is None
        options = [option for parameter in command.params for option in parameter.opts]
        for line in lines:
            written = in_full(line, words, options)
            if fault := judged(written):
                wrong[written] = fault
    assert wrong == {}
