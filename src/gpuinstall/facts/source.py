"""Where a machine is read: this one, or the recording of another. Every reader of the probe goes through here."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote, unquote

from gpuinstall.files import parse_json
from gpuinstall.reporter import Reporter, SilentReporter

if TYPE_CHECKING:
    from collections.abc import Callable

Access = Literal["open", "denied"]

ENVIRONMENT = "environment.json"


class Source(Protocol):
    """A machine's files, its variables, and the answers of its libraries and programs. Paths are absolute."""

    def text(self, path: str, most: int = -1) -> str | None:
        """Read a file, at most its first ``most`` bytes; None where there is none or it may not be read."""

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List the names in a folder that begin with ``start``, sorted; empty where there is no such folder."""

    def link(self, path: str) -> str | None:
        """Read where a symbolic link points."""

    def access(self, path: str) -> Access | None:
        """Say whether a device node may be opened for reading and writing; None where there is none."""

    def variable(self, name: str) -> str | None:
        """Read an environment variable."""

    def answer(self, name: str, ask: Callable[[], str]) -> str:
        """Ask a library or a program of this machine; of a recorded one, read what was answered then."""

    def wait(self, text: str) -> None:
        """Say what is waited for."""

    @property
    def is_recorded(self) -> bool:
        """Say whether what is read is also written down."""


@dataclass(frozen=True)
class ThisMachine:
    """The machine that this process runs on."""

    reporter: Reporter = field(default_factory=SilentReporter)
    is_recorded: bool = False

    def text(self, path: str, most: int = -1) -> str | None:
        """Read a file."""
        try:
            with Path(path).open("rb") as file:
                return file.read(most).decode("utf-8", "replace")
        except OSError:
            return None

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a folder."""
        try:
            return tuple(sorted(entry.name for entry in Path(path).iterdir() if entry.name.startswith(start)))
        except OSError:
            return ()

    def is_folder(self, path: str) -> bool:
        """Say whether something is a folder."""
        return Path(path).is_dir()

    def link(self, path: str) -> str | None:
        """Read a link."""
        try:
            return str(Path(path).readlink())
        except OSError:
            return None

    def access(self, path: str) -> Access | None:
        """Open the node without waiting for the card: the device controller of a container denies only then."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            return "denied" if error.errno in (errno.EACCES, errno.EPERM) else "open"
        return "open"

    def variable(self, name: str) -> str | None:
        """Read an environment variable."""
        return os.environ.get(name)

    def answer(self, name: str, ask: Callable[[], str]) -> str:  # noqa: ARG002
        """Ask."""
        return ask()

    def wait(self, text: str) -> None:
        """Tell whoever runs the probe."""
        self.reporter.wait(text)


@dataclass(frozen=True)
class Recording:
    """A recorded machine: a folder that holds its files below their own paths, and one file for each answer.

    A link is a file that holds its target, a device node one that holds ``open`` or ``denied``; characters that
    a file system may refuse are percent-encoded.
    """

    folder: Path
    is_recorded: bool = False

    def text(self, path: str, most: int = -1) -> str | None:  # noqa: ARG002
        """Read a file."""
        return self._read(recorded_name(path))

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a folder."""
        names = map(unquote, ThisMachine().names(str(self.folder / recorded_name(path))))
        return tuple(sorted(name for name in names if name.startswith(start)))

    def link(self, path: str) -> str | None:
        """Read a link."""
        target = self.text(path)
        return None if target is None else target.strip()

    def access(self, path: str) -> Access | None:
        """Read what a device node allowed."""
        state = self.text(path)
        return None if state is None else "denied" if state.strip() == "denied" else "open"

    def variable(self, name: str) -> str | None:
        """Read an environment variable."""
        variables = json_or_none(self._read(ENVIRONMENT) or "")
        value = variables.get(name) if isinstance(variables, dict) else None
        return None if value is None else str(value)

    def answer(self, name: str, ask: Callable[[], str]) -> str:  # noqa: ARG002
        """Read what was answered; empty where it was not recorded."""
        return self._read(name) or ""

    def wait(self, text: str) -> None:
        """Wait for nothing."""

    def _read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_bytes().decode("utf-8", "replace")
        except OSError:
            return None


def json_or_none(text: str) -> Any:
    """Parse JSON; None where it is malformed."""
    with suppress(ValueError):
        return parse_json(text)
    return None


def recorded_name(path: str) -> str:
    """Name the file of a recording that stands for ``path``."""
    return quote(path.lstrip("/"), safe="/+-._~@")
