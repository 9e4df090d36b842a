"""Where an environment lies, and the folder beside it that holds its transactions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """One environment at ``venv`` (absolute); its locks lie in the folder that holds it.

    Everything else lies in ``<venv>.gpuinstall`` on the same file system: the environment being built, the previous
    one, the journal of an exchange, and the file that keeps two runs apart. Git ignores it.
    """

    venv: Path

    @classmethod
    def at(cls, venv: Path) -> Place:
        """Make the path absolute; a link is followed, so that what it leads to is replaced and the link stays."""
        return cls(venv.resolve() if venv.is_symlink() else Path(os.path.abspath(venv)))  # noqa: PTH100  keeps links above

    @property
    def folder(self) -> Path:
        """The folder that holds the environment and its locks."""
        return self.venv.parent

    @property
    def work(self) -> Path:
        """The folder of the transactions."""
        return self.venv.with_name(f"{self.venv.name}.gpuinstall")

    @property
    def staging(self) -> Path:
        """The environment being built."""
        return self.work / "staging"

    @property
    def previous(self) -> Path:
        """The environment that was replaced last."""
        return self.work / "previous"

    @property
    def aside(self) -> Path:
        """Where the old environment waits between two renames, on systems that cannot exchange two folders."""
        return self.work / "aside"

    @property
    def journal(self) -> Path:
        """What an exchange is about to do."""
        return self.work / "journal.json"

    @property
    def private_lock(self) -> Path:
        """The copy of the lock that uv installs from."""
        return self.work / "pylock.private.toml"

    @property
    def guard(self) -> Path:
        """The file that a run holds locked."""
        return self.work / "lock"


def interpreter(venv: Path) -> Path:
    """The Python of an environment."""
    return venv / "Scripts" / "python.exe" if os.name == "nt" else venv / "bin" / "python"
