"""Where facts come from: this machine, or what was recorded of one; a recording has no name of host or user in it."""

from __future__ import annotations

import getpass
import os
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote, unquote

from gpuinstall.files import parse_json, read_raw
from gpuinstall.regex import regex
from gpuinstall.reporter import Reporter, SilentReporter
from gpuinstall.values import dataclass

Access = Literal["open", "denied"]

ENVIRONMENT = "environment.json"
"""The file of a recording with the environment variables that were read."""

PUBLIC = {
    "/root",
    "root",
    "localhost",
    "linux",
    "debian",
    "ubuntu",
    "fedora",
    "rocky",
    "arch",
    "nixos",
    "nvidia",
    "tegra",
    "jetson",
    "cuda",
    "docker",
}
"""Names that many machines and accounts come with: they identify no user, and the facts themselves contain them."""

_NUMBERS = "serial|board_id|board_part_number|chassis_serial_number|pdi"
"""The elements of nvidia-smi's XML that identify a card."""

_REPLACEMENTS = (
    (regex(rf"<({_NUMBERS})>[^<]*<"), r"<\1>removed<"),
    # The programs that run on a card.
    (
        regex(r"<processes>.*?(?:</processes>|\Z)", re.DOTALL),
        "<processes></processes>",
    ),
    # What identifies a card in the kernel's topology of compute devices.
    (regex(r"^(unique_id|hive_id) [0-9]+$", re.MULTILINE), r"\1 0"),
    # Who built the kernel, in its version.
    (regex(r"\([\w.-]+@[\w.-]+\)"), "(builder@host)"),
    (regex(r"(?<=/home/)[^/\s\"|:]+"), "user"),
)
"""What is private on every machine, and what a recording has in its place, in the order of replacing."""

PrivateWords = tuple[tuple[str, str], ...]
"""The words that must not leave a machine, each with the one that replaces it."""


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
            name: The file of a recording that holds the answer.
            ask: Asks; not called for a recorded machine, whose answer is read.
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

    def is_folder(self, path: str) -> bool:
        """Whether something is a folder."""
        return Path(path).is_dir()

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

    def answer(self, name: str, ask: Callable[[], str]) -> str:  # noqa: ARG002
        """Ask."""
        return ask()

    def wait(self, text: str) -> None:
        """Report it to whoever runs the probe."""
        self.reporter.wait(text)


@dataclass(frozen=True)
class Recording:
    """A recorded machine.

    The folder holds its files below their own paths, and one file for each answer. A link is a file that holds its
    target, a device node one that holds ``open`` or ``denied``; characters that a file system may refuse are
    percent-encoded.
    """

    folder: Path

    def text(self, path: str, most: int = -1) -> str | None:  # noqa: ARG002
        """Return a file."""
        return self._read(recorded_name(path))

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a folder."""
        recorded = self.folder / recorded_name(path)
        names = map(unquote, ThisMachine().names(str(recorded)))
        return tuple(sorted(name for name in names if name.startswith(start)))

    def link(self, path: str) -> str | None:
        """Return where a link pointed."""
        target = self.text(path)
        return None if target is None else target.strip()

    def access(self, path: str) -> Access | None:
        """Return what a device node allowed."""
        state = self.text(path)
        if state is None:
            return None
        return "denied" if state.strip() == "denied" else "open"

    def variable(self, name: str) -> str | None:
        """Return an environment variable."""
        variables = json_or_none(self._read(ENVIRONMENT) or "")
        if not isinstance(variables, dict):
            return None
        value = variables.get(name)
        return None if value is None else str(value)

    def answer(self, name: str, ask: Callable[[], str]) -> str:  # noqa: ARG002
        """Return what was answered; empty if it was not recorded."""
        return self._read(name) or ""

    def wait(self, text: str) -> None:
        """Wait for nothing."""

    def _read(self, name: str) -> str | None:
        with suppress(OSError):
            return read_raw(self.folder / name, self.folder).decode("utf-8", "replace")
        return None


def recorded_name(path: str) -> str:
    """Return the file of a recording that stands for ``path``."""
    return quote(path.lstrip("/"), safe="/+-._~@")


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


def own_words() -> PrivateWords:
    """Return the words that must not leave this machine."""
    user = ""
    with suppress(KeyError, OSError, ImportError):
        user = getpass.getuser()
    return private_words(
        platform.node(),
        user,
        str(home_folder()),
    )


def private_words(
    host: str,
    user: str,
    home: str,
) -> PrivateWords:
    """Return the words that must not leave a machine.

    Args:
        host: Its name, with or without the domain.
        user: The name of the user's account.
        home: The path of the user's folder.
    """
    words = (
        # Before the user's name, which it contains.
        (home, "/home/user"),
        (host, "host"),
        (host.partition(".")[0], "host"),
        (user, "user"),
    )
    private = []
    for word, replacement in words:
        # One or two letters stand in many texts without being the name.
        if len(word) > 2 and word not in PUBLIC:
            private.append((word, replacement))
    return tuple(private)


def scrubbed(text: str, private: PrivateWords) -> str:
    """Return a text without serial numbers, host and user names, and the names of running programs."""
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    for word, replacement in private:
        whole_word = rf"(?<!\w){re.escape(word)}(?!\w)"
        text = re.sub(whole_word, replacement, text)
    return text
