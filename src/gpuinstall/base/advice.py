"""Commands that help people, as values: quoted for the shell in use only when they are printed."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from gpuinstall.base.shell import ShellName, joined, quoted
from gpuinstall.base.text import redacted
from gpuinstall.base.values import Value

NOTE = "   # "
"""What stands between a command and the words about it, which a shell ignores."""
OURS = "gpuinstall"
_AGAIN = r"Run it again with (?P<words>--.*?)(?:: (?P<note>.*))?"
_EXPORT = rf"""(?m)^export (\w+)=(['"]?)(.*?)\2(?={NOTE}|$)"""
_OPTION = r"(?<!\S)(--[\w-]+)(?: (?!--)(\S+))?"


class Advice(Value):
    """A command that helps. As text it is one line that can be pasted."""

    program: str
    arguments: tuple[str, ...] = ()
    """As they are before a shell's quotes."""

    place: Path | None = None
    """The folder that it has to run in; None: any."""

    note: str = ""
    """What it does, in a few words."""

    def __str__(self) -> str:
        program = uv_program() if self.program == "uv" else self.program
        line = joined((program, *self.arguments))
        if self.place and self.place != Path.cwd():
            line = f"cd {quoted(self.place)} && {line}"
        return f"{line}{NOTE}{self.note}" if self.note else line


def for_environment(venv: Path | str, *words: str, place: Path | None = None) -> Advice:
    """Return a command of ours for an environment.

    Args:
        venv: Its folder.
        words: The command.
        place: The folder that it has to run in; None: any.
    """
    return Advice(OURS, (*words, "--venv", str(venv)), place)


def uv_program() -> str:
    """Return how a person starts uv: by its name, or by the path of ours if it is not on PATH."""
    from shutil import which  # with decompressors that a plan does without

    if which("uv"):
        return "uv"
    from uv import find_uv_bin

    return str(find_uv_bin())


def for_command(
    hint: str,
    command: Sequence[str],
    rest: Sequence[str] = (),
    options: Container[str] | None = None,
) -> tuple[str, ...]:
    """Return the lines of an advice, those to run a command again as its whole line.

    Args:
        hint: The advice.
        command: The words before an option that is added.
        rest: The words after it: the program that the command runs.
        options: The options that it has: a line that needs another is left out. None: all.
    """
    lines = []
    for line in hint.splitlines():
        again = re.fullmatch(_AGAIN, line)
        if again is None:
            lines.append(line)
            continue
        added = dict(re.findall(_OPTION, again["words"]))
        if options is None or all(option in options for option in added):
            note = again["note"]
            words = (joined(_without(command, added)), again["words"], joined(rest))
            run = redacted(" ".join(filter(None, words)))
            lines.append(f"{run}{NOTE}{note}" if note else run)
    return tuple(lines)


def _without(command: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return a command line without some options and, of those that have one, their values.

    Args:
        command: Its words.
        options: Their values, by their names; empty for a flag.
    """
    words: list[str] = []
    before = ""
    for word in command:
        name = word.partition("=")[0]
        # What follows an option with a value is that value; behind a flag stands another word of the command.
        if name not in options and not options.get(before):
            words.append(word)
        before = word
    return words


def for_install(hint: str, words: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines of an advice, those to run a command again as ``gpuinstall install`` with ``words``.

    Args:
        hint: The advice, as an error has it.
        words: What follows the command: the environment that is meant.
    """
    lines = for_command(hint, (OURS, "install", *words))
    # No installation was run that could be run again.
    return tuple(line.replace("Run it again without", "Without") for line in lines)


def as_pasted(lines: str, shell: ShellName) -> str:
    """Return lines of advice as a shell reads them.

    Args:
        lines: The advice, written for POSIX shells.
        shell: The shell that it is pasted into.
    """
    if shell == "powershell":
        return re.sub(_EXPORT, r"$env:\1 = '\3'", lines)
    return lines
