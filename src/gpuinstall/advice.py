"""Commands that help people, as values: quoted for the shell in use only where they are printed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuinstall.shell import joined, quoted

NOTE = "   # "
"""What stands between a command and the words about it, which a shell ignores."""
OURS = "gpuinstall"
_OPERATORS = frozenset(("&&", "||", "|", ";"))
_SAME = re.compile(r"^the same (?:again|with (?P<more>.+?)|without (?P<less>\S+))(?P<note>   # .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Advice:
    """A command that helps: a program and its arguments, as they are before a shell's quotes.

    ``place`` is the folder that it has to run in, None for any. ``needs`` are further programs that it starts,
    ``note`` says in a few words what it does. As text it is one line that can be pasted.
    """

    program: str
    arguments: tuple[str, ...] = ()
    place: Path | None = None
    needs: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def parse(cls, line: str) -> Advice | None:
        """Read a line that is one command and nothing else; None for any other."""
        try:
            program, *arguments = shlex.split(line, comments=True, posix=os.name != "nt")
        except ValueError:  # a quote without its other half, or no word at all
            return None
        note = line.partition(NOTE)[2]
        return None if _OPERATORS.intersection(arguments) else cls(program, tuple(arguments), note=note)

    @property
    def is_possible(self) -> bool:
        """Say whether the programs are on PATH; ours is by whatever name it was started."""
        return all(program == OURS or shutil.which(program) for program in (self.program, *self.needs))

    def __str__(self) -> str:
        move = f"cd {quoted(self.place)} && " if self.place and self.place != Path.cwd() else ""
        return move + joined((self.program, *self.arguments)) + (self.note and NOTE + self.note)


def in_full(text: str, words: Sequence[str]) -> str:
    """Write each line such as ``the same with --replace`` as the command line that was run, without a login."""
    plain = [re.sub(r"(?<=://)[^/\s@]+@", "", word) for word in words]

    def command(same: re.Match[str]) -> str:
        kept = joined(word for word in plain if word != same["less"])
        return f"{kept} {same['more'] or ''}".rstrip() + (same["note"] or "")

    return _SAME.sub(command, text)
