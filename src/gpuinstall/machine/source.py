"""Where facts come from: this machine, or what the tests have of one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol

from gpuinstall.base.files import parse_json
from gpuinstall.base.reporter import Reporter, SilentReporter
from gpuinstall.base.values import dataclass

Access = Literal["open", "denied"]


class Source(Protocol):
    """A machine's files, its variables, and the answers of its libraries and programs. Paths are absolute."""

    def text(self, path: str, most: int = -1) -> str | None:
        """Return a file; None if there is none or it may not be read.

        Args:
            path: Its path.
            most: How many bytes to read at most; -1: all.
        """

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """Return the names in a folder that begin with ``start``, sorted; empty if there is no such folder."""

    def link(self, path: str) -> str | None:
        """Return where a symbolic link points."""

    def access(self, path: str) -> Access | None:
        """Return whether a device node may be opened for reading and writing; None if there is none."""

    def variable(self, name: str) -> str | None:
        """Return an environment variable."""

    def answer(self, name: str, ask: Callable[[], str]) -> str:
        """Return what a library or a program of the machine answers.

        Args:
            name: What it is called where answers are played.
            ask: Asks; not called where the answer is played.
        """

    def wait(self, text: str) -> None:
        """Report what the probe waits for."""


@dataclass(frozen=True)
class ThisMachine:
    """The machine that this process runs on."""

    reporter: Reporter = field(default_factory=SilentReporter)

    def text(self, path: str, most: int = -1) -> str | None:
        """Return a file."""
        try:
            with Path(path).open("rb") as file:
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return None

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a folder."""
        try:
            # A Path for each of 2,000 programs takes longer than all else here.
            names = os.listdir(path)  # noqa: PTH208
        except OSError:
            return ()
        return tuple(sorted(name for name in names if name.startswith(start)))

    def link(self, path: str) -> str | None:
        """Return where a link points."""
        try:
            return str(Path(path).readlink())
        except OSError:
            return None

    def access(self, path: str) -> Access | None:
        """Open the node without waiting for the card: the device controller of a container denies only then."""
        # Windows has no such flag.
        without_waiting = getattr(os, "O_NONBLOCK", 0)
        try:
            os.close(os.open(path, os.O_RDWR | without_waiting))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            return "denied"
        except OSError:
            # Such as a card that is lost: the node itself may be used.
            return "open"
        return "open"

    def variable(self, name: str) -> str | None:
        """Return an environment variable."""
        return os.environ.get(name)

    def answer(self, name: str, ask: Callable[[], str]) -> str:
        """Ask."""
        return ask()

    def wait(self, text: str) -> None:
        """Report it to whoever runs the probe."""
        self.reporter.wait(text)


def home_folder() -> Path:
    """Return the user's folder; the root of the file system for a user whom the system does not know."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def json_or_none(text: str) -> Any:
    """Return what JSON holds; None if it is malformed."""
    with suppress(ValueError):
        return parse_json(text)
    return None
