"""Removal of environments and of gpuinstall's own cache."""

from unittest.mock import Mock

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.removal import remove_path
from gpuinstall.environments import discarding
from gpuinstall.environments.records import record_environment
from gpuinstall.environments.running import Owner
from gpuinstall.install import removal
from gpuinstall.install.journal import (
    Journal,
    write_journal,
)
from gpuinstall.install.removal import (
    prune,
    remove,
    remove_cache,
)
from tests.lab.listener import Listener
from tests.lab.mounts import mounted
from tests.unit.install.environments import make_environment, write_files


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """A managed environment of this user."""
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    paths = EnvironmentPaths.at(tmp_path / "project" / ".venv")
    make_environment(paths.venv, "ours")
    record_environment(paths.venv, "ours", is_created=True)
    return paths


def test_uninstall_removes_only_own_cache_files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "cache" / "gpuinstall"
    (tmp_path / "elsewhere" / "thesis").mkdir(parents=True)
    for folder in ("stamps", "learned", "unreachable", "gpuinstall-x1"):
        (own / folder).mkdir(parents=True)
    (own / "pages").symlink_to(tmp_path / "elsewhere")
    (own / "mine.txt").touch()
    assert remove_cache() == [own / "mine.txt"]
    assert {path.name for path in own.iterdir()} == {"mine.txt"}
    assert (tmp_path / "elsewhere" / "thesis").is_dir()


@pytest.mark.parametrize("name", ["previous", "last_change"])
def test_user_folder_at_rollback_path_is_kept(paths, name):
    folder = getattr(paths, name)
    write_files(folder, "thesis.tex")
    assert prune(Listener()) == {}
    assert list(remove(paths, Listener())) == [paths.venv]
    assert (folder / "thesis.tex").exists()


def test_removal_continues_after_a_kill(paths):
    write_journal(Journal(Owner.here()), paths, paths.last_change)
    remove_path(paths.venv)
    assert list(remove(paths, Listener())) == [paths.last_change]
    with pytest.raises(UsageError, match="there is no environment"):
        remove(paths, Listener())
    write_files(paths.work, ".discarded-0123abcd/torch.so")
    assert remove(paths, Listener()) == {}
    assert not paths.work.exists()


def test_user_files_are_listed_before_a_removal(paths, monkeypatch):
    files = [f"notes-{number}.txt" for number in range(9)]
    write_files(paths.venv, "a.ipynb", *files)
    real = remove_path
    listener = Listener()

    def remove_all_but_one(folder):
        assert len(listener.notices) == 1
        kept = folder.parent / "kept"
        (folder / "a.ipynb").rename(kept)
        real(folder)
        write_files(folder)
        folder.mkdir()
        kept.rename(folder / "a.ipynb")

    monkeypatch.setattr(discarding, "remove_path", remove_all_but_one)
    with pytest.raises(InstallationError, match=r"a\.ipynb cannot be removed"):
        remove(paths, listener)
    [notice] = listener.notices
    text = f"Removing {paths.venv}, including a.ipynb, {', '.join(files)} (created"
    assert notice.startswith(text)


@pytest.mark.root
def test_full_disk_removes_no_mounted_or_user_files(paths, tmp_path, monkeypatch):
    outside = write_files(tmp_path / "data", "a/__pycache__/b.cpython-312.pyc")
    mine = write_files(paths.venv, "__pycache__/notes.txt", "__pycache__/c.pyc")
    full = Mock(disk_usage=Mock(return_value=Mock(free=0)))
    monkeypatch.setattr(removal, "shutil", full)
    with (
        mounted(paths.venv / "data", "--bind", outside),
        pytest.raises(UsageError, match="something is mounted"),
    ):
        remove(paths, Listener())
    assert (outside / "a/__pycache__/b.cpython-312.pyc").exists()
    assert [path.name for path in (mine / "__pycache__").iterdir()] == ["notes.txt"]
