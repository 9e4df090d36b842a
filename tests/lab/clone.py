"""A copy of the project, and processes without this machine's settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.own_home import USER_HOME

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = (
    "bootstrap.py",
    "bootstrap.ps1",
    "lockfiles",
    "prefix",
    "src",
    "tools",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".gitignore",
)


def copy_project(folder: Path) -> Path:
    """Copy the files that bootstrap.py needs, as in a new clone."""
    folder.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(
                source, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(source, folder)
    return folder


@dataclass(frozen=True)
class Person:
    """A user with a home who runs programs.

    ``network`` contains the variables that select a package source. By default, they
    are this machine's settings and caches, so that few files are downloaded twice.
    """

    home: Path
    network: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        """The folder in which bootstrap.py installs the tool."""
        return self.home / ".local" / "share" / "gpuinstall"

    @property
    def tools(self) -> list[Path]:
        """The tool's environments."""
        return sorted(self.data.glob("[0-9]*-*"))

    def copied(self, home: Path) -> Person:
        """Copy the home by hard links.

        Files in the copy may be replaced, but must not be written in place.
        """
        return Person(
            shutil.copytree(self.home, home, symlinks=True, copy_function=os.link),
            self.network,
        )

    def environment(self) -> dict[str, str]:
        """Return only this machine's network settings and caches."""
        own = (
            "UV_",
            "GPUINSTALL_",
            "XDG_",
            "VIRTUAL_ENV",
            "CONDA",
            "PYTHON",
            "PYENV",
            "PYTEST",
        )
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(own)
        }
        cache = Path(os.environ.get("XDG_CACHE_HOME") or USER_HOME / ".cache")
        uv_cache = os.environ.get("UV_CACHE_DIR", str(cache / "uv"))
        pip_cache = os.environ.get("PIP_CACHE_DIR", str(cache / "pip"))
        caches = {"UV_CACHE_DIR": uv_cache, "PIP_CACHE_DIR": pip_cache}
        return {
            **kept,
            **caches,
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            **self.network,
        }

    def run(
        self,
        *argv: str | Path,
        cwd: Path | None = None,
        stdin: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this user, and wait for its end."""
        return subprocess.run(
            [str(word) for word in argv],
            env={**self.environment(), **(settings or {})},
            cwd=cwd or self.home,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
