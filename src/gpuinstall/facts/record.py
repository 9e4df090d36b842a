"""Recording a machine: whatever the readers read is written down, with serials, host and user names taken out."""

from __future__ import annotations

import getpass
import json
import platform
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuinstall.facts.host import home_folder
from gpuinstall.facts.source import ENVIRONMENT, Access, ThisMachine, recorded_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuinstall.reporter import Reporter

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
            self._kept(ENVIRONMENT, json.dumps({**variables, name: value}, indent=1, sort_keys=True) + "\n")
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
    return tuple((word, stand_in) for word, stand_in in words if len(word) > 2 and word not in PUBLIC)


def scrubbed(text: str, private: tuple[tuple[str, str], ...]) -> str:
    """Take serial numbers, host and user names, and the names of running programs out of a text."""
    text = _PROCESSES.sub("<processes></processes>", _SERIAL.sub(r"<\1>removed<", text))
    text = _UNIQUE.sub(r"\1 0", text)
    text = _HOME.sub("user", _BUILDER.sub("(builder@host)", text))
    for word, stand_in in private:
        text = re.sub(rf"(?<![\w]){re.escape(word)}(?![\w])", stand_in, text)
    return text
