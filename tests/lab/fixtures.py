"""Fixtures that every folder of tests shares."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Protocol

import pytest
from filelock import FileLock

from tests.lab.driver import FakeDriver, build, environment

if TYPE_CHECKING:
    from pathlib import Path


class Play(Protocol):
    """Plays a driver to every child process of the test; returns the environment that does it."""

    def __call__(self, driver: FakeDriver) -> dict[str, str]: ...


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled fakes, built once for all workers of the session."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) to build the fake NVIDIA libraries")
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with FileLock(shared / "libraries.lock"):
        return build(shared / "libraries")


@pytest.fixture
def play(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Put a fake driver into this process's environment, which its children inherit."""

    def start(driver: FakeDriver) -> dict[str, str]:
        played = environment(driver, libraries, tmp_path)
        for name in ("LAB_GPUS", "LD_LIBRARY_PATH"):
            monkeypatch.setenv(name, played[name])
        return played

    return start
