"""Where facts come from: this machine, or what was recorded of one; a recording has no name of host or user in it."""

from __future__ import annotations

import errno
import getpass
import json
import os
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import quote, unquote

from gpuinstall.files import parse_json, read_raw
from gpuinstall.reporter import Reporter, SilentReporter

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
            return tuple(
                sorted(entry.name for entry in Path(path).iterdir() if entry.name.startswith(start))
            )
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
            os.close(os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0)))
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
        with suppress(OSError):
            return read_raw(self.folder / name, self.folder).decode("utf-8", "replace")
        return None


def home_folder() -> Path:
    """Name the user's folder; the root of the file system for a user whom the system does not know."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def json_or_none(text: str) -> Any:
    """Parse JSON; None where it is malformed."""
    with suppress(ValueError):
        return parse_json(text)
    return None


def recorded_name(path: str) -> str:
    """Name the file of a recording that stands for ``path``."""
    return quote(path.lstrip("/"), safe="/+-._~@")


# What names a card in nvidia-smi's XML, and the programs that run on it.
_NUMBERS = "serial|board_id|board_part_number|chassis_serial_number|pdi"
_SERIAL = re.compile(rf"<({_NUMBERS})>[^<]*<")
_UNIQUE = re.compile(r"^(unique_id|hive_id) [0-9]+$", re.MULTILINE)
"""What names a card in the kernel's topology of compute devices."""
_PROCESSES = re.compile(r"<processes>.*?(?:</processes>|\Z)", re.DOTALL)
# Names that many machines and accounts come with: they name nobody, and stand in the facts themselves.
PUBLIC = {"/root", "root", "localhost", "linux", "debian", "ubuntu", "fedora", "rocky", "arch", "nixos", "nvidia",
          "tegra", "jetson", "cuda", "docker"}  # fmt: skip

_HOME = re.compile(r"(?<=/home/)[^/\s\"|:]+")
_BUILDER = re.compile(r"\([\w.-]+@[\w.-]+\)")


@dataclass(frozen=True)
class Recorder:
    """This machine, every answer of which is also written into ``folder``."""

    folder: Path
    private: tuple[tuple[str, str], ...]
    machine: ThisMachine = field(default_factory=ThisMachine)
    is_recorded: bool = True

    def text(self, path: str, most: int = -1) -> str | None:
        """Read a file."""
        return self._kept(recorded_name(path), self.machine.text(path, most))

    def names(self, path: str, start: str = "") -> tuple[str, ...]:
        """List a folder; its files are noted empty until they are read."""
        names = self.machine.names(path, start)
        for name in names:
            target = self.folder / recorded_name(f"{path}/{name}")
            if not self.machine.is_folder(f"{path}/{name}") and not target.exists():
                self._kept(recorded_name(f"{path}/{name}"), "")
        return names

    def link(self, path: str) -> str | None:
        """Read a link."""
        return self._kept(recorded_name(path), self.machine.link(path))

    def access(self, path: str) -> Access | None:
        """Try a device node."""
        access = self.machine.access(path)
        self._kept(recorded_name(path), access)
        return access

    def variable(self, name: str) -> str | None:
        """Read an environment variable."""
        value = self.machine.variable(name)
        if value is not None:
            file = self.folder / ENVIRONMENT
            variables = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            self._kept(
                ENVIRONMENT, json.dumps({**variables, name: value}, indent=1, sort_keys=True) + "\n"
            )
        return value

    def answer(self, name: str, ask: Callable[[], str]) -> str:
        """Ask."""
        response = self.machine.answer(name, ask)
        self._kept(name, response)
        return response

    def wait(self, text: str) -> None:
        """Tell whoever runs the probe."""
        self.machine.wait(text)

    def _kept(self, name: str, text: str | None) -> str | None:
        if text is not None:
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(scrubbed(text, self.private), encoding="utf-8", newline="")
        return text


def recorder(folder: Path, reporter: Reporter) -> Recorder:
    """Record this machine into ``folder``."""
    return Recorder(folder, own_words(), ThisMachine(reporter))


def own_words() -> tuple[tuple[str, str], ...]:
    """Name what must not leave this machine."""
    user = ""
    with suppress(KeyError, OSError, ImportError):
        user = getpass.getuser()
    return private_words(platform.node(), user, str(home_folder()))


def private_words(host: str, user: str, home: str) -> tuple[tuple[str, str], ...]:
    """Name what must not leave the machine, and what stands for it; the home folder goes before the user's name."""
    words = ((home, "/home/user"), (host, "host"), (host.partition(".")[0], "host"), (user, "user"))
    return tuple(
        (word, stand_in) for word, stand_in in words if len(word) > 2 and word not in PUBLIC
    )


def scrubbed(text: str, private: tuple[tuple[str, str], ...]) -> str:
    """Take serial numbers, host and user names, and the names of running programs out of a text."""
    text = _PROCESSES.sub("<processes></processes>", _SERIAL.sub(r"<\1>removed<", text))
    text = _UNIQUE.sub(r"\1 0", text)
    text = _HOME.sub("user", _BUILDER.sub("(builder@host)", text))
    for word, stand_in in private:
        text = re.sub(rf"(?<![\w]){re.escape(word)}(?![\w])", stand_in, text)
    return text
