"""What bootstrap.py was given, read: a command of ours with its options, or what is to be installed."""

from __future__ import annotations

import sys
from contextlib import suppress
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

HANDED_OVER = "bootstrap"
"""The first word of a command line that comes from bootstrap.py."""
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""How help is asked for; click makes the option of a command once, as the first who reads the command says."""
_PASSED_ON = ("help", "-V", "--version")


def handed_over(arguments: list[str], commands: Collection[str]) -> list[str]:
    """Make a command line of what bootstrap.py was given: one of ``commands``, else ``install``.

    Raise UsageError for a bare word that is a command in the wrong place, or looks like one that was mistyped: it is
    never taken for a package.
    """
    if arguments[:1] and arguments[0] in {*commands, *_PASSED_ON}:
        return arguments
    for word in _requirements(arguments):
        if command := likely_command(word, commands):
            return _decided(word, command, arguments)
    return ["install", *arguments]


def likely_command(word: str, commands: Iterable[str]) -> str | None:
    """The command that a bare word is, or is one letter away from: changed, left out, added, or two exchanged."""
    word = word.lower()
    known = list(commands)
    return word if word in known else next((command for command in known if _is_near(word, command)), None)


def _requirements(arguments: list[str]) -> list[str]:
    """The words that ``install`` would take for packages; none where it would not take the line at all."""
    from gpuinstall.cli.install import command

    with suppress(click.ClickException, click.exceptions.Exit):
        context = command.make_context("install", list(arguments), resilient_parsing=True, **HELP)
        return [str(word) for word in context.params.get("requirements") or ()]
    return []


def _decided(word: str, command: str, arguments: list[str]) -> list[str]:
    """Ask where somebody can answer; else raise UsageError with both lines."""
    rest = list(arguments)
    rest.remove(word)
    said = "is a command" if word == command else f"looks like the command {command}"
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if there and click.confirm(f"{word} {said}. Run gpuinstall {join([command, *rest])}?", default=True, err=True):
        return [command, *rest]
    lines = f"bootstrap.py {join([command, *rest])}", f"bootstrap.py {join(['install', *arguments])}"
    hint = f"{lines[0]}   for the command\n{lines[1]}   for a package of that name"
    raise UsageError("command-or-package", f"{word} {said}: no package of that name is installed", hint=hint)


def _is_near(one: str, other: str) -> bool:
    """Say whether two words are one stroke apart."""
    shorter, longer = sorted((one, other), key=len)
    if len(longer) - len(shorter) > 1:
        return False
    start = next((at for at, pair in enumerate(zip(shorter, longer, strict=False)) if pair[0] != pair[1]), len(shorter))
    rest, more = shorter[start:], longer[start:]
    exchanged = len(rest) > 1 and rest[:2] == more[1::-1] and rest[2:] == more[2:]
    return exchanged or rest == more[1:] or (len(rest) == len(more) and rest[1:] == more[1:])
