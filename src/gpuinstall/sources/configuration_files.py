"""Where pip and uv look for their configuration.

Sources: pip's "Configuration" topic (pip.pypa.io) and uv's "Configuration files" (docs.astral.sh/uv), read 2026-11.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from gpuinstall.base.values import dataclass

PIP_NAME = "pip.ini" if sys.platform == "win32" else "pip.conf"
_UV_FILE = Path("uv", "uv.toml")


@dataclass(frozen=True)
class ConfigurationFiles:
    """The paths of the files, which need not be there; in each list, a later one counts more."""

    environ: Mapping[str, str]

    @property
    def pip_near(self) -> list[Path]:
        """The file of the environment that is active, and the one that the variable names."""
        requested = self.environ.get("PIP_CONFIG_FILE")
        if requested == os.devnull:
            return []
        files = []
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            prefix = self.environ.get(variable)
            if prefix:
                files.append(Path(prefix, PIP_NAME))
                break
        if requested:
            files.append(Path(requested))
        return files

    @property
    def pip_user(self) -> list[Path]:
        """The files of the machine and of the user, whose own do not count if the variable names another."""
        requested = self.environ.get("PIP_CONFIG_FILE")
        if requested == os.devnull:
            return []
        if requested and Path(requested).exists():
            return self._pip_machine
        return [*self._pip_machine, *self.pip_own]

    @property
    def _pip_machine(self) -> list[Path]:
        if sys.platform == "darwin":
            return [Path("/Library/Application Support/pip", PIP_NAME)]
        folders = [folder / "pip" for folder in self._machine_folders]
        if sys.platform != "win32":
            folders.append(Path("/etc"))
        return [folder / PIP_NAME for folder in folders]

    @property
    def pip_own(self) -> list[Path]:
        """The user's own files of pip."""
        config = self.user_folder
        if sys.platform == "win32":
            return [self._home / "pip" / PIP_NAME, config / "pip" / PIP_NAME]
        if sys.platform == "darwin":
            application_support = self._home / "Library/Application Support"
            if (application_support / "pip").is_dir():
                config = application_support
        return [self._home / ".pip" / PIP_NAME, config / "pip" / PIP_NAME]

    @property
    def uv_user(self) -> list[Path]:
        """The first of the machine's files that is there and the user's own, or the one that the variable names."""
        if self.environ.get("UV_NO_CONFIG"):
            return []
        requested = self.environ.get("UV_CONFIG_FILE")
        if requested:
            return [Path(requested)]
        folders = self._machine_folders
        if sys.platform != "win32":
            folders.append(Path("/etc"))
        for folder in folders:
            file = folder / _UV_FILE
            if file.is_file():
                return [file, self.uv_own]
        return [self.uv_own]

    @property
    def uv_own(self) -> Path:
        """The user's own file of uv."""
        return self.user_folder / _UV_FILE

    @property
    def _machine_folders(self) -> list[Path]:
        if sys.platform == "win32":
            folder = self.environ.get("PROGRAMDATA", "C:/ProgramData")
            return [Path(folder)]
        folders = self.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        return [Path(folder) for folder in folders.split(":") if folder]

    @property
    def user_folder(self) -> Path:
        """The folder of the user's configuration of all programs."""
        if sys.platform == "win32":
            return Path(self.environ.get("APPDATA") or self._home)
        config = self.environ.get("XDG_CONFIG_HOME")
        return Path(config or self._home / ".config")

    @property
    def _home(self) -> Path:
        home = self.environ.get("HOME") or self.environ.get("USERPROFILE")
        return Path(home or Path.home())


def own_file(tool: str, environ: Mapping[str, str]) -> Path:
    """Return the user's own configuration file of ``pip`` or ``uv``, that which counts most."""
    requested = environ.get(f"{tool.upper()}_CONFIG_FILE")
    if requested and requested != os.devnull:
        return Path(requested).absolute()
    files = ConfigurationFiles(environ)
    if tool == "uv":
        return files.uv_own
    return files.pip_own[-1]
