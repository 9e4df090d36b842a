import hashlib
import os
import sys
import threading
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


class Shop:
    """A host of two wheels, and a run that hashes them."""

    def __init__(self, folder):
        self.bodies = {
            "/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl": b"torch" * 1000,
            "/triton-3.8.0-cp312-cp312-linux_x86_64.whl": b"triton" * 1000,
        }
        self.host = Host("shop", self.answer)
        self.files = [self.file(path) for path in self.bodies]
        self.cache = AnswerCache(folder, FileHash)

    def answer(self, path, _headers):
        return Answer(200, self.bodies[path]) if path in self.bodies else NOT_FOUND

    def file(self, path, sha256=None):
        package, _, _ = path[1:].partition("-")
        return LockedFile(package, self.host.url + path, sha256)

    def known(self, files, *, fetch=False, **options):
        """Return the hashes that are known by address, of all files if they are fetched; and the files that are not."""
        with Client(**options) as client:
            python = Path(sys.executable)
            folder = self.cache.folder
            session = Session(
                Sources(), client, self.cache, {}, python, Reporter(), folder
            )
            found = known_hashes(files, session)
            fetched = fetch_missing(found.missing, session) if fetch else {}
        return {**found.known, **fetched}, found.missing.keys()

    def hashed(self, files):
        hashes, _ = self.known(files, fetch=True)
        return hashes


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path / "cache")
    yield shop
    shop.host.close()


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def test_a_wheel_without_a_hash_is_fetched_once_and_its_hash_alone_is_kept(shop):
    first = shop.hashed(shop.files)

    bodies = zip(shop.files, shop.bodies.values(), strict=True)
    assert first == {file.url: sha256(body) for file, body in bodies}
    assert shop.hashed(shop.files) == first
    sent = [asked.path for asked in shop.host.log if asked.sent]
    assert sorted(sent) == sorted(shop.bodies)
    kept = shop.cache.folder.rglob("*.json")
    assert max(path.stat().st_size for path in kept) < 200
    # It serves too when its host is silent.
    assert shop.known(shop.files, offline=True) == (first, set())


def test_a_wheel_that_was_exchanged_on_its_host_is_fetched_again(shop):
    changed, kept = shop.files
    before = shop.hashed(shop.files)
    shop.bodies[next(iter(shop.bodies))] = b"another"
    assert shop.hashed(shop.files) == {
        changed.url: sha256(b"another"),
        kept.url: before[kept.url],
    }


def test_a_hash_of_the_index_costs_no_request(shop):
    files = [shop.file(path, "1" * 64) for path in shop.bodies]
    assert set(shop.hashed(files).values()) == {"1" * 64}
    assert shop.host.log == []


def test_the_catalogues_hashes_are_for_the_official_host_alone(shop):
    path = "whl/cu121/torch-2.3.1%2Bcu121-cp310-cp310-linux_x86_64.whl"
    official = LockedFile("torch", f"https://download-r2.pytorch.org/{path}")
    mirror = LockedFile("torch", f"http://127.0.0.1:9/{path}")
    assert shop.known([official, mirror]) == (
        {
            official.url: "f0deb5d2f932a68ed54625ba140eddbf2af22be978ee19b9b63c986add6425b2"
        },
        {mirror},
    )


def test_a_file_on_this_machine_is_read_again_once_it_changed(tmp_path, shop):
    wheel = tmp_path / "triton-3.8.0-cp312-cp312-linux_x86_64.whl"
    wheel.write_bytes(b"local")
    file, written = LockedFile("triton", wheel.as_uri()), wheel.stat()
    before = shop.hashed([file])

    wheel.write_bytes(b"other")
    os.utime(wheel, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert shop.hashed([file]) == before, (
        "of the same size, time and inode: it is not read"
    )
    os.utime(wheel, ns=(written.st_atime_ns, written.st_mtime_ns + 1))
    assert shop.hashed([file]) == {file.url: sha256(b"other")}


def test_one_failure_ends_the_other_transfers(shop):
    missing = shop.file("/gone-1-py3-none-any.whl")
    with pytest.raises(InstallationError) as caught:
        shop.hashed([missing, *shop.files])
    assert "gone-1" in caught.value.message
    assert threading.active_count() < 20
