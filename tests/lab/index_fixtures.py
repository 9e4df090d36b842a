"""Fixtures that create simulated indexes."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.index import SimulatedIndex
from tests.lab.releases import catalog_index
from tests.lab.shared import once
from tests.lab.workshop import Workshop


@pytest.fixture(scope="session")
def catalog_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared, read-only wheels of all releases of the lab."""
    return once(tmp_path_factory, "wheels", catalog_index)


@pytest.fixture
def stand_in_folder(catalog_wheels: Path, tmp_path: Path) -> Path:
    """A copy of the lab's wheels that the test may change."""
    return shutil.copytree(catalog_wheels, tmp_path / "served", copy_function=os.link)


@pytest.fixture
def stand_in(stand_in_folder: Path) -> Iterator[SimulatedIndex]:
    """A simulated index with all releases of the lab."""
    with SimulatedIndex(stand_in_folder) as index:
        yield index


@pytest.fixture
def workshop(stand_in: SimulatedIndex, tmp_path: Path) -> Workshop:
    """An empty folder with its own caches, limited to the simulated index."""
    return Workshop.made(tmp_path, stand_in.environment())
