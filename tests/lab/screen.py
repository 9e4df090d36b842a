"""A terminal of so many columns (a pty), in this process."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


@contextmanager
def screen(columns: int) -> Iterator[tuple[TextIO, list[str]]]:
    """A terminal of so many columns; what was drawn on it is in the list afterwards."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    raw, drawn = bytearray(), list[str]()

    def read() -> None:
        with suppress(OSError):  # Linux says so that nobody writes any more
            while chunk := os.read(ours, 4096):
                raw.extend(chunk)

    reader = Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield stream, drawn
    reader.join()
    os.close(ours)
    drawn += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.decode()).replace("\r", "\n").split("\n")
