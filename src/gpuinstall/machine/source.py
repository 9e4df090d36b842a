"""Sources of machine facts: this machine or, in tests, a recorded machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from gpuinstall.base.process import Finished
from gpuinstall.base.reporter import Reporter
from gpuinstall.machine.children import DRIVER_SECONDS, Command, run_children

Access = Literal["open", "denied"]


class Source:
    """Files, variables, libraries, and programs of this machine.

    A recorded machine overrides the methods. All paths are absolute.
    """

    def __init__(self, reporter: Reporter | None = None) -> None:
        self.reporter = reporter or Reporter()

    def text(self, path: str, most: int = -1) -> str | None:
        """Return the text of a file, or None if it cannot be read.

        Args:
            path: The file.
            most: The maximum number of bytes, or -1 for all.
        """
        try:
            with Path(path).open("rb") as file:
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return None

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """Return the sorted names in a folder that begin with ``start``."""
        try:
            # os.listdir is faster, because it creates no Path for each of 2,000 programs.
            names = os.listdir(path)  # noqa: PTH208
        except OSError:
            return ()
        return tuple(sorted(name for name in names if name.startswith(start)))

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link."""
        try:
            return str(Path(path).readlink())
        except OSError:
            return None

    def access(self, path: str) -> Access | None:
        """Return whether a device node can be opened for reading and writing.

        The node is opened, because a container's device controller acts only on ``open``, not on permission bits.

        Returns:
            ``open`` or ``denied``, or None if the node is missing.
        """
        # Windows does not have this flag.
        nonblocking = getattr(os, "O_NONBLOCK", 0)
        try:
            os.close(os.open(path, os.O_RDWR | nonblocking))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            return "denied"
        except OSError:
            # This process may access the node, but the GPU may be lost.
            return "open"
        return "open"

    def variable(self, name: str) -> str | None:
        """Return an environment variable."""
        return os.environ.get(name)

    def answer(self, name: str, ask: Callable[[], str]) -> str:
        """Return the result of a query of a driver library or program.

        Args:
            name: The name of the result in a recorded machine.
            ask: The function that runs the query. A recorded machine does not call it.
        """
        return ask()

    def run_children(self, commands: Mapping[str, Command]) -> Sequence[Finished]:
        """Run parallel child processes that query driver libraries.

        Args:
            commands: The arguments and environment of each child process, by library.
        """
        message = f"waiting for the driver, up to {DRIVER_SECONDS:.0f} s"
        return run_children(
            list(commands.values()),
            DRIVER_SECONDS,
            waiting=lambda: self.reporter.wait(message),
        )
