"""A folder for command lines, with its own caches, index, and driver."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from gpuinstall.base import process, uv
from gpuinstall.base.process import Finished
from gpuinstall.install.unpack import find_bundled_pip
from tests.frozen import GPUINSTALL
from tests.lab import answers
from tests.lab.forked import gpuinstall
from tests.lab.processes import succeed


def copy_used_cache(folder: Path):
    """Create a uv cache that knows this Python, its base, and their pip."""
    shutil.copytree(_used_cache(), folder, symlinks=True, copy_function=os.link)


@cache
def _used_cache() -> Path:
    folder = _made_folder("lab-uv-")
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    for python in (sys.executable, base):
        _uv("python", "find", "--cache-dir", folder, python)
    pip = find_bundled_pip(Path(sys.executable))
    if pip:
        with tempfile.TemporaryDirectory() as target:
            offline = ("--no-index", "--cache-dir", str(folder))
            here = ("--python", sys.executable)
            _uv("pip", "install", *offline, *here, "--target", target, pip)
    return folder


@cache
def _made_folder(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    # The session may have ended and removed it.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _uv(*words: str | Path):
    process.run([uv.uv(), *words])


@dataclass(frozen=True)
class Workshop:
    """A folder for commands, with caches, an index, and a driver."""

    folder: Path
    caches: Path
    """The folder that contains all caches."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Additional environment variables of commands."""

    @classmethod
    def made(cls, folder: Path, variables: Mapping[str, str] | None = None) -> Self:
        """Create a project in a folder, with caches next to it."""
        (folder / "project").mkdir(parents=True)
        return cls(folder / "project", folder / "caches", variables or {})

    def __post_init__(self):
        """Add this Python to uv's cache, as if it had been used before."""
        cache = self.caches / "uv"
        if not cache.exists():
            copy_used_cache(cache)
        self._temporary.mkdir(exist_ok=True)

    @property
    def _temporary(self) -> Path:
        # Windows' folder contains the user's name, which may have a space.
        return self.caches / "temporary files"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of a command."""
        return {
            **os.environ,
            "XDG_CACHE_HOME": str(self.caches / "xdg"),
            "UV_CACHE_DIR": str(self.caches / "uv"),
            "XDG_STATE_HOME": str(self.caches / "state"),
            "TMPDIR": str(self._temporary),
            **self.variables,
        }

    def run(self, *arguments: str) -> Finished:
        """Run ``gpuinstall`` with ``arguments`` on the frozen catalog."""
        known = {answers.FOLDER: str(_made_folder("lab-answers-"))}
        environment = known | self.environment
        return gpuinstall(*arguments, env=environment, cwd=self.folder)

    def succeed(self, *arguments: str) -> Finished:
        """Run a gpuinstall command that must succeed."""
        done = self.run(*arguments)
        assert done.ok, f"{arguments}: {done.out}{done.err}"
        return done

    def started(self, *arguments: str) -> Finished:
        """Run a command in a process that starts Python."""
        return process.run(
            [*GPUINSTALL, *arguments], env=self.environment, cwd=self.folder
        )

    def document(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run a command with ``--json``, and return the JSON document."""
        done = self.run(*arguments, "--json")
        assert done.status == exit_code, done.out + done.err
        envelope: dict[str, Any] = json.loads(done.out)
        assert envelope["exit_code"] == exit_code
        return envelope

    def refusal(self, *arguments: str, exit_code: int) -> dict[str, Any]:
        """Run a rejected command with ``--json``; return its first error."""
        error: dict[str, Any] = self.document(*arguments, exit_code=exit_code)[
            "errors"
        ][0]
        return error

    def having(self, **variables: str) -> Workshop:
        """Return the same workshop with additional variables."""
        return replace(self, variables={**self.variables, **variables})

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in the background."""
        return subprocess.Popen(
            [*GPUINSTALL, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, name: str, text: str) -> None:
        """Write a file of the workshop's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def entries(self) -> set[str]:
        """Return the names of the files in the workshop's folder."""
        return {entry.name for entry in self.folder.iterdir()}

    def lock(self, name: str) -> str:
        """Return the text of a lock file in the folder."""
        return (self.folder / name).read_text("utf-8")

    def python(self, code: str) -> str:
        """Return the output of the environment's Python."""
        python = self.folder / ".venv" / "bin" / "python"
        return succeed([python, "-c", code], cwd=self.folder).out.strip()
