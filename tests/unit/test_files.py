"""Files that appear complete or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import pytest
from platformdirs import user_cache_path

from gpuinstall.errors import InstallationError
from gpuinstall.files import check_cache, files_below, own_cache_folder, remove_path, write_atomically, written
from gpuinstall.reporter import SilentReporter


def test_file_takes_the_place_of_the_old_one_in_new_folders(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, "old")
    write_atomically(path, "new\n")
    assert path.read_bytes() == b"new\n"
    assert list(path.parent.iterdir()) == [path]


def test_file_has_the_permissions_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_old_file_stays_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(InstallationError), written(path) as file:
        _half_written(file)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_disk_that_is_full_is_named() -> None:
    with pytest.raises(InstallationError) as caught, written(_full()) as file:
        file.write(b"x" * 100_000)
    assert caught.value.code == "not-writable"


class Warnings(SilentReporter):
    """Keeps what it is warned of."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.skipif(os.name != "posix", reason="modes as Unix has them")
def test_a_cache_that_everyone_can_write_to_is_refused_sticky_or_not(tmp_path: Path) -> None:
    taken = []
    for mode in (0o777, 0o1777, 0o755, 0o775):
        tmp_path.chmod(mode)
        try:
            check_cache(tmp_path, SilentReporter())
        except InstallationError:
            continue
        taken.append(mode)
    assert taken == [0o755, 0o775]


@pytest.mark.skipif(os.name != "posix", reason="modes as Unix has them")
def test_a_folder_above_a_cache_that_everyone_can_write_to_is_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    warned = []
    for mode in (0o777, 0o1777, 0o755):
        tmp_path.chmod(mode)
        warnings = Warnings()
        check_cache(cache, warnings)
        warned.append(warnings.texts)
    text = f"everyone can write to {tmp_path} and so exchange the cache {cache}, which is installed from"
    assert warned == [[text], [], []]


def _half_written(file: IO[bytes]) -> None:
    file.write(b"half")
    raise OSError(28, "No space left on device")


def _full() -> Path:
    from pathlib import Path

    return Path("/dev/full/file")


def test_a_folder_deeper_than_python_recurses_is_read_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    with monkeypatch.context() as here:
        here.chdir(deep)
        for _ in range(1500):
            os.mkdir("d")  # noqa: PTH102  a path from the top would be too long
            os.chdir("d")
        Path("file").touch()
    assert [file.name for file in files_below(deep)] == ["file"]
    remove_path(deep)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["/elsewhere/caches", " ", None])
def test_the_cache_lies_where_platformdirs_says(monkeypatch: pytest.MonkeyPatch, named: str | None) -> None:
    if named is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert own_cache_folder() == user_cache_path("gpuinstall", appauthor=False)
