"""Sources by URL or path, as uv uses them."""

import pytest

from gpuinstall.base.location import SourceKind, parse_source

ADDRESSES = {
    "https://h.example/x-1.tar.gz": SourceKind.ARCHIVE,
    "https://h.example/x-1.tar.gz?x=.whl": SourceKind.ARCHIVE,
    "https://h.example/x-1.tar.gz#x.whl": SourceKind.ARCHIVE,
    "https://h.example/x-1-py3-none-any.whl": SourceKind.WHEEL,
    "https://h.example/x-1-py3-none-any.whl?a=1#b": SourceKind.WHEEL,
    "https://me@h.example/x": SourceKind.ARCHIVE,
    "https://h.example/x.git": SourceKind.REPOSITORY,
    "git+https://h.example/x-1-py3-none-any.whl": SourceKind.REPOSITORY,
    "git+ssh://git@h.example/x@v1": SourceKind.REPOSITORY,
    "hg+https://h.example/x": SourceKind.REPOSITORY,
    "folder.whl": SourceKind.DIRECTORY,
    "archive.whl": SourceKind.WHEEL,
    "wheel.tar.gz": SourceKind.ARCHIVE,
    "missing-1.zip": SourceKind.ARCHIVE,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_source_kind_matches_uv(tmp_path, address):
    (tmp_path / "folder.whl").mkdir()
    # uv builds an archive whose link has the name of an archive.
    (tmp_path / "archive.whl").symlink_to("x-1.tar.gz")
    (tmp_path / "wheel.tar.gz").symlink_to("x-1-py3-none-any.whl")

    assert parse_source(address, tmp_path).kind is ADDRESSES[address]


@pytest.mark.parametrize(
    ("address", "path", "reference", "subdirectory"),
    [
        ("git+https://h.example/x@feature/y", "/x", "feature/y", ""),
        ("git+https://me:pw@h.example/x", "/x", "", ""),
        ("git+ssh://git@h.example/x.git@v1#subdirectory=a", "/x.git", "v1", "a"),
        ("https://h.example/x.zip#subdirectory=a&subdirectory=b", "/x.zip", "", "a"),
    ],
)
def test_reference_and_subdirectory_are_parsed(address, path, reference, subdirectory):
    source = parse_source(address)

    assert source.location.path == path
    assert (source.reference, source.subdirectory) == (reference, subdirectory)
    assert "pw" not in repr(source)


def test_file_url_is_absolute(tmp_path):
    (tmp_path / "a").mkdir()
    assert parse_source("file:a/x", tmp_path).location.path == "/a/x"
    assert parse_source("file:///x%20y", tmp_path).location.path == "/x y"
