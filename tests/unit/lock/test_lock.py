import pytest

from gpuinstall.base.errors import LockError
from gpuinstall.lock.file.lock import parse, read_lock

LOCK = """lock-version = "1.0"
requires-python = "==3.12.*"
created-by = "gpuinstall"

[[packages]]
name = "torch"
version = "2.14.1+cu126"
[[packages.wheels]]
url = "https://index.example/torch-2.14.1%2Bcu126-cp312-cp312-linux_x86_64.whl"
hashes = { sha256 = "1111111111111111111111111111111111111111111111111111111111111111" }
"""


def test_a_lock_knows_its_python_its_versions_and_its_digest():
    lock = parse("pylock.cu126.toml", LOCK)
    assert (lock.python, lock.versions) == ("3.12", {"torch": "2.14.1+cu126"})
    assert len(lock.sha256) == 64
    assert not lock.is_ours


def test_a_package_that_is_listed_twice_has_all_hashes():
    _, package = LOCK.split("\n\n")
    lock = parse("pylock.toml", f"{LOCK}\n{package.replace('1' * 64, '2' * 64)}")
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
    assert parse("pylock.toml", LOCK.replace("==3.12.*", pythons)).python is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (LOCK[:-40], "lock-malformed"),
        (LOCK.replace('created-by = "gpuinstall"', ""), "lock-malformed"),
        (
            LOCK.replace(
                'hashes = { sha256 = "1111111111111111111111111111111111111111111111111111111111111111" }',
                "hashes = {}",
            ),
            "lock-malformed",
        ),
        (LOCK.replace('"1.0"', '"2.0"'), "lock-version"),
        (LOCK.replace('"1.0"', '"1.1"'), "lock-version"),
        (
            LOCK.replace("%2B", "+").replace(
                'url = "https://index.example', 'path = "../../etc'
            ),
            "lock-traversal",
        ),
        (
            LOCK.replace(
                "https://index.example/torch", "https://index.example/..%2F..%2Ftorch"
            ),
            "lock-malformed",
        ),
        (
            LOCK.replace(
                "url =",
                'path = "x/../torch-2.14.1+cu126-cp312-cp312-linux_x86_64.whl"\nurl =',
            ),
            "lock-traversal",
        ),
        (
            LOCK.replace("[[packages.wheels]]", "[packages.archive]").replace(
                "/torch", "/..%2F..%2Ftorch"
            ),
            "lock-traversal",
        ),
        (
            LOCK.replace("/torch", "/..%5Ctorch").replace(
                "url =", 'name = "torch-1-py3-none-any.whl"\nurl ='
            ),
            "lock-malformed",
        ),
        (LOCK.replace("1" * 64, "0x1"), "lock-malformed"),
        ("", "lock-malformed"),
    ],
)
def test_a_lock_that_cannot_be_trusted_is_refused(text, code):
    with pytest.raises(LockError) as caught:
        parse("pylock.cu126.toml", text)
    assert caught.value.code == code
    assert "pylock.cu126.toml" in caught.value.message
    assert caught.value.hint


def test_a_lock_of_another_version_is_refused_in_our_own_words(
    caplog,
):
    with pytest.raises(LockError):
        parse("pylock.cu126.toml", LOCK.replace('"1.0"', '"1.1"'))
    assert caplog.records == []


def test_packages_that_no_hash_can_pin_are_known():
    wheel = LOCK[LOCK.index("[[packages.wheels]]") :]
    folder = LOCK.replace(wheel, '[packages.directory]\npath = "."\n')
    repository = LOCK.replace(
        wheel,
        '[packages.vcs]\ntype = "git"\nurl = "https://index.example/a"\ncommit-id = "1"\n',
    )
    assert parse("pylock.cu126.toml", LOCK).addresses == {}
    assert parse("pylock.cu126.toml", LOCK).unserved == []
    assert parse("pylock.cu126.toml", LOCK).pinned_by == "every file hashed"
    assert parse("pylock.cu126.toml", folder).addresses == {"torch": "torch @ ."}
    assert parse("pylock.cu126.toml", repository).addresses == {
        "torch": "torch @ git+https://index.example/a@1"
    }
    assert (
        parse("pylock.cu126.toml", folder).pinned_by
        == "every file hashed but those of torch @ ."
    )
    assert parse("pylock.cu126.toml", repository).pinned_by == (
        "every file hashed but those of torch @ git+https://index.example/a@1"
    )
    elsewhere = folder.replace('"."', '"/srv/torch"')
    local = repository.replace("https://index.example/a", "file:///srv/a")
    texts = (folder, repository, elsewhere, local)
    assert [parse("pylock.cu126.toml", text).only_here for text in texts] == [
        [],
        [],
        ["torch"],
        ["torch"],
    ]


def test_a_missing_and_an_unreadable_lock_are_told_apart(tmp_path):
    with pytest.raises(LockError) as missing:
        read_lock(tmp_path / "pylock.cpu.toml")
    (tmp_path / "pylock.cpu.toml").write_bytes(b"\xff\xff")
    (tmp_path / "pylock.cu126.toml").mkdir()
    for name in ("pylock.cpu.toml", "pylock.cu126.toml"):
        with pytest.raises(LockError) as unreadable:
            read_lock(tmp_path / name)
        assert (missing.value.code, unreadable.value.code) == (
            "lock-missing",
            "lock-unreadable",
        )
        assert unreadable.value.hint
    assert f"mv {tmp_path / name} " in (unreadable.value.hint or "")
