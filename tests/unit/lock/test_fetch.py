import hashlib
import os
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.lock.file.fetch import fetch_missing, known_hashes
from gpuinstall.lock.file.lock import LockedFile
from gpuinstall.sources import Sources
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import AnswerCache, Client, FileHash
from tests.lab.host import NOT_FOUND, Answer, Host

NAMES = (
    "torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl",
    "triton-3.8.0-cp312-cp312-linux_x86_64.whl",
)


class Shop:
    """A file host whose files can be exchanged."""

    def __init__(self):
        self.files = {
            f"/{name.replace('+', '%2B')}": name.encode() * 1000 for name in NAMES
        }
        self.host = Host("shop", self.answer)

    def answer(self, path, _headers):
        return Answer(200, self.files[path]) if path in self.files else NOT_FOUND

    def locked(self):
        return tuple(
            LockedFile(path[1:].partition("-")[0], self.host.url + path)
            for path in self.files
        )

    def sent(self):
        return Counter(asked.path for asked in self.host.log if asked.sent)


@pytest.fixture
def shop():
    shop = Shop()
    yield shop
    shop.host.close()


@pytest.fixture
def cache(tmp_path):
    return AnswerCache(tmp_path / "cache", FileHash)


def session_of(client, cache):
    return Session(
        Sources(), client, cache, {}, Path(sys.executable), Reporter(), cache.folder
    )


def hashed(files, cache):
    with Client() as client:
        found = known_hashes(files, session_of(client, cache))
        return {
            **found.known,
            **fetch_missing(found.missing, session_of(client, cache)),
        }


def test_a_wheel_without_a_hash_is_fetched_once_and_its_hash_alone_is_kept(shop, cache):
    files = shop.locked()
    first, again = hashed(files, cache), hashed(files, cache)
    assert (
        first
        == again
        == {
            shop.host.url + path: hashlib.sha256(body).hexdigest()
            for path, body in shop.files.items()
        }
    )
    assert set(shop.sent().values()) == {1}
    assert max(path.stat().st_size for path in cache.folder.rglob("*.json")) < 200


def test_a_wheel_that_was_exchanged_on_its_host_is_fetched_again(shop, cache):
    before = hashed(shop.locked(), cache)
    changed = next(iter(shop.files))
    shop.files[changed] = b"another"
    after = hashed(shop.locked(), cache)
    assert (
        after[shop.host.url + changed]
        == hashlib.sha256(b"another").hexdigest()
        != before[shop.host.url + changed]
    )


def test_a_hash_of_the_index_costs_no_request(shop, cache):
    files = tuple(
        LockedFile(file.package, file.url, "1" * 64) for file in shop.locked()
    )
    assert set(hashed(files, cache).values()) == {"1" * 64}
    assert shop.host.log == []


def test_the_catalogues_hashes_are_for_the_official_host_alone(
    cache,
):
    name = "torch-2.3.1%2Bcu121-cp310-cp310-linux_x86_64.whl"
    official = LockedFile("torch", f"https://download-r2.pytorch.org/whl/cu121/{name}")
    mirror = LockedFile("torch", f"http://127.0.0.1:9/whl/cu121/{name}")
    with Client() as client:
        hashes = known_hashes((official, mirror), session_of(client, cache))
    assert hashes.known == {
        official.url: "f0deb5d2f932a68ed54625ba140eddbf2af22be978ee19b9b63c986add6425b2"
    }
    assert hashes.missing.keys() == {mirror}


def test_a_file_on_this_machine_is_read_again_once_it_changed(tmp_path, cache):
    wheel = tmp_path / NAMES[1]
    wheel.write_bytes(b"local")
    file, written = LockedFile("triton", wheel.as_uri()), wheel.stat()
    before = hashed((file,), cache)

    wheel.write_bytes(b"other")
    os.utime(wheel, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert hashed((file,), cache) == before, (
        "of the same size, time and inode: it is not read"
    )
    os.utime(wheel, ns=(written.st_atime_ns, written.st_mtime_ns + 1))
    assert hashed((file,), cache) == {file.url: hashlib.sha256(b"other").hexdigest()}


def test_a_hash_that_was_taken_serves_when_its_host_is_silent(shop, cache):
    files = shop.locked()
    before = hashed(files, cache)
    with Client(offline=True) as client:
        assert known_hashes(files, session_of(client, cache)).known == before


def test_one_failure_ends_the_other_transfers(shop, cache):
    missing = LockedFile("gone", f"{shop.host.url}/gone-1-py3-none-any.whl")
    with pytest.raises(InstallationError) as caught:
        hashed((missing, *shop.locked()), cache)
    assert "gone-1" in caught.value.message
    assert threading.active_count() < 20
