import os
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Sourcing
from gpuinstall.base.text import readable
from gpuinstall.install.priced_lock import UNPACKED, price_files
from gpuinstall.lock.file.fetch import is_cached
from gpuinstall.lock.file.lock import LockedFile
from gpuinstall.sources.session import Session
from tests.lab.listener import Listener

SILENT = Reporter()

TORCH = LockedFile(
    "torch",
    "https://index.example/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl",
    "1" * 64,
)
NUMPY = LockedFile(
    "numpy", "https://index.example/numpy-2.3.4-cp312-cp312-linux_x86_64.whl", "2" * 64
)


def priced(tmp_path, sizes, wheels=None, reporter=SILENT):
    session = SimpleNamespace(
        uv_cache=tmp_path / "uv", reporter=reporter, sourcing=Sourcing(wheels=wheels)
    )
    listed = {file.url: size for file, size in sizes.items()}
    return price_files(
        tuple(sizes), listed, tmp_path / ".venv", cast("Session", session)
    )


def keep(tmp_path, file, index, sha256):
    """Write what uv keeps of a wheel; return the folder that it is unpacked in."""
    folder, archive = (
        tmp_path / "uv" / "wheels-v7" / index / file.package,
        tmp_path / "uv" / "archive-v0" / sha256[:16],
    )
    folder.mkdir(parents=True, exist_ok=True)
    archive.mkdir(parents=True)
    facts = f"\0{archive.name}\0Sha256\0{sha256}\0{file.name}"
    (folder / f"{file.name.partition('-')[2]}-{sha256[:4]}.http").write_bytes(
        facts.encode()
    )
    return archive


def test_everything_new_is_fetched_and_unpacked_once(tmp_path):
    price = priced(tmp_path, {TORCH: 1000, NUMPY: 100})
    assert price.fetch == 1100
    assert price.folders == {tmp_path / "uv": int(UNPACKED * 1100)}, (
        "the environment has links"
    )


def test_what_a_folder_of_wheels_lacks_is_named(tmp_path):
    (tmp_path / TORCH.name).write_bytes(b"12")
    reporter = Listener()
    price = priced(tmp_path, {TORCH: 1000, NUMPY: 100}, tmp_path, reporter)
    assert price.missing == {NUMPY: 100}
    assert price.folders == {tmp_path / "uv": int(UNPACKED * 102)}
    [warning] = reporter.warnings
    assert warning.startswith(f"neither in {tmp_path} nor in uv's cache: numpy; ")


def test_a_change_that_only_removes_takes_no_space(tmp_path):
    assert str(priced(tmp_path, {})) == "nothing to download"


def test_what_uvs_cache_holds_costs_nothing(tmp_path):
    keep(tmp_path, NUMPY, "index/abc", NUMPY.sha256 or "")
    assert priced(tmp_path, {TORCH: 1000, NUMPY: 100}).fetch == 1000


@pytest.mark.parametrize("index", ["pypi", "index/abc"])
def test_another_file_of_the_same_version_in_uvs_cache_is_not_the_one_that_is_locked(
    tmp_path, index
):
    keep(tmp_path, NUMPY, index, "3" * 64)
    assert priced(tmp_path, {NUMPY: 100}).fetch == 100
    archive = keep(tmp_path, NUMPY, index, NUMPY.sha256 or "")
    assert is_cached(NUMPY, tmp_path / "uv")
    archive.rmdir()
    assert not is_cached(NUMPY, tmp_path / "uv"), (
        "what uv knows of a wheel is not the wheel"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes among files")
def test_a_pipe_in_uvs_cache_is_passed_over(tmp_path):
    keep(tmp_path, NUMPY, "pypi", NUMPY.sha256 or "")
    [entry] = (tmp_path / "uv").glob("wheels-v*/pypi/numpy/*.http")
    os.mkfifo(entry.with_name("a-pipe.http"))
    (entry.parent / "a-folder.http").mkdir()
    assert is_cached(NUMPY, tmp_path / "uv")


def test_metadata_alone_in_uvs_cache_is_no_wheel(tmp_path):
    folder = tmp_path / "uv" / "wheels-v7" / "index" / "abc" / "numpy"
    folder.mkdir(parents=True)
    (folder / "2.3.4-cp312-cp312-linux_x86_64.msgpack").write_bytes(b"2" * 64)
    price = priced(tmp_path, {NUMPY: 100})
    assert price.fetch == 100


def test_a_file_that_lies_here_is_not_fetched(tmp_path):
    local = LockedFile("torch", (tmp_path / "torch-1-py3-none-any.whl").as_uri(), "1")
    price = priced(tmp_path, {local: 1000})
    assert price.fetch == 0
    assert str(price).startswith("nothing to download")


def test_too_little_space_is_said_with_the_numbers(tmp_path):
    price = priced(tmp_path, {TORCH: 10**18})
    with pytest.raises(InstallationError) as caught:
        price.check()
    assert caught.value.code == "no-space"
    assert "2300000000.0 GB required" in caught.value.message
    assert " free" in caught.value.message


@pytest.mark.parametrize(
    ("size", "text"), [(880, "1 kB"), (16_900_000, "17 MB"), (2_900_000_000, "2.9 GB")]
)
def test_bytes_are_written_as_people_do(size, text):
    assert readable(size) == text
