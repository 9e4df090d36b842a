"""The man page: what every command says of itself, as ``man gpuinstall`` reads it. ``make docs`` writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall import __version__
from gpuinstall.cli.main import COMMANDS, entrance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "prefix" / "share" / "man" / "man1" / "gpuinstall.1"
EVERYWHERE = {"--json", "--json-events", "--quiet", "--verbose", "--progress", "--color", "--help"}
"""The options of every command, which are told once."""
_STATUS = re.compile(r"(\d+) \| ([^|]+?) \|")


def man_page() -> str:
    """Return the page in man(7)."""
    commands = list(_commands())
    lines = [
        f'.TH GPUINSTALL 1 "" "gpuinstall {__version__}" "User Commands"',
        ".SH NAME",
        roff(
            "gpuinstall - install the PyTorch build that runs on this machine's GPUs, lock it, prove it"
        ),
        ".SH SYNOPSIS",
        ".B gpuinstall",
        roff("COMMAND [OPTION]... [ARGUMENT]..."),
        ".SH DESCRIPTION",
        roff(_introduction()),
        ".SH COMMANDS",
    ]
    for name, command in commands:
        lines += _section(name, command)
    lines.append(".SH OPTIONS OF EVERY COMMAND")
    lines += _options(_shared_options(commands))
    lines.append(".SH EXIT STATUS")
    for status, meaning in _statuses():
        lines += _item(status, meaning)
    lines.append(".SH ENVIRONMENT")
    for variable, meaning in _variables(commands):
        lines += _item(variable, meaning)
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with its whole name."""
    for name in COMMANDS:
        command = entrance.get_command(click.Context(entrance), name)
        if command is None:
            continue
        if not isinstance(command, click.Group):
            yield name, command
            continue
        if command.invoke_without_command:
            yield name, command
        for subcommand_name, subcommand in command.commands.items():
            yield f"{name} {subcommand_name}", subcommand


def _section(name: str, command: click.Command) -> Iterator[str]:
    context = _context(command)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {roff(f'gpuinstall {name} {usage}')}"
    yield roff(command.help or "")
    yield from _options(
        option for option in command.get_params(context) if _word(option) not in EVERYWHERE
    )


def _shared_options(commands: Iterable[tuple[str, click.Command]]) -> list[click.Parameter]:
    """Return the options of every command, each once, by name."""
    shared: dict[str, click.Parameter] = {}
    for _, command in commands:
        for option in command.get_params(_context(command)):
            if _word(option) in EVERYWHERE:
                shared[_word(option)] = option
    return [shared[name] for name in sorted(shared)]


def _options(options: Iterable[click.Parameter]) -> Iterator[str]:
    for option in options:
        if not isinstance(option, click.Option):
            continue
        record = option.get_help_record(_context(entrance))
        if record:
            yield from _item(*record)


def _item(name: str, meaning: str) -> tuple[str, str, str]:
    """Return the lines of an entry of a list."""
    return ".TP", f".B {roff(name)}", roff(meaning)


def _variables(commands: Iterable[tuple[str, click.Command]]) -> list[tuple[str, str]]:
    """Return the variables that stand for an option, each once, by name."""
    variables: dict[str, str] = {}
    for _, command in commands:
        for option in command.get_params(_context(command)):
            if option.envvar:
                variables[str(option.envvar)] = f"the same as {_word(option)}"
    return sorted(variables.items())


def _word(option: click.Parameter) -> str:
    return max(option.opts, key=len)


def _statuses() -> list[tuple[str, str]]:
    """Return the exit statuses, as docs/usage.md has them."""
    text = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    statuses = _STATUS.findall(text[text.index("## Exit status") :])
    return sorted(statuses, key=lambda row: int(row[0]))


def _introduction() -> str:
    """Return what the project is, as its README begins."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    paragraph = readme.split("\n\n")[1]
    return paragraph.replace("\n", " ").replace("`", "")


def _context(command: click.Command) -> click.Context:
    """The settings of the entrance: click makes a command's ``--help`` once, for whoever asks first."""
    return click.Context(command, **entrance.context_settings)


def roff(text: str) -> str:
    """Write text so that nothing in it is a request or an escape."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe
