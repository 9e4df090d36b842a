"""Files written so that a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from gpuinstall.errors import InstallationError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def write_atomically(path: Path, text: str, folder: Path | None = None) -> None:
    """Write ``text`` beside ``path``, or in ``folder``, and rename it; raise InstallationError if it may not be."""
    with written(path, folder) as file:
        file.write(text.encode())


@contextmanager
def written(path: Path, folder: Path | None = None) -> Iterator[IO[bytes]]:
    """Write a file beside ``path`` that takes its place at the end, if nothing went wrong; raise InstallationError."""
    part = (folder or path.parent) / f".{path.name[:40]}.{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a file that a person named; raise UsageError where it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError("file-unwritable", f"{path} cannot be written: {error.strerror}") from None


def unwritable(path: Path, error: OSError) -> InstallationError:
    """Say that ``path`` cannot be written, and why."""
    return InstallationError(
        "not-writable",
        f"{path} cannot be written: {error.strerror}",
        hint=f"ls -ld {path.parent}; df -h {path.parent}",
    )
