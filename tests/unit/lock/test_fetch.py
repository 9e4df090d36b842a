import hashlib
import os
import threading
import time
from contextlib import contextmanager
from urllib.parse import unquote

import pytest
import tomli

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.lock.file.lock import LockedFile, parse
from gpuinstall.lock.uv import fetch
from gpuinstall.lock.uv.fetch import (
    LockInstaller,
    _store_path,
    fetch_missing,
    find_known_hashes,
)
from gpuinstall.sources.web import Client
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.unit.install.environments import lock_text

TORCH = "/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl"
TRITON = "/triton-3.8.0-cp312-cp312-linux_x86_64.whl"


class Shop:
    """A host with two wheels, and their hashes."""

    def __init__(self, folder):
        self.bodies = {TORCH: b"torch" * 1000, TRITON: b"triton" * 1000}
        self.host = Host("shop", self.answer)
        self.folder = folder

    def answer(self, path, _headers):
        return Answer(200, self.bodies[path]) if path in self.bodies else NOT_FOUND

    def files(self, *paths, sha256=None):
        paths = paths or (TORCH, TRITON)
        return [LockedFile("one", self.host.url + path, sha256) for path in paths]

    def hashed(self, files, **options):
        """Return the hashes of files in order; fetch unknown ones."""
        with Client(cache=self.folder, **options) as client:
            found = find_known_hashes(files, client)
            fetched = fetch_missing(found.missing, client, Reporter())
            hashes = {**found.known, **fetched}
        return [hashes[file.url] for file in files]


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path / "cache")
    yield shop
    shop.host.close()


def sha256(*bodies):
    return [hashlib.sha256(body).hexdigest() for body in bodies]


def test_wheel_without_hash_is_downloaded_once(shop):
    hashes = sha256(*shop.bodies.values())
    assert shop.hashed(shop.files()) == hashes
    assert shop.hashed(shop.files()) == hashes
    sent = [asked.path for asked in shop.host.log if asked.sent]
    assert sorted(sent) == [TORCH, TRITON]
    kept = (shop.folder / "hashes").rglob("*.json")
    assert max(path.stat().st_size for path in kept) < 200
    # The cache also works if its host is unreachable.
    assert shop.hashed(shop.files(), offline=True) == hashes


def test_replaced_wheel_is_downloaded_again(shop):
    shop.hashed(shop.files())
    shop.bodies[TORCH] = b"another"
    assert shop.hashed(shop.files()) == sha256(b"another", shop.bodies[TRITON])


def test_wheel_with_index_hash_is_not_downloaded(shop):
    assert shop.hashed(shop.files(sha256="1" * 64)) == ["1" * 64] * 2
    assert shop.host.log == []


def test_catalog_hashes_apply_only_to_official_host(shop):
    path = "whl/cu121/torch-2.3.1%2Bcu121-cp310-cp310-linux_x86_64.whl"
    official = LockedFile("torch", f"https://download-r2.pytorch.org/{path}")
    assert shop.hashed([official]) == [
        "f0deb5d2f932a68ed54625ba140eddbf2af22be978ee19b9b63c986add6425b2"
    ]
    with pytest.raises(InstallationError):
        shop.hashed([LockedFile("torch", f"http://127.0.0.1:9/{path}")])


def test_changed_local_file_is_hashed_again(tmp_path, shop):
    wheel = tmp_path / TRITON[1:]
    wheel.write_bytes(b"local")
    files = [LockedFile("triton", wheel.as_uri())]
    written = wheel.stat()
    assert shop.hashed(files) == sha256(b"local")

    wheel.write_bytes(b"other")
    os.utime(wheel, ns=(written.st_atime_ns, written.st_mtime_ns))
    # It is not read, because size, time, and inode are equal.
    assert shop.hashed(files) == sha256(b"local")
    os.utime(wheel, ns=(written.st_atime_ns, written.st_mtime_ns + 1))
    assert shop.hashed(files) == sha256(b"other")


def test_failed_download_cancels_other_downloads(shop):
    with pytest.raises(InstallationError) as caught:
        shop.hashed(shop.files("/gone-1-py3-none-any.whl", TORCH, TRITON))
    assert "gone-1" in caught.value.message
    assert threading.active_count() < 20


class Progress(Reporter):
    def __init__(self):
        self.counts = list[int]()

    @contextmanager
    def progress(self, _label, _parts):
        yield lambda _part, count: self.counts.append(count)


def test_cache_growth_is_reported_as_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "GROWTH_S", 0.01)
    reporter = Progress()
    (tmp_path / "archive-v0" / "old").mkdir(parents=True)
    with fetch.report_growth({"a": 600, "b": None}, 2.0, tmp_path, reporter):
        for name, size in ((".tmp1", 400), ("archive-v0/new", 400)):
            (tmp_path / name).mkdir()
            before = sum(reporter.counts)
            (tmp_path / name / "file").write_bytes(bytes(size))
            deadline = time.monotonic() + 30
            while sum(reporter.counts) != before + 200 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert sum(reporter.counts) == before + 200
    assert sum(reporter.counts) == 600


# The copy of a lock that uv installs from.

TEXT = lock_text("2.14.1+cu126").replace("+cu126-cp", "%2Bcu126-cp")
WHEEL = "torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl"
HASHES = {"sha256": "1" * 64}
MIRROR = "https://mirror.example"
OFFICIAL = "https://index.example/whl/cu126"


def copied(text, folder, torch=None, default=None, **folders):
    """Return the package as uv reads it."""
    lock = parse("pylock.cu126.toml", text)
    private = folder / "private"
    transfer = LockInstaller(lock, folder, lock.names, torch, private, **folders)
    return tomli.loads(transfer.create_private_lock(default))["packages"][0]


def test_private_lock_has_local_wheel_path(tmp_path):
    (tmp_path / WHEEL).touch()
    [file] = parse("pylock.cu126.toml", TEXT).files
    stored = tmp_path / _store_path(file)
    stored.parent.mkdir()
    stored.touch()
    server = "http://127.0.0.1:1/key"
    [fetched] = copied(TEXT, tmp_path, fetched=tmp_path, server=server)["wheels"]
    assert unquote(fetched["url"]) == f"{server}/{_store_path(file)}"
    # The fetched file of another index has the same name.
    other = TEXT.replace("index.example", "other.example")
    [kept] = copied(other, tmp_path, fetched=tmp_path, server=server)["wheels"]
    assert kept["url"].startswith("https://other.example/")
    (tmp_path / "empty").mkdir()
    local = TEXT.replace("https://index.example", tmp_path.as_uri())
    [wheel] = copied(local, tmp_path, fetched=tmp_path / "empty")["wheels"]
    assert wheel == {"path": str(tmp_path / WHEEL), "hashes": HASHES}
    entry = {"path": str(tmp_path / WHEEL), "hashes": HASHES}
    assert copied(TEXT, tmp_path, wheels=tmp_path)["wheels"] == [entry]
    # Relative paths start in the lock's folder.
    relative = TEXT.replace("url = ", "path = ").replace("https://index.example/", "")
    assert copied(relative.replace("%2B", "+"), tmp_path)["wheels"] == [entry]


@pytest.mark.parametrize(
    ("index", "default", "found"),
    [
        (OFFICIAL, MIRROR, OFFICIAL),
        (None, MIRROR, MIRROR),
        ("/folder/of/wheels", MIRROR, None),
        (None, None, None),
    ],
)
def test_family_packages_have_a_separate_index(tmp_path, index, default, found):
    package = copied(TEXT, tmp_path, torch=index, default=default)
    assert package.get("index") == found
