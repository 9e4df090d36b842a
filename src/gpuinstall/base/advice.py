"""Commands in hints, which are quoted for a shell when printed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Mapping, Sequence
from os.path import isdir
from pathlib import Path

from gpuinstall.base.shell import join_command, quote_word
from gpuinstall.base.text import redact
from gpuinstall.base.values import Value
from gpuinstall.base.version import __version__

NOTE = "   # "
"""The separator between a command and its note, which a shell ignores."""
PROGRAM = "gpuinstall"
_AGAIN = r"Run it again (?:with (?P<added>(?:--|torch==).*?)|without (?P<omitted>--[^,:]+))(?:: (?P<note>.*))?"
_OPTION = r"(?<!\S)(--[\w-]+)(?: (?!--)(\S+))?"


class Advice(Value):
    """Command in a hint, formatted as one line to paste into a shell."""

    program: str
    arguments: tuple[str, ...] = ()
    """The words of the command, unquoted."""

    place: Path | None = None
    """The folder in which to run the command. None: any folder."""

    note: str = ""
    """A short description of the command's effect."""

    def __str__(self) -> str:
        line = join_command((self.program, *self.arguments))
        if self.place and self.place != Path.cwd():
            line = f"cd {quote_word(self.place)} && {line}"
        return f"{line}{NOTE}{self.note}" if self.note else line


def environment_advice(
    venv: Path | str, *words: str, place: Path | None = None
) -> Advice:
    """Return a hint with a gpuinstall command for an environment.

    Args:
        venv: The folder of the environment.
        words: The command.
        place: The folder in which to run the command. None: any folder.
    """
    return Advice(PROGRAM, (*words, "--venv", str(venv)), place)


def find_command_file() -> Path:
    """Return the path of the gpuinstall command that updates preserve."""
    home = find_tool_folder()
    name = "gpuinstall.exe" if os.name == "nt" else "gpuinstall"
    return home / "bin" / name if home else Path(sys.executable).with_name("gpuinstall")


def find_tool_folder() -> Path | None:
    """Return the folder where bootstrap.py installed gpuinstall, or None."""
    environment = Path(sys.prefix)
    is_from_bootstrap = environment.name.startswith(f"{__version__}-")
    home = environment.parent
    return home if is_from_bootstrap and isdir(home / "bin") else None


def expand_hint(
    hint: str,
    command: Sequence[str],
    rest: Sequence[str] = (),
    options: Container[str] | None = None,
) -> tuple[str, ...]:
    """Return the lines of a hint, with "Run it again" as a full command.

    Args:
        hint: The hint.
        command: The words of the command line before an added option.
        rest: The words after an added option, such as a program to run.
        options: The options of the command. Lines that add another option are
            omitted. None allows all options.
    """
    lines = []
    for line in hint.splitlines():
        again = re.fullmatch(_AGAIN, line)
        if again is None:
            lines.append(line)
            continue
        added = again["added"] or ""
        changed = dict(re.findall(_OPTION, added or again["omitted"]))
        kept = _remove_options(command, changed)
        if not added and kept == [*command]:
            lines.append(line)  # the option is not on the command line
        elif not added or options is None or all(one in options for one in changed):
            note = again["note"]
            words = join_command(kept), added, join_command(rest)
            run = redact(" ".join(filter(None, words)))
            lines.append(f"{run}{NOTE}{note}" if note else run)
    return tuple(lines)


def _remove_options(command: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Remove options and their values from a command line.

    Args:
        command: The words.
        options: The values by the names of the options; empty for a flag.
    """
    words: list[str] = []
    before = ""
    for word in command:
        name = word.partition("=")[0]
        # A flag has no value, so keep the next word.
        if name not in options and not options.get(before):
            words.append(word)
        before = word
    return words


def expand_install_hint(hint: str, words: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines of a hint for ``gpuinstall install``.

    Args:
        hint: The hint of an error.
        words: Arguments of the command, such as the environment.
    """
    lines = expand_hint(hint, (PROGRAM, "install", *words))
    # No installation has run, so there is none to run again.
    return tuple(line.replace("Run it again without", "Without") for line in lines)
