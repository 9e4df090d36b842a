import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.request import Sourcing
from gpuinstall.base.values import replace
from gpuinstall.install.price import UNPACKED, estimate_sizes
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
    """Return a function that computes sizes and warnings for given files."""

    def price(sizes, wheels=None, **environment):
        listener = Listener()
        sourcing = Sourcing(wheels=wheels)
        session: Any = SimpleNamespace(
            find_uv_cache=lambda: cache,
            reporter=listener,
            sourcing=sourcing,
            environment=environment,
        )
        listed = {file.url: size for file, size in sizes.items()}
        bill = estimate_sizes(tuple(sizes), listed, tmp_path / ".venv", session)
        return bill, listener.warnings

    return price


BOTH = {TORCH: 1000, NUMPY: 100}


def test_missing_wheels_of_a_folder_are_reported(priced, tmp_path, cache):
    (tmp_path / TORCH.name).write_bytes(b"12")
    price, [warning] = priced(BOTH, tmp_path)
    assert price.missing == {NUMPY: 100}
    assert price.unpacked == {cache: int(UNPACKED * 102)}
    assert warning.startswith(f"packages not in {tmp_path} are downloaded: numpy ")


def test_local_files_and_removals_need_no_download(priced, tmp_path):
    wheel = tmp_path / "torch-1-py3-none-any.whl"
    wheel.touch()
    local = LockedFile("torch", wheel.as_uri(), "1")
    for sizes in ({local: 1000}, {}):
        price, _ = priced(sizes)
        assert (price.download_size, price.describe()) == (0, "nothing to download")


@pytest.fixture
def free(tmp_path):
    return shutil.disk_usage(tmp_path).free


def test_unknown_size_is_a_warning(priced):
    price, _ = priced({TORCH: 1000})
    listener = Listener()
    partial = replace(price, missing={TORCH: 1000, NUMPY: 0})
    partial.check(listener)
    assert listener.warnings == ["the sizes of some files are unknown: numpy"]
    assert partial.describe().startswith("at least 1 kB")
    unknown = replace(price, missing={NUMPY: 0}, unpacked={})
    assert unknown.describe() == "unknown size"


def test_cached_wheels_need_no_space(priced, cache):
    folder = cache / "wheels-v8/pypi/torch"
    folder.mkdir(parents=True)
    (folder / "2.14.1+cu126-cp312-cp312-linux_x86_64.http").touch()
    price, _ = priced(BOTH)
    assert price.download_size == 100
    assert price.unpacked == {cache: int(UNPACKED * 100)}


def test_possible_disk_shortage_is_a_warning(priced, free):
    price, _ = priced({TORCH: int(free * 0.9)})
    listener = Listener()
    price.check(listener)
    [warning] = listener.warnings
    assert " may lack space: about " in warning


def test_insufficient_disk_space_is_an_error(priced, free):
    price, _ = priced({TORCH: free * 2})
    with pytest.raises(InstallationError, match=r"GB required.* free") as refused:
        price.check(Listener())
    assert refused.value.code == "no-space"
