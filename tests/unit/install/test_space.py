import os
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.request import Sourcing
from gpuinstall.install.priced_lock import UNPACKED, price_files
from gpuinstall.lock.file.fetch import is_cached
from gpuinstall.lock.file.lock import LockedFile
from tests.lab.listener import Listener

URL = "https://index.example/{}-cp312-cp312-linux_x86_64.whl"
TORCH = LockedFile("torch", URL.format("torch-2.14.1%2Bcu126"), "1" * 64)
NUMPY = LockedFile("numpy", URL.format("numpy-2.3.4"), "2" * 64)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "uv"


@pytest.fixture
def priced(tmp_path, cache):
    """What it costs to install files of these sizes, and what is warned of."""

    def price(sizes, wheels=None, **environment):
        listener = Listener()
        sourcing = Sourcing(wheels=wheels)
        session: Any = SimpleNamespace(
            uv_cache=cache,
            reporter=listener,
            sourcing=sourcing,
            environment=environment,
        )
        listed = {file.url: size for file, size in sizes.items()}
        bill = price_files(tuple(sizes), listed, tmp_path / ".venv", session)
        return bill, listener.warnings

    return price


def keep(cache, index, sha256):
    """Write what uv keeps of a wheel; return the folder that it is unpacked in."""
    archive = cache / "archive-v0" / sha256[:16]
    archive.mkdir(parents=True)
    folder = cache / "wheels-v7" / index / NUMPY.package
    folder.mkdir(parents=True, exist_ok=True)
    facts = f"\0{archive.name}\0Sha256\0{sha256}\0{NUMPY.name}"
    entry = f"{NUMPY.name.partition('-')[2]}-{sha256[:4]}.http"
    (folder / entry).write_text(facts)
    return archive


BOTH = {TORCH: 1000, NUMPY: 100}


def test_everything_new_is_fetched_and_unpacked_once(priced, tmp_path, cache):
    price, _ = priced(BOTH)
    assert price.fetch == 1100
    assert price.folders == {cache: int(UNPACKED * 1100)}, "the environment has links"
    keep(cache, "index/abc", "2" * 64)
    assert priced(BOTH)[0].fetch == 1000
    price, _ = priced(BOTH, UV_LINK_MODE="copy")
    both = int(UNPACKED * (1000 + 1100))
    assert price.folders == {tmp_path / ".venv": both}, "uv copies all of it"


def test_what_a_folder_of_wheels_lacks_is_named(priced, tmp_path, cache):
    (tmp_path / TORCH.name).write_bytes(b"12")
    price, [warning] = priced(BOTH, tmp_path)
    assert price.missing == {NUMPY: 100}
    assert price.folders == {cache: int(UNPACKED * 102)}
    assert warning.startswith(f"neither in {tmp_path} nor in uv's cache: numpy; ")


@pytest.mark.parametrize("index", ["pypi", "index/abc"])
def test_uvs_cache_has_a_wheel_if_that_very_file_is_unpacked_there(cache, index):
    is_there = [is_cached(NUMPY, cache)]
    # Of its metadata alone, of another file of the same version, and of the very one.
    metadata = cache / "wheels-v7" / index / "numpy" / "2.3.4-cp312.msgpack"
    metadata.parent.mkdir(parents=True)
    metadata.write_bytes(b"2" * 64)
    is_there.append(is_cached(NUMPY, cache))
    keep(cache, index, "3" * 64)
    is_there.append(is_cached(NUMPY, cache))
    archive = keep(cache, index, "2" * 64)
    if os.name == "posix":
        os.mkfifo(metadata.with_name("a-pipe.http"))
    metadata.with_name("a-folder.http").mkdir()
    is_there.append(is_cached(NUMPY, cache))
    archive.rmdir()
    is_there.append(is_cached(NUMPY, cache))
    assert is_there == [False, False, False, True, False]


def test_nothing_is_to_download_of_what_lies_here_or_only_goes(priced, tmp_path):
    local = LockedFile("torch", (tmp_path / "torch-1-py3-none-any.whl").as_uri(), "1")
    for sizes in ({local: 1000}, {}):
        price, _ = priced(sizes)
        assert (price.fetch, str(price)) == (0, "nothing to download")


def test_too_little_space_is_said_with_the_numbers(priced):
    price, _ = priced({TORCH: 10**18})
    required = r"2300000000\.0 GB required.* free"
    with pytest.raises(InstallationError, match=required) as refused:
        price.check()
    assert refused.value.code == "no-space"
