"""The copy of a lock that uv fetches from."""

import pytest
import tomli

from gpuinstall.lock.file.fetch import Transfer
from gpuinstall.lock.file.lock import parse, unknown_hash
from tests.unit.install.environments import lock_text

TEXT = lock_text("2.14.1+cu126").replace("+cu126-cp", "%2Bcu126-cp")
WHEEL = "torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl"
HASHES = {"sha256": "1" * 64}
MIRROR = "https://mirror.example"
OFFICIAL = "https://index.example/whl/cu126"


def elsewhere(file):
    return f"http://127.0.0.1:9/{file.sha256}/{file.name}"


def copied(text, folder, wheels=None, torch=None, default=None):
    """The package as uv reads it."""
    lock = parse("pylock.cu126.toml", text)
    private = folder / "private"
    transfer = Transfer(lock, folder, lock.names, torch, private, wheels=wheels)
    return tomli.loads(transfer.private(elsewhere, default))["packages"][0]


def test_a_wheel_is_fetched_from_where_we_say_and_keeps_its_hash(tmp_path):
    assert copied(TEXT, tmp_path)["wheels"] == [
        {"url": f"http://127.0.0.1:9/{'1' * 64}/{WHEEL}", "hashes": HASHES}
    ]


def test_a_hash_that_is_not_known_yet_is_none(tmp_path):
    text = TEXT.replace("1" * 64, unknown_hash("https://index.example"))
    assert copied(text, tmp_path)["wheels"] == [
        {"url": f"http://127.0.0.1:9/None/{WHEEL}", "hashes": {}}
    ]


def test_a_wheel_of_this_machine_is_named_by_its_path(tmp_path):
    (tmp_path / WHEEL).touch()
    entry = {"path": str(tmp_path / WHEEL), "hashes": HASHES}
    assert copied(TEXT, tmp_path, wheels=tmp_path)["wheels"] == [entry]
    # In the lock it begins in the lock's folder.
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
def test_the_family_has_an_index_of_its_own(tmp_path, index, default, found):
    package = copied(TEXT, tmp_path, torch=index, default=default)
    assert package.get("index") == found
