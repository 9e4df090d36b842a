"""Where facts come from: this machine, or what the tests have of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpuinstall.base.reporter import Reporter
from gpuinstall.machine.children import DRIVER_SECONDS, run_children

if TYPE_CHECKING:
    from gpuinstall.base.process import Finished
    from gpuinstall.machine.children import Command

Access = Literal["open", "denied"]


class Source:
    """A machine's files, its variables, and the answers of its libraries and programs: of the one that we run on.

    A recorded machine overrides the methods. Paths are absolute.
    """

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or Reporter()

    def text(self, path: str, most: int = -1) -> str | None:
        """Return a file; None if there is none or it may not be read.

        Args:
            path: Its path.
            most: How many bytes to read at most; -1: all.
        """
        try:
            with Path(path).open("rb") as file:
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return None

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """Return the names in a folder that begin with ``start``, sorted; empty if there is no such folder."""
        try:
            # A Path for each of 2,000 programs takes longer than all else here.
            names = os.listdir(path)  # noqa: PTH208
        except OSError:
            return ()
        return tuple(sorted(name for name in names if name.startswith(start)))

    def link(self, path: str) -> str | None:
        """Return where a symbolic link points."""
        try:
            return str(Path(path).readlink())
        except OSError:
            return None

    def access(self, path: str) -> Access | None:
        """Return whether a device node may be opened for reading and writing; None if there is none.

        The card is not waited for: the device controller of a container denies only when a node is opened.
        """
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
        """Return what a library or a program of the machine answers.

        Args:
            name: What it is called where answers are played.
            ask: Asks; not called where the answer is played.
        """
        return ask()

    def run_children(self, commands: Mapping[str, Command]) -> Sequence[Finished]:
        """Return how children ended that ask libraries of the driver, all at once.

        Args:
            commands: The words and the environment of each, by its library.
        """
        message = f"waiting for {' and '.join(commands)}, up to {DRIVER_SECONDS:.0f} s"
        return run_children(
            list(commands.values()),
            DRIVER_SECONDS,
            waiting=lambda: self.reporter.wait(message),
        )


def home_folder() -> Path:
    """Return the user's folder; the root of the file system for a user whom the system does not know."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
