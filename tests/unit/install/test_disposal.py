"""An environment that goes, and what of it stays."""

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.install import swap
from gpuinstall.install.swap import dispose, finish_swap
from tests.lab.listener import Listener
from tests.unit.install.environments import make_environment


class Killed(BaseException):
    """Plays kill -9."""


@pytest.fixture
def paths(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    paths.work.mkdir()
    make_environment(paths.previous, "old")
    return paths


def write(file, text="mine"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def files(folder):
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not path.is_dir()
    }


def kept(paths):
    """The files that were kept, without the dates of their folders."""
    return (
        {file.partition("/")[2] for file in files(paths.kept)}
        if paths.kept.exists()
        else set()
    )


def test_an_environment_of_installers_alone_goes_without_a_word(paths):
    listener = Listener()
    dispose(paths.previous, paths, listener)
    assert [*paths.work.iterdir()] == []
    assert not paths.kept.exists()
    assert listener.notices == []


def test_an_environment_with_files_of_the_users_is_kept_whole_in_a_dated_folder(paths):
    write(paths.previous / "notebooks" / "a.ipynb")
    write(paths.previous / "lib/python3.12/site-packages/mine.py")
    listener = Listener()
    dispose(paths.previous, paths, listener)
    expected = {
        "previous/notebooks/a.ipynb",
        "previous/lib/python3.12/site-packages/mine.py",
    }
    assert {*expected, "previous/gpuinstall.json"} <= kept(paths)
    [notice] = listener.notices
    assert "notebooks" in notice
    assert f"Kept {next(paths.kept.iterdir())}/previous, complete" in notice
    make_environment(paths.previous, "next")
    write(paths.previous / "data.csv")
    dispose(paths.previous, paths, listener)
    assert {*expected, "previous/data.csv"} <= kept(paths)
    assert [*paths.work.iterdir()] == []


def test_a_folder_that_is_no_environment_is_kept_as_it_is(paths, tmp_path):
    write(tmp_path / "project" / ".git" / "HEAD")
    write(tmp_path / "project" / "bin" / "python")
    dispose(tmp_path / "project", paths, Reporter())
    assert kept(paths) == {"project/.git/HEAD", "project/bin/python"}


def test_packages_that_were_added_are_listed_with_their_versions(paths):
    (paths.previous / "lib/python3.12/site-packages/cowsay-6.1.dist-info").mkdir()
    listener = Listener()
    dispose(paths.previous, paths, listener)
    assert listener.notices == [
        f"Removed cowsay 6.1: added by pip or uv to {paths.previous}"
    ]


@pytest.mark.parametrize("place", ["link", "file"])
def test_kept_files_go_through_no_link(paths, tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    if place == "link":
        paths.kept.symlink_to(tmp_path / "elsewhere")
    else:
        paths.kept.touch()
    write(paths.previous / "data.csv")
    with pytest.raises(InstallationError, match="is not a folder"):
        dispose(paths.previous, paths, Reporter())
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    assert (paths.previous / "data.csv").exists()


def test_of_a_link_only_the_link_goes(paths, tmp_path):
    write(tmp_path / "elsewhere" / "thesis")
    link = paths.work / "aside"
    link.symlink_to(tmp_path / "elsewhere")
    dispose(link, paths, Reporter())
    assert not link.is_symlink()
    assert files(tmp_path / "elsewhere") == {"thesis"}


def test_what_was_left_of_it_is_deleted_by_the_next_run(paths, monkeypatch):
    def dies(_path):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(swap, "remove_path", dies)
        with pytest.raises(Killed):
            dispose(paths.previous, paths, Reporter())
    assert len([*paths.work.iterdir()]) == 1
    finish_swap(paths, Reporter())
    assert [*paths.work.iterdir()] == []


def test_other_files_in_the_working_folder_stay(paths):
    names = {".my.notes", ".discarded-0123", "staging-notes"}
    for name in names:
        write(paths.work / name / "file")
    finish_swap(paths, Reporter())
    assert {path.name for path in paths.work.iterdir()} == {*names, "previous"}
