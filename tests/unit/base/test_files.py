"""Files that are written atomically."""

import os
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from gpuinstall.base import files, owners
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import (
    check_cache,
    check_outside,
    make_diagnostic_hint,
    make_private_folder,
    open_atomically,
    open_regular,
    restore_umask,
    tighten_umask,
    write_atomically,
    write_in_place,
)
from gpuinstall.base.removal import iter_files, remove_path
from gpuinstall.base.reporter import Reporter
from tests.lab.listener import Listener
from tests.lab.mounts import mounted


def test_atomic_write_creates_missing_folders(tmp_path):
    path = tmp_path / "new" / "file"
    write_atomically(path, "old")
    write_atomically(path, "new\n")
    assert path.read_bytes() == b"new\n"
    assert list(path.parent.iterdir()) == [path]


def test_failed_write_keeps_the_previous_file(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(InstallationError) as caught, open_atomically(path) as file:
        _half_written(file)
    assert caught.value.code == "not-writable"
    assert path.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_ls_hint_contains_an_existing_parent(tmp_path):
    file = tmp_path / "file"
    (tmp_path / ".venv.gpuinstall" / "staging-1").mkdir(parents=True)
    file.touch()
    stays = {".venv.gpuinstall/staging-1/bin": tmp_path, "none/none": tmp_path}
    for name, place in {**stays, "file": file}.items():
        assert (
            str(make_diagnostic_hint(tmp_path / name, None))
            == f"ls -ld {place}; df -h {place}; df -i {place}"
        )


@pytest.mark.skipif(os.name != "posix", reason="requires Unix file modes")
@pytest.mark.parametrize("is_careful", [False, True])
def test_world_writable_cache_warns_or_is_rejected(
    tmp_path, monkeypatch, *, is_careful
):
    monkeypatch.setattr(owners, "is_careful", lambda: is_careful)
    cache = tmp_path / "cache"
    cache.mkdir()
    check_cache(cache, listener := Listener())
    assert listener.warnings == []
    tmp_path.chmod(0o777)
    effect = f"can change what is installed from the cache {cache}"

    if is_careful:
        with pytest.raises(InstallationError, match=effect) as refused:
            check_cache(cache, listener)
        assert (refused.value.hint or "").startswith(f"chmod o-w {tmp_path} ")
    else:
        check_cache(cache, listener)
        assert listener.warnings == [
            f"everyone can write to {tmp_path}: other users {effect}"
        ]


@pytest.mark.root
@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0,
    reason="only root can change a folder's owner",
)
def test_owner_of_cache_or_parent_is_reported(tmp_path):
    cache = tmp_path / "above" / "cache"
    cache.mkdir(parents=True)
    for folder in (cache, cache.parent):
        os.chown(folder, 12345, -1)
        listener = Listener()
        check_cache(cache, listener)
        assert listener.warnings == [
            f"{folder} belongs to uid 12345: other users can change what is installed from the cache {cache}"
        ]
        os.chown(folder, 0, -1)


def _half_written(file):
    file.write(b"half")
    raise OSError(28, "No space left on device")


def test_deeply_nested_directories_are_read_and_removed(tmp_path, monkeypatch):
    deep = tmp_path / "deep"
    deep.mkdir()
    with monkeypatch.context() as here:
        here.chdir(deep)
        for _ in range(1500):
            os.mkdir("d")  # noqa: PTH102  a path from the top would be too long
            os.chdir("d")
        Path("file").touch()
    assert [file.name for file in iter_files(deep)] == ["file"]
    remove_path(deep)
    assert not deep.exists()


@pytest.mark.parametrize(
    ("mode", "has_modes", "expected"),
    [(0o600, True, 0o600), (0o640, True, 0o640), (0o640, False, 0o600)],
)
def test_replaced_file_keeps_its_mode(
    tmp_path, monkeypatch, mode, expected, *, has_modes
):
    path = tmp_path / "pip.conf"
    path.write_text("token", "utf-8")
    path.chmod(mode)
    if not has_modes:
        monkeypatch.setattr(os, "fchmod", Mock(side_effect=PermissionError))
    with open_atomically(path) as file:
        (part,) = {*tmp_path.iterdir()} - {path}
        assert stat.S_IMODE(part.stat().st_mode) == expected
        file.write(b"token")
    assert stat.S_IMODE(path.stat().st_mode) == expected


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="only root can change a file's owner"
)
def test_replaced_file_keeps_its_owner(tmp_path):
    file = tmp_path / "pip.conf"
    file.write_bytes(b"old")
    file.chmod(0o640)
    os.chown(file, 12345, 54321)
    for is_private in (False, True):
        write_atomically(file, "new", is_private=is_private)
        status = file.stat()
        found = (file.read_bytes(), status.st_uid, status.st_gid)
        assert found == (b"new", 12345, 54321)
    assert stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="requires pipes and device files")
def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "empty").touch()
    for name in ("pipe", "endless"):
        with pytest.raises(OSError, match="it is not a regular file"):
            open_regular(tmp_path / name)
    with open_regular(tmp_path / "empty") as file:
        assert file.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="requires file modes")
def test_cache_directory_is_private_for_any_umask(tmp_path):
    cache = tmp_path / "home" / "cache" / "gpuinstall"
    before = os.umask(0)
    try:
        check_cache(cache, Reporter())
        tighten_umask()
        (cache / "of another program").mkdir()
        within = os.umask(0)
        restore_umask()
        restored = os.umask(0)
    finally:
        os.umask(before)
    folders = (cache.parent.parent, cache, cache / "of another program")
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in folders]
    assert modes == [0o700, 0o700, 0o775]
    assert (within, restored) == (0o002, 0)


def test_unwritable_cache_is_reported(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file" / "gpuinstall", tmp_path / ("x" * 300)):
        with pytest.raises(InstallationError, match="cannot be written"):
            make_private_folder(folder)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm")  # noqa: S108
def test_files_in_shared_memory_are_replaced():
    with TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "environment.yml")
        write_in_place(file, "long ago\n")
        write_in_place(file, "now\n")
        check_outside(file, file, "a.txt, line 1")

        assert file.read_text("utf-8") == "now\n"


@pytest.mark.root
def test_file_on_another_file_system_is_replaced(tmp_path):
    """An environment can be a mount of its own."""
    with mounted(tmp_path / "venv", "-t", "tmpfs", "none") as venv:
        write_atomically(venv / "marker", "new", tmp_path)
        assert [path.read_text() for path in venv.iterdir()] == ["new"]
    assert {path.name for path in tmp_path.iterdir()} == {"venv"}


def test_file_in_use_on_windows_is_replaced_later(monkeypatch):
    refusals = [PermissionError(13, "Access is denied")] * 3

    def replace():
        if refusals:
            raise refusals.pop()
        return "replaced"

    with pytest.raises(PermissionError):
        files.retry(replace)
    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt"))
    assert files.retry(replace) == "replaced"


def test_other_errors_are_not_retried(monkeypatch):
    tried = []

    def remove():
        tried.append(1)
        raise FileNotFoundError

    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt"))
    with pytest.raises(FileNotFoundError):
        files.retry(remove)
    assert len(tried) == 1


def test_retries_end_after_some_seconds(monkeypatch):
    def replace():
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(files, "RETRY_S", 0.1)
    with pytest.raises(PermissionError):
        files.retry(replace)
