"""The logs of the last runs, without secrets, for when something has failed: one small file a run."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.base.shell import joined
from gpuinstall.base.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.base.process import Finished

LOGGED = frozenset({"env", "install", "lock", "remove", "sync"})
"""The commands that are logged: those that change something; whoever only looks leaves nothing behind."""
KEPT = 20
"""How many logs stay."""
RUN_BYTES = 1_000_000
"""What one holds at most: all take no more than 20 MB."""
PROGRAM_BYTES = 20_000
"""What a log holds at most of one program's output: its end, where an error stands, and room for fifty programs."""


@dataclass
class RunLog:
    """The log of one run. It begins with the first line; a folder that cannot be written is no fault."""

    command: str
    arguments: Sequence[str]
    path: Path | None = None
    size: int = 0

    def started(self, argv: Sequence[str]) -> None:
        """Write a program's command line."""
        self.write(f"$ {joined(map(in_a_line, argv))}")

    def ended(self, finished: Finished) -> None:
        """Write the messages of a program that failed, or that has written any."""
        if finished.ok and not finished.err:
            return
        self.write(f"{finished.err[-PROGRAM_BYTES:].rstrip()}\n= {finished.status}".lstrip())

    def write(self, text: str) -> None:
        """Add lines, their time before them."""
        with suppress(OSError):
            if self.path is None:
                self.path = _begin(self.command)
                self.write(joined(["gpuinstall", *self.arguments]))
            line = f"{time.strftime('%H:%M:%S')} {visible(text, chr(10))}\n"
            self.size += len(line)
            if self.size <= RUN_BYTES:
                with self.path.open("a", encoding="utf-8", errors="replace") as file:
                    file.write(line)


def in_a_line(word: str) -> str:
    """Return a word of a command line; of a program that stands in it, the beginning."""
    first = next(iter(word.splitlines()), "")
    return word if word == first else f"{first[:60]}…"


def log_folder() -> Path:
    """Return the user's folder of logs."""
    from platformdirs import user_state_path

    return user_state_path("gpuinstall", appauthor=False) / "log"


def _begin(command: str) -> Path:
    """Make room for a new log, which only the user can read; return its path."""
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("????????-??????-*-*.log"))[: 1 - KEPT]:
        old.unlink(missing_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{command}-{os.getpid()}.log"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path
