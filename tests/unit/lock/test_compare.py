from __future__ import annotations

from gpuinstall.lock.lock import Lock, compare_locks, parse

HEAD = 'lock-version = "1.0"\nrequires-python = "==3.12.*"\ncreated-by = "gpuinstall"\n'
ENTRY = """
[[packages]]
name = "{name}"
version = "{version}"
[[packages.wheels]]
url = "https://index.example/{name}-{version}-py3-none-any.whl"
hashes = {{ sha256 = "{sha256}" }}
"""


def lock(target: str = "cpu", **versions: str) -> Lock:
    entries = (
        ENTRY.format(
            name=name,
            version=version.partition("#")[0],
            sha256=(version.partition("#")[2] or "1") * 64,
        )
        for name, version in versions.items()
    )
    return parse(f"pylock.{target}.toml", HEAD + "".join(entries))


def test_what_came_went_moved_or_was_exchanged_is_told_apart() -> None:
    old, new = lock(a="1", b="1", c="1", d="1"), lock(b="1", c="2", d="1#2", e="1")
    assert [(change.package, change.kind) for change in compare_locks(old, new)] == [
        ("a", "removed"),
        ("c", "changed"),
        ("d", "other-file"),
        ("e", "added"),
    ]
    assert [str(change)[0] for change in compare_locks(old, new)] == ["-", "~", "!", "+"]


def test_equal_locks_have_no_compare_locks() -> None:
    assert compare_locks(lock(a="1"), lock(a="1")) == ()
