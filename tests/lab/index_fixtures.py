"""The stand-in index as fixtures."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.index import StandInIndex
from tests.lab.releases import catalog_index
from tests.lab.shared import once
from tests.lab.workshop import Workshop


@pytest.fixture(scope="session")
def catalog_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of every release of the lab, made once; not to be changed."""
    return once(tmp_path_factory, "wheels", catalog_index)


@pytest.fixture
def stand_in_folder(catalog_wheels: Path, tmp_path: Path) -> Path:
    """The same wheels for one test alone, which may remove and add what it likes."""
    return shutil.copytree(catalog_wheels, tmp_path / "served", copy_function=os.link)


@pytest.fixture
def stand_in(stand_in_folder: Path) -> Iterator[StandInIndex]:
    """A stand-in index with every release of the lab."""
    with StandInIndex(stand_in_folder) as index:
        yield index


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path) -> Workshop:
    """An empty folder with caches of its own, which knows the stand-in index alone."""
    return Workshop.made(tmp_path, stand_in.environment())
