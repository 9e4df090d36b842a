"""Commands that help people, as values: quoted for the shell in use only when they are printed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Container, Sequence
from pathlib import Path

from gpuinstall.base.shell import joined, quoted
from gpuinstall.base.values import Value

NOTE = "   # "
"""What stands between a command and the words about it, which a shell ignores."""
OURS = "gpuinstall"
_OPERATORS = frozenset(("&&", "||", "|", ";"))
_AGAIN = re.compile(r"Run it again with (?P<words>--.*?)(?:: (?P<note>.*))?")
_OPTION = re.compile(r"(?<!\S)--[\w-]+")


class Advice(Value):
    """A command that helps. As text it is one line that can be pasted."""

    program: str
    arguments: tuple[str, ...] = ()
    """As they are before a shell's quotes."""

    place: Path | None = None
    """The folder that it has to run in; None: any."""

    note: str = ""
    """What it does, in a few words."""

    @classmethod
    def parse(cls, line: str) -> Advice | None:
        """Return a line that is one command and nothing else; None for any other."""
        try:
            program, *arguments = shlex.split(
                line,
                comments=True,
                posix=os.name != "nt",
            )
        except ValueError:  # a quote without its other half, or no word at all
            return None
        if not _OPERATORS.isdisjoint(arguments):
            return None
        _, _, note = line.partition(NOTE)
        return cls(program, tuple(arguments), note=note)

    @property
    def is_possible(self) -> bool:
        """Whether its program is on PATH; ours is there by whatever name it was started."""
        from shutil import which

        return self.program == OURS or which(self.program) is not None

    def __str__(self) -> str:
        program = uv_program() if self.program == "uv" else self.program
        line = joined((program, *self.arguments))
        if self.place and self.place != Path.cwd():
            line = f"cd {quoted(self.place)} && {line}"
        return f"{line}{NOTE}{self.note}" if self.note else line


def uv_program() -> str:
    """Return how a person starts uv: by its name, or by the path of ours if it is not on PATH."""
    from shutil import which  # with decompressors that a plan does without

    if which("uv"):
        return "uv"
    from uv import find_uv_bin

    return str(find_uv_bin())


def for_options(hint: str, options: Container[str]) -> str:
    """Return an advice without the lines that name an option which the command that was run does not have."""
    lines = []
    for line in hint.splitlines():
        again = _AGAIN.fullmatch(line)
        added = _OPTION.findall(again["words"]) if again else ()
        if all(option in options for option in added):
            lines.append(line)
    return "\n".join(lines)


def for_install(hint: str, words: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines of an advice, and commands of ``install`` in place of those to run a command again.

    Args:
        hint: The advice.
        words: What follows ``gpuinstall install`` in each of them.
    """
    lines = []
    for line in hint.splitlines():
        again = _AGAIN.fullmatch(line)
        if again is None:
            lines.append(line.replace("Run it again without", "Without"))
            continue
        command = f"{joined((OURS, 'install', *words))} {again['words']}"
        note = again["note"]
        lines.append(f"{command}{NOTE}{note}" if note else command)
    return tuple(lines)
