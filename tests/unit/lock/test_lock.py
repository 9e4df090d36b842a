from typing import Any

import pytest
import tomli_w

from gpuinstall.base.errors import LockError
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.lock.file.folder import read_lock_file
from gpuinstall.lock.file.lock import (
    Record,
    RequestChanges,
    compare_requests,
    compare_versions,
    find_different_versions,
    find_version_conflicts,
    format_changes,
    format_pinning,
    parse,
)
from tests.unit.export.locks import lock, wheel

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
    """Return the lock with one text replaced."""
    assert old in LOCK
    return parse("pylock.cu126.toml", LOCK.replace(old, new))


def test_lock_has_python_versions_and_pins():
    parsed = read()
    assert (parsed.python, parsed.versions) == ("3.12", {"torch": "2.14.1+cu126"})
    assert len(parsed.sha256) == 64
    assert not parsed.is_from_gpuinstall
    assert (parsed.addresses, parsed.packages_without_url) == ({}, [])
    assert format_pinning(parsed) == "every file hashed"


def test_package_listed_twice_has_all_hashes():
    parsed = parse("pylock.toml", LOCK + PACKAGE.replace("1" * 64, "2" * 64))
    assert parsed.find_hashes("torch") == {"1" * 64, "2" * 64}


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
def test_lock_for_several_pythons_has_no_python(pythons):
    assert read("==3.12.*", pythons).python is None


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (LOCK, "", "lock-malformed"),
        (LOCK, LOCK[:-40], "lock-malformed"),
        ('created-by = "gpuinstall"', "", "lock-malformed"),
        (HASHES, "hashes = {}", "lock-malformed"),
        ("1" * 64, "0x1", "lock-malformed"),
        (
            'name = "torch"',
            "name = \"torch\"\nmarker = \"'a' in 'b'\"",
            "lock-malformed",
        ),
        ('"1.0"', '"2.0"', "lock-version"),
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
def test_untrusted_lock_is_rejected(old, new, code, caplog):
    with pytest.raises(LockError) as caught:
        read(old, new)
    assert caught.value.code == code
    assert "pylock.cu126.toml" in caught.value.message
    assert caught.value.hint
    # The parser logs nothing of its own.
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
def test_lock_lists_packages_without_hashes(source, address, only_here):
    parsed = read(WHEEL, source)
    assert parsed.addresses == {"torch": address}
    assert format_pinning(parsed) == f"every file hashed except {address}"
    assert (parsed.packages_without_url, parsed.local_only_packages) == (
        ["torch"],
        only_here,
    )


@pytest.mark.parametrize("kind", ["missing", "text", "folder"])
def test_missing_and_unreadable_locks_have_different_codes(tmp_path, kind):
    path = tmp_path / "pylock.cpu.toml"
    if kind == "text":
        path.write_bytes(b"\xff\xff")
    elif kind == "folder":
        path.mkdir()
    error = read_lock_file(path).error
    code = "lock-missing" if kind == "missing" else "lock-unreadable"
    assert error is not None
    assert error.code == code
    assert error.hint
    assert (f"mv {path} " in error.hint) is (kind == "folder")


# The request of a lock.

REQUEST = Request(
    ("torch >=2", "NumPy"), constraints=("rich<15",), preferred=("numpy==2.3.4",)
)


def record_in(table):
    """Return the record of a lock with a gpuinstall table."""
    head = {"lock-version": "1.0", "created-by": "gpuinstall", "packages": []}
    text = tomli_w.dumps({**head, "tool": {"gpuinstall": table}})
    return parse("pylock.cpu.toml", text).record


def test_lock_record_survives_a_round_trip():
    record = replace(
        Record.from_request(REQUEST),
        floors={"driver": "525.60.13"},
        requirements_files={"requirements.txt": ("torch>=2", "-c rich<15")},
        request_revision=2,
    )
    assert record_in(record.to_table()) == record
    assert record.inputs == ("torch>=2", "numpy")
    assert record.to_table().keys() == {
        "inputs",
        "constraints",
        "preferred-digest",
        "floors",
        "request-revision",
        "requirements-files",
    }


def test_differences_between_lock_requests_are_listed():
    other_hashes = ("--hash of 2 files: 0",)
    other_versions = ["different versions in the project's own lock"]
    rows: tuple[Any, ...] = (
        ({"requirements": ("numpy", "Torch>=2")}, []),
        ({"requirements": ("torch>=2", "rich")}, ["+ rich", "- numpy"]),
        ({"constraints": ()}, ["- -c rich<15"]),
        ({"sources": ("--index-url https://a/",)}, ["+ --index-url https://a/"]),
        ({"sources": other_hashes}, ["different file hashes"]),
        ({"preferred": ()}, other_versions),
        ({"preferred": (), "sources": other_hashes}, other_versions),
    )
    wrong = []
    for change, expected in rows:
        now = Record.from_request(replace(REQUEST, **change))
        changes = compare_requests(Record.from_request(REQUEST), now).texts
        if changes != expected:
            wrong.append((change, changes))
    assert wrong == []


def test_lock_without_request_record_has_no_changes():
    now = Record.from_request(REQUEST)
    assert compare_requests(Record(), now) == RequestChanges()


@pytest.mark.parametrize(
    "table",
    [
        {"inputs": "torch"},
        {"inputs": ["torch=="]},
        {"relaxed": {"torch": 5}},
        {"requirements-files": {"a": "torch"}},
        "torch",
    ],
)
def test_malformed_record_is_rejected(table):
    with pytest.raises(LockError) as raised:
        record_in(table)
    assert raised.value.code == "lock-malformed"


# Differences between locks.


def locked(target, **versions):
    return lock(target, *(wheel(name, versions[name]) for name in versions))


def test_packages_with_different_target_versions_are_listed():
    locks = [locked("cpu", numpy="1", torch="2"), locked("cu126", numpy="2", torch="2")]
    assert find_different_versions(locks) == {"numpy": {"cpu": "1", "cu126": "2"}}
    assert find_version_conflicts(locks) == {"numpy": "1 for cpu, 2 for cu126"}


def test_local_version_labels_are_not_version_conflicts():
    locks = [locked("cpu", torch="2+cpu", only="1"), locked("cu126", torch="2+cu126")]
    assert find_different_versions(locks) == {}


def test_version_change_list_starts_with_torch():
    new = {f"part-{number:02}": "1" for number in range(12)} | {"torch": "2"}
    lines = format_changes(compare_versions({"gone": "1"}, new))
    assert lines[0] == "+ torch 2"
    assert "- gone 1" in lines
    assert lines[-1] == "+ 3 more; --verbose lists them"
    assert len(lines) == 12
