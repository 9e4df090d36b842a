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
    """Write the page in man(7)."""
    commands = list(_commands())
    shared = {
        _word(option): option
        for _, command in commands
        for option in command.get_params(_context(command))
    }
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
        roff(_paragraph("README.md")),
        ".SH COMMANDS",
        *(line for name, command in commands for line in _section(name, command)),
        ".SH OPTIONS OF EVERY COMMAND",
        *_options(shared[name] for name in sorted(EVERYWHERE & shared.keys())),
        ".SH EXIT STATUS",
        *(line for status, said in _statuses() for line in (".TP", f".B {status}", roff(said))),
        ".SH ENVIRONMENT",
        *(
            line
            for name, said in _variables(commands)
            for line in (".TP", f".B {name}", roff(said))
        ),
    ]
    return "\n".join(lines) + "\n"


def _commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with its whole name."""
    for name in COMMANDS:
        command = entrance.get_command(click.Context(entrance), name)
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield name, command
            yield from ((f"{name} {below}", each) for below, each in command.commands.items())
        elif command:
            yield name, command


def _section(name: str, command: click.Command) -> Iterator[str]:
    words = " ".join(command.collect_usage_pieces(_context(command)))
    yield f".SS {roff(f'gpuinstall {name} {words}')}"
    yield roff(command.help or "")
    yield from _options(
        each for each in command.get_params(_context(command)) if _word(each) not in EVERYWHERE
    )


def _options(options: Iterable[click.Parameter]) -> Iterator[str]:
    for option in options:
        if isinstance(option, click.Option) and (
            record := option.get_help_record(_context(entrance))
        ):
            yield from (".TP", f".B {roff(record[0])}", roff(record[1]))


def _variables(commands: Iterable[tuple[str, click.Command]]) -> list[tuple[str, str]]:
    """The variables that stand for an option, each once, by name."""
    every = (option for _, command in commands for option in command.get_params(_context(command)))
    return sorted(
        {str(one.envvar): f"the same as {_word(one)}" for one in every if one.envvar}.items()
    )


def _word(option: click.Parameter) -> str:
    return max(option.opts, key=len)


def _statuses() -> list[tuple[str, str]]:
    """The exit statuses, as docs/usage.md has them."""
    text = (ROOT / "docs" / "usage.md").read_text(encoding="utf-8")
    found = _STATUS.findall(text[text.index("## Exit status") :])
    return sorted(found, key=lambda row: int(row[0]))


def _paragraph(name: str) -> str:
    """What the project is, as its README begins."""
    return (
        (ROOT / name)
        .read_text(encoding="utf-8")
        .split("\n\n")[1]
        .replace("\n", " ")
        .replace("`", "")
    )


def _context(command: click.Command) -> click.Context:
    """The settings of the entrance: click makes a command's ``--help`` once, for whoever asks first."""
    return click.Context(command, **entrance.context_settings)


def roff(text: str) -> str:
    """Write text so that nothing in it is a request or an escape."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe
