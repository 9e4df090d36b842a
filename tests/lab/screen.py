"""Run code in a pseudoterminal, and read its final screen."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, TextIO

import pyte


@contextmanager
def screen(columns: int) -> Iterator[tuple[TextIO, list[str]]]:
    """A terminal with some columns; its output is in the list afterwards."""
    with (
        opened(columns) as (theirs, raw),
        os.fdopen(theirs, "w", encoding="utf-8") as stream,
    ):
        drawn = list[str]()
        yield stream, drawn
    drawn += (
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.decode())
        .replace("\r", "\n")
        .split("\n")
    )


def shown(raw: bytes, columns: int, lines: int) -> pyte.Screen:
    """Return the text on a terminal screen after this output."""
    emulated = pyte.Screen(columns, lines)
    pyte.ByteStream(emulated).feed(raw)
    return emulated


@contextmanager
def opened(columns: int, lines: int = 24) -> Iterator[tuple[int, bytearray]]:
    """A terminal and its output, available once the user closes it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    raw = bytearray()

    def read():
        with suppress(OSError):  # Linux reports that no writer is left
            while chunk := os.read(ours, 4096):
                raw.extend(chunk)

    reader = Thread(target=read)
    reader.start()
    yield theirs, raw
    reader.join()
    os.close(ours)


def type_text(
    text: str, words: Sequence[str], **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a program that reads this text from a terminal."""
    ours, theirs = pty.openpty()
    os.write(ours, text.encode())
    done = subprocess.run(
        words, stdin=theirs, capture_output=True, text=True, check=False, **options
    )
    os.close(ours)
    os.close(theirs)
    return done
