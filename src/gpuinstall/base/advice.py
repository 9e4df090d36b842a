"""Commands in hints, which are quoted for a shell when printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gpuinstall.base.shell import ShellName, quote_literal, quote_word
from gpuinstall.base.text import redact
from gpuinstall.base.values import Value, replace

if TYPE_CHECKING:
    from pathlib import Path

NOTE = "   # "
"""The separator between a command and its note, which a shell ignores."""
CMD_NOTE = "   & rem "
"""The separator in cmd, which has no other comment after a command."""
PROGRAM = "gpuinstall"
_IN_CMD = {"mv": "move", "rm": "del"}
"""Programs that PowerShell also has as aliases, by their names in cmd."""


class ShellText(str):
    """Words of a command that are already quoted, or shell code."""

    __slots__ = ()


class Advice(Value):
    """Command in a hint: another one, or this run's with changed arguments."""

    program: str = ""
    """The program. Empty: the command line of this run is changed."""
    arguments: tuple[str, ...] = ()
    """The unquoted words of another command, or the words to add."""

    place: str = ""
    """The folder in which to run the command. Empty: any folder."""

    note: str = ""
    """A short description of the command's effect."""

    removed: tuple[str, ...] = ()
    """The words to remove: a requirement, or options with their values."""

    def __str__(self) -> str:
        if self.program:
            return self.format()
        change = f"with {_join(self.arguments)}"
        if self.removed:
            before = "without"
            if self.arguments:
                before = f"{change} instead of"
            change = f"{before} {_join(self.removed)}"
        return f"Run it again {redact(change)}{self._add_note(': ')}"

    def format(
        self,
        shell: ShellName = "sh",
        locate: Callable[[str], str] = str,
    ) -> str:
        """Format another command as one line to paste into a shell.

        Args:
            shell: The shell.
            locate: Returns the name or path that starts a program.
        """
        program = self.program
        if shell == "cmd":
            program = _IN_CMD.get(program, program)
        if not isinstance(program, ShellText):
            program = quote_word(locate(program), shell)
        if shell == "powershell" and program.startswith("'"):
            # PowerShell prints a quoted word instead of running it.
            program = f"& {program}"
        line = _join((ShellText(program), *self.arguments), shell)
        if self.program == "export" and type(self.arguments[0]) is str:
            line = _format_export(self.arguments, shell)
        if self.place:
            then = ";" if shell == "powershell" else " &&"
            change = "cd /d" if shell == "cmd" else "cd"
            line = f"{change} {quote_word(self.place, shell)}{then} {line}"
        return redact(line) + self._add_note(CMD_NOTE if shell == "cmd" else NOTE)

    def _add_note(self, separator: str) -> str:
        return f"{separator}{self.note}" if self.note else ""


Hint = Advice | str
"""A command, or a sentence about a step that is not one."""


def make_command(command: str, *words: str, note: str = "", place: str = "") -> Advice:
    """Return a hint with a command of gpuinstall.

    Args:
        command: The fixed words of the command, separated by blanks.
        words: The other words, which can contain blanks.
        note: A short description of the effect.
        place: The folder in which to run the command. Empty: any folder.
    """
    return Advice(PROGRAM, (*command.split(), *words), place, note)


def make_change(*added: str, note: str = "", without: Sequence[str] = ()) -> Advice:
    """Return a hint to change the arguments of this run's command line."""
    return Advice(arguments=added, note=note, removed=tuple(without))


def make_shell_line(line: str, note: str = "") -> Advice:
    """Return a hint with a line for a POSIX shell.

    A command without shell code is formatted for the user's shell.
    """
    if not re.search(r"[|&;<>$`~*{…\"\\]", re.sub("'[^']*'", "", line)):
        program, *words = shlex.split(line)
        return Advice(program, tuple(words), note=note)
    program, _, rest = line.partition(" ")
    if quote_word(program) != program:
        program = ShellText(program)
    return Advice(program, (ShellText(rest),), note=note)


def read_hint(line: str) -> Hint:
    """Read a line of a document: a sentence, or a command with a note."""
    first = line.partition(" ")[0]
    if first[:1].isupper() and "=" not in first:
        return line
    command, _, note = line.partition(NOTE)
    return make_shell_line(command, note)


def environment_advice(venv: Path | str, *words: str) -> Advice:
    """Return a hint with a gpuinstall command for an environment.

    Args:
        venv: The folder of the environment.
        words: The command.
    """
    return Advice(PROGRAM, (*words, "--venv", str(venv)))


def apply_to_install(hints: Iterable[Hint], *words: str) -> tuple[Hint, ...]:
    """Apply hints with additional arguments to ``gpuinstall install``.

    Args:
        hints: The hints of an error.
        words: Arguments of the command, such as packages.
    """
    applied: list[Hint] = []
    for one in hints:
        if isinstance(one, str) or one.program:
            applied.append(one)
        else:
            kept = [word for word in words if word not in one.removed]
            changed = (*kept, *one.arguments)
            if changed and changed != words:
                applied.append(make_command("install", *changed, note=one.note))
    return tuple(applied)


def list_commands(
    hints: Iterable[Hint], print_hint: Callable[[Hint], str] = str
) -> list[str]:
    """Return the commands among hints, without notes, for a document."""
    return [
        print_hint(replace(one, note=""))
        for one in hints
        if isinstance(one, Advice) and one.program
    ]


def _format_export(settings: Sequence[str], shell: ShellName) -> str:
    if shell == "cmd":
        return " & ".join(f'set "{setting}"' for setting in settings)
    pairs = [setting.split("=", 1) for setting in settings]
    if shell == "powershell":
        return "; ".join(
            f"$env:{name} = {quote_literal(value, shell)}" for name, value in pairs
        )
    return "export " + " ".join(f"{name}={quote_word(value)}" for name, value in pairs)


def _join(words: Iterable[str], shell: ShellName = "sh") -> str:
    return " ".join(
        word if isinstance(word, ShellText) else quote_word(word, shell)
        for word in words
    )
