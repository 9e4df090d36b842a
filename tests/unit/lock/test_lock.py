import pytest

from gpuinstall.base.errors import LockError
from gpuinstall.lock.file.lock import parse, read_lock

HASHES = f'hashes = {{ sha256 = "{"1" * 64}" }}'
WHEEL = f"""[[packages.wheels]]
url = "https://index.example/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl"
{HASHES}
"""
PACKAGE = f"""
[[packages]]
name = "torch"
version = "2.14.1+cu126"
{WHEEL}"""
LOCK = f"""lock-version = "1.0"
requires-python = "==3.12.*"
created-by = "gpuinstall"
{PACKAGE}"""


def read(old="", new=""):
    """The lock with a text in place of another."""
    assert old in LOCK
    return parse("pylock.cu126.toml", LOCK.replace(old, new))


def test_a_lock_knows_its_python_its_versions_and_its_digest():
    lock = read()
    assert (lock.python, lock.versions) == ("3.12", {"torch": "2.14.1+cu126"})
    assert len(lock.sha256) == 64
    assert not lock.is_ours


def test_a_package_that_is_listed_twice_has_all_hashes():
    lock = parse("pylock.toml", LOCK + PACKAGE.replace("1" * 64, "2" * 64))
    assert lock.hashes_of("torch") == {"1" * 64, "2" * 64}


@pytest.mark.parametrize(
    "pythons",
    [
        ">=3.11",
        "!=3.12.*",
        "==3.12.1.*",
        "==3.*",
        "======3.12.*",
        ">=3.9,==3.12.*",
        f"==3.{10**9}.*",
    ],
)
def test_a_lock_that_is_not_for_one_python_minor_names_none(pythons):
    assert read("==3.12.*", pythons).python is None


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (LOCK, "", "lock-malformed"),
        (LOCK, LOCK[:-40], "lock-malformed"),
        ('created-by = "gpuinstall"', "", "lock-malformed"),
        (HASHES, "hashes = {}", "lock-malformed"),
        ("1" * 64, "0x1", "lock-malformed"),
        ('"1.0"', '"2.0"', "lock-version"),
        ('"1.0"', '"1.1"', "lock-version"),
        (
            'url = "https://index.example/torch-2.14.1%2B',
            'path = "../../etc/torch-2.14.1+',
            "lock-traversal",
        ),
        (
            "url =",
            'path = "x/../torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl"\nurl =',
            "lock-traversal",
        ),
        ("/torch", "/..%2F..%2Ftorch", "lock-malformed"),
        (
            '[[packages.wheels]]\nurl = "https://index.example/',
            '[packages.archive]\nurl = "https://index.example/..%2F..%2F',
            "lock-traversal",
        ),
        (
            'url = "https://index.example/',
            'name = "torch-1-py3-none-any.whl"\nurl = "https://index.example/..%5C',
            "lock-malformed",
        ),
    ],
)
def test_a_lock_that_cannot_be_trusted_is_refused(old, new, code, caplog):
    with pytest.raises(LockError) as caught:
        read(old, new)
    assert caught.value.code == code
    assert "pylock.cu126.toml" in caught.value.message
    assert caught.value.hint
    # In our own words alone.
    assert caplog.records == []


@pytest.mark.parametrize(
    ("source", "address", "only_here"),
    [
        ('[packages.directory]\npath = "."', "torch @ .", []),
        ('[packages.directory]\npath = "/srv/torch"', "torch @ /srv/torch", ["torch"]),
        (
            '[packages.vcs]\ntype = "git"\nurl = "https://a/b"\ncommit-id = "1"',
            "torch @ git+https://a/b@1",
            [],
        ),
        (
            '[packages.vcs]\ntype = "git"\nurl = "file:///srv/a"\ncommit-id = "1"',
            "torch @ git+file:///srv/a@1",
            ["torch"],
        ),
    ],
)
def test_packages_that_no_hash_can_pin_are_known(source, address, only_here):
    lock = read(WHEEL, source)
    assert lock.addresses == {"torch": address}
    assert lock.pinned_by == f"every file hashed but those of {address}"
    assert (lock.unserved, lock.only_here) == (["torch"], only_here)


def test_of_files_of_an_index_each_is_hashed_and_served():
    lock = read()
    assert (lock.addresses, lock.unserved) == ({}, [])
    assert lock.pinned_by == "every file hashed"


@pytest.mark.parametrize("kind", ["missing", "text", "folder"])
def test_a_missing_and_an_unreadable_lock_are_told_apart(tmp_path, kind):
    path = tmp_path / "pylock.cpu.toml"
    if kind == "text":
        path.write_bytes(b"\xff\xff")
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(LockError) as caught:
        read_lock(path)
    code = "lock-missing" if kind == "missing" else "lock-unreadable"
    assert caught.value.code == code
    assert caught.value.hint
    assert (f"mv {path} " in caught.value.hint) is (kind == "folder")
