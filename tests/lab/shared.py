"""Resources that one worker creates for a session or for all sessions."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Fill a shared folder with ``make`` once per session.

    Tests must copy the folder before they change it.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    return made(folder, make)


def made(folder: Path, make: Callable[[Path], object]) -> Path:
    """Fill a shared folder with ``make`` unless it is complete."""
    ready = folder.with_name(f"{folder.name}.ready")
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not ready.exists():
            shutil.rmtree(
                folder, ignore_errors=True
            )  # incomplete, from an interrupted process
            make(folder)
            ready.touch()
    return folder
