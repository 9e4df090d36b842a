"""A folder in which the command line is run as a user runs it, with caches, an index and a driver of its own."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall import process, uv
from gpuinstall.install.stage import carried_pip
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.forked import gpuinstall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.process import Finished


@cache
def acquainted() -> Path:
    """A cache of uv in which lie only what this Python and the one below it are, and the pip that they carry."""
    folder = Path(tempfile.mkdtemp(prefix="lab-uv-"))
    atexit.register(shutil.rmtree, folder)
    for python in (
        sys.executable,
        Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"),
    ):
        process.run([uv.uv(), "python", "find", "--cache-dir", folder, python])
    if pip := carried_pip(Path(sys.executable)):
        with tempfile.TemporaryDirectory() as target:
            process.run(
                [
                    uv.uv(),
                    "pip",
                    "install",
                    "--no-index",
                    "--cache-dir",
                    folder,
                    "--target",
                    target,
                    pip,
                ]
            )
    return folder


@dataclass(frozen=True)
class Workshop:
    """``folder`` is where the commands run; ``caches`` hold every cache; ``variables`` say the rest."""

    folder: Path
    caches: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Let uv know this Python, as it does on a machine where it was used before."""
        if not (self.caches / "uv").exists():
            shutil.copytree(acquainted(), self.caches / "uv", symlinks=True, copy_function=os.link)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command."""
        own = {"XDG_CACHE_HOME": str(self.caches / "xdg"), "UV_CACHE_DIR": str(self.caches / "uv")}
        own |= {
            "XDG_STATE_HOME": str(self.caches / "state"),
            "JUPYTER_DATA_DIR": str(self.caches / "jupyter"),
        }
        return {**os.environ, **own, **self.variables}

    def run(self, *arguments: str) -> Finished:
        """Run ``gpuinstall`` with ``arguments``, on the catalogue that stands still."""
        if arguments[0] == "fleet":  # which starts on its nodes what it was started as
            return self.started(*arguments)
        return gpuinstall(*arguments, env=self.environment, cwd=self.folder)

    def started(self, *arguments: str) -> Finished:
        """Run it in a process that Python starts for it."""
        return process.run([*GPUINSTALL, *arguments], env=self.environment, cwd=self.folder)

    def dying(self, line: int, *arguments: str, number: int = signal.SIGKILL) -> Finished:
        """Run until a signal at a line of the code that builds and swaps environments."""
        words = [sys.executable, "-m", "tests.lab.dying", str(line), str(int(number)), *arguments]
        return process.run(
            words, env={**self.environment, "PYTHONPATH": str(ROOT)}, cwd=self.folder
        )

    def document(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run with ``--json``; return the envelope."""
        done = self.run(*arguments, "--json")
        assert done.status == exit_code, done.out + done.err
        envelope: dict[str, Any] = json.loads(done.out)
        assert envelope["exit_code"] == exit_code
        return envelope

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it in the background."""
        return subprocess.Popen(
            [*GPUINSTALL, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def entries(self) -> set[str]:
        """The names in the folder."""
        return {entry.name for entry in self.folder.iterdir()}

    def lock(self, name: str) -> str:
        """The text of a lock in the folder."""
        return (self.folder / name).read_text(encoding="utf-8")

    def python(self, code: str) -> str:
        """What the environment's Python prints."""
        done = process.run([self.folder / ".venv" / "bin" / "python", "-c", code], cwd=self.folder)
        assert done.ok, done.err
        return done.out.strip()
