"""Property tests of resolutions with an index of unusual packages."""

from itertools import pairwise
from pathlib import Path

import pytest
from packaging.version import Version

from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.locks import resolve_locks
from gpuinstall.lock.uv.errors import FAMILY_UNLISTED
from gpuinstall.machine.options import machine_from_options
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from tests.lab.index import SimulatedIndex
from tests.lab.index_text import publish, steps_of
from tests.lab.releases import catalog_index
from tests.lab.workshop import Workshop

CARDS = {
    "V100": ("535.183.01", "550.54.14", "580.95.05"),
    "RTX 3090": ("470.256.02", "535.183.01", "550.54.14", "570.86.15", "580.95.05"),
    "RTX 5090": ("570.86.15", "575.57.08", "580.95.05"),
}
"""GPUs with their compatible drivers, oldest first."""
PROGRAMS = (
    "vllm",
    "engine",
    "gptq",
    "bound",
    "portable",
    "onnxruntime-gpu",
    "rembg",
    "bitsandbytes",
    "wavering",
    "axolotl",
    "faster-whisper",
)


INDEX = Path(__file__).parent.parent / "data" / "choice_index.txt"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Create an index with five torch releases and unusual packages."""
    releases = ["2.2.2", "2.7.1", "2.10.0", "2.13.0", "2.15.0"]
    folder = catalog_index(
        tmp_path_factory.mktemp("choices"), releases, platforms=["linux-x86_64"]
    )
    for line, below in steps_of(INDEX.read_text("utf-8").rstrip()):
        publish(folder, line, below)
    return folder


@pytest.fixture
def index(served):
    with SimulatedIndex(served) as index:
        yield index


@pytest.fixture
def workshop(index, tmp_path):
    return Workshop.made(tmp_path, index.environment())


@pytest.fixture
def session(
    index,
    tmp_path,
    monkeypatch,
):
    for name, value in (
        index.environment() | {"XDG_CACHE_HOME": str(tmp_path)}
    ).items():
        monkeypatch.setenv(name, value)
    with open_session(read_sources(index.torch_index, tmp_path), Reporter()) as session:
        yield session


def version_of(words, gpus, driver, session):
    """Return the resolved versions, or None if the request is rejected."""
    request = LockRequest(
        machine_from_options(gpus, driver),
        Request((words,), python="3.12"),
        load_catalog(),
    )
    try:
        return resolve_locks([request], session)[0].versions
    except (NoBuildError, MachineError):
        return None
    except InstallationError as error:  # the index has no xformers for a backend
        if error.code != FAMILY_UNLISTED:
            raise
        return None


@pytest.mark.heavy
@pytest.mark.parametrize("card", CARDS)
def test_newer_driver_never_selects_older_packages(session, card):
    for words in PROGRAMS:
        answers = [
            version_of(words, (card,), driver, session) for driver in CARDS[card]
        ]
        for (older, newer), drivers in zip(
            pairwise(answers), pairwise(CARDS[card]), strict=True
        ):
            if older is not None:
                assert newer is not None, (words, drivers)
                assert Version(newer[words]) >= Version(older[words]), (words, drivers)
        assert (
            version_of(words, (card, card), CARDS[card][-1], session) == answers[-1]
        ), words
