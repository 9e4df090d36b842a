"""What is made once for all workers of a session, or for all sessions: the first that asks makes it, the others wait."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Have ``make`` fill a folder of this name, once a session; it is shared: copy it before changing it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    return made(folder, make)


def made(folder: Path, make: Callable[[Path], object]) -> Path:
    """Have ``make`` fill a folder unless that was done; it is shared, too."""
    ready = folder.with_name(f"{folder.name}.ready")
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what another left half made
            make(folder)
            ready.touch()
    return folder
