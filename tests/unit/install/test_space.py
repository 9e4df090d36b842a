from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.errors import InstallationError
from gpuinstall.install.space import UNPACKED, bill
from gpuinstall.lock.lock import LockedFile
from gpuinstall.units import readable
from gpuinstall.web.wheel_cache import WheelCache

if TYPE_CHECKING:
    from pathlib import Path

TORCH = LockedFile("torch", "https://index.example/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl", "1" * 64)
NUMPY = LockedFile("numpy", "https://index.example/numpy-2.3.4-cp312-cp312-linux_x86_64.whl", "2" * 64)


def test_everything_new_is_fetched_and_unpacked_once(tmp_path: Path) -> None:
    price = bill(
        {TORCH: 1000, NUMPY: 100}, (TORCH,), tmp_path / ".venv", tmp_path / "uv", WheelCache(tmp_path / "ours")
    )
    assert price.fetch == 1100
    assert price.unpacked == int(UNPACKED * 1100)
    assert price.folders == {tmp_path / "uv": price.unpacked, tmp_path / "ours": 1000, tmp_path / ".venv": 0}


def test_what_either_cache_holds_costs_nothing(tmp_path: Path) -> None:
    cache = WheelCache(tmp_path / "ours")
    cache.path("1" * 64, TORCH.name).parent.mkdir(parents=True)
    cache.path("1" * 64, TORCH.name).touch()
    held = tmp_path / "uv" / "wheels-v7" / "index" / "abc" / "numpy"
    held.mkdir(parents=True)
    (held / "2.3.4-cp312-cp312-linux_x86_64.http").write_bytes(b"\xa6Sha256\xd9" + (NUMPY.sha256 or "").encode())
    assert bill({TORCH: 1000, NUMPY: 100}, (), tmp_path / ".venv", tmp_path / "uv", cache).fetch == 0


@pytest.mark.parametrize("index", ["pypi", "index/abc"])
def test_another_file_of_the_same_version_in_uvs_cache_is_not_the_one_that_is_locked(
    tmp_path: Path, index: str
) -> None:
    held = tmp_path / "uv" / "wheels-v7" / index / "numpy"
    held.mkdir(parents=True)
    (held / "2.3.4-cp312-cp312-linux_x86_64.http").write_bytes(b"3" * 64)
    caches = tmp_path / "uv", WheelCache(tmp_path / "ours")
    assert bill({NUMPY: 100}, (), tmp_path / ".venv", *caches).fetch == 100
    (held / "a-name-too-long-for-uv.http").write_bytes(b"2" * 64)
    assert bill({NUMPY: 100}, (), tmp_path / ".venv", *caches).fetch == 0


def test_metadata_alone_in_uvs_cache_is_no_wheel(tmp_path: Path) -> None:
    held = tmp_path / "uv" / "wheels-v7" / "index" / "abc" / "numpy"
    held.mkdir(parents=True)
    (held / "2.3.4-cp312-cp312-linux_x86_64.msgpack").write_bytes(b"2" * 64)
    price = bill({NUMPY: 100}, (), tmp_path / ".venv", tmp_path / "uv", WheelCache(tmp_path / "ours"))
    assert price.fetch == 100


def test_a_file_that_lies_here_is_not_fetched(tmp_path: Path) -> None:
    local = LockedFile("torch", (tmp_path / "torch-1-py3-none-any.whl").as_uri(), "1")
    price = bill({local: 1000}, (), tmp_path / ".venv", tmp_path / "uv", WheelCache(tmp_path / "ours"))
    assert price.fetch == 0
    assert str(price).startswith("nothing to fetch")


def test_too_little_space_is_said_with_the_numbers(tmp_path: Path) -> None:
    price = bill({TORCH: 10**18}, (), tmp_path / ".venv", tmp_path / "uv", WheelCache(tmp_path / "ours"))
    with pytest.raises(InstallationError) as caught:
        price.check()
    assert caught.value.code == "no-space"
    assert "2300000000.0 GB are needed" in caught.value.message
    assert "are free" in caught.value.message


@pytest.mark.parametrize(("size", "text"), [(880, "1 kB"), (16_900_000, "17 MB"), (2_900_000_000, "2.9 GB")])
def test_bytes_are_written_as_people_do(size: int, text: str) -> None:
    assert readable(size) == text
