"""Commands that help people, as values: quoted for the shell in use only where they are printed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

NOTE = "   # "
"""What stands between a command and the words about it, which a shell ignores."""


@dataclass(frozen=True)
class Advice:
    """A command that helps: a program of this machine and its arguments, as they are before any shell quotes them.

    ``place`` is the folder that it has to run in, None for any. ``needs`` are further programs that it starts,
    ``note`` says in a few words what it does. As text it is one line that can be pasted.
    """

    program: str
    arguments: tuple[str, ...] = ()
    place: Path | None = None
    needs: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        elsewhere = self.place is not None and self.place != Path.cwd()
        move = f"cd {quoted(self.place)} && " if elsewhere and self.place else ""
        return move + " ".join(map(quoted, (self.program, *self.arguments))) + (self.note and NOTE + self.note)


def quoted(word: Path | str) -> str:
    """Write a path or a word as this system's shells read it as one."""
    if os.name == "nt":
        return f'"{word}"' if re.search(r"[^\w.:\\/+=-]", str(word)) else str(word)
    return quote(str(word))
