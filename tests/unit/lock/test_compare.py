from __future__ import annotations

from gpuinstall.lock.compare import changes, differences
from gpuinstall.lock.lock import Lock, parse

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
        ENTRY.format(name=name, version=version.partition("#")[0], sha256=(version.partition("#")[2] or "1") * 64)
        for name, version in versions.items()
    )
    return parse(f"pylock.{target}.toml", HEAD + "".join(entries))


def test_what_came_went_moved_or_was_exchanged_is_told_apart() -> None:
    old, new = lock(a="1", b="1", c="1", d="1"), lock(b="1", c="2", d="1#2", e="1")
    assert [(change.package, change.kind) for change in changes(old, new)] == [
        ("a", "removed"),
        ("c", "changed"),
        ("d", "other-file"),
        ("e", "added"),
    ]
    assert [str(change)[0] for change in changes(old, new)] == ["-", "~", "!", "+"]


def test_equal_locks_have_no_changes() -> None:
    assert changes(lock(a="1"), lock(a="1")) == ()


def test_locks_differ_where_one_package_has_two_versions_and_the_family_does_not_count() -> None:
    locks = [lock("cpu", numpy="1", torch="2", only="1"), lock("cu126", numpy="2", torch="3")]
    assert differences(locks, {"torch"}) == {"numpy": {"cpu": "1", "cu126": "2"}}
