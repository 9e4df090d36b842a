"""Installed Pythons for tests; each candidate is started once."""

import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.lab.own_home import USER_HOME

PLACES = (
    ".pyenv/versions/*/bin/python",
    ".local/share/uv/python/cpython-*/bin/python",
)
"""Folders of pyenv and uv in the user's home."""
FOLDERS = ("/usr/local/bin", "/usr/bin")
ASK = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)"
SECONDS = 20


def interpreter(version: str) -> Path:
    """Find a Python of this minor version, or skip the test.

    Raises:
        pytest.skip.Exception: If this machine has no working one.
    """
    for candidate in _candidates(version):
        found = _started(candidate)
        if found and found[0] == version:
            return found[1]
    pytest.skip(f"no Python {version} on this machine")


def _candidates(version: str) -> Iterator[Path]:
    for pattern in PLACES:
        for path in sorted(USER_HOME.glob(pattern)):
            if f"{version}." in path.parent.parent.name:
                yield path
    for folder in (*FOLDERS, *os.get_exec_path()):
        path = Path(folder, f"python{version}")
        if os.access(path, os.X_OK):
            yield path


@cache
def _started(python: Path) -> tuple[str, Path] | None:
    """Return a candidate's version and program, or None if it does not run.

    A pyenv shim runs the active Python, or fails.
    """
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", ASK],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version, _, program = done.stdout.strip().partition("\n")
    return (version, Path(program)) if done.returncode == 0 else None
