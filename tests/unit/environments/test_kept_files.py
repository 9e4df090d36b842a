"""An environment that goes, and what of it stays."""

import os
import shutil
import sys
from unittest.mock import Mock

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.environments import kept_files
from gpuinstall.environments.kept_files import remove_environment
from gpuinstall.install.transaction import clear_away
from tests.lab.listener import Listener
from tests.lab.mounts import mounted
from tests.lab.wheels import make_wheel
from tests.unit.install.environments import make_environment, write_files


@pytest.fixture
def paths(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / "project" / ".venv")
    paths.work.mkdir(parents=True)
    make_environment(paths.venv, "old")
    return paths


def remove(paths, folder=None):
    """Remove an environment; return what was said."""
    listener = Listener()
    remove_environment(folder or paths.venv, paths.kept_files, paths.work, listener)
    return listener.notices


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {path.relative_to(folder).as_posix() for path in found}


def kept(paths):
    """The files that were kept, without the dates of their folders."""
    return {file.partition("/")[2] for file in files(paths.kept_files)}


def test_what_installers_wrote_goes_without_a_word(paths):
    assert remove(paths) == []
    assert {path.name for path in paths.folder.iterdir()} == {paths.work.name}
    assert [*paths.work.iterdir()] == []


def test_the_users_files_alone_are_kept_and_named_with_their_bytes(paths):
    write_files(paths.venv, "notebooks/a.ipynb", text="n" * 4000)
    write_files(paths.venv, "lib/python3.12/site-packages/mine.py")
    [notice] = remove(paths)
    assert not paths.venv.exists()
    assert kept(paths) == {
        ".venv/notebooks/a.ipynb",
        ".venv/lib/python3.12/site-packages/mine.py",
    }
    assert "lib, notebooks (created or edited by you)" in notice
    assert f"4 kB, now in {next(paths.kept_files.iterdir())}/.venv" in notice


def test_kept_files_are_never_replaced(paths):
    for number in range(2):
        write_files(paths.venv, "data.csv", text=str(number))
        remove(paths)
        make_environment(paths.venv, "next")
    texts = {file.read_text() for file in paths.kept_files.glob("*/.venv/data.csv")}
    assert texts == {"0", "1"}


def test_a_folder_that_is_no_environment_is_kept_as_it_is(paths, tmp_path):
    remove(paths, write_files(tmp_path / "thesis", ".git/HEAD", "bin/python"))
    assert kept(paths) == {"thesis/.git/HEAD", "thesis/bin/python"}


def test_packages_that_were_added_are_named_with_their_versions(paths):
    (paths.venv / "lib/python3.12/site-packages/cowsay-6.1.dist-info").mkdir()
    removed = f"Removed cowsay 6.1: added by pip or uv to {paths.venv}"
    assert remove(paths) == [removed]


@pytest.mark.parametrize("is_link", [True, False])
def test_kept_files_go_through_no_link(paths, tmp_path, is_link):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if is_link:
        paths.kept_files.symlink_to(elsewhere)
    else:
        paths.kept_files.touch()
    write_files(paths.venv, "data.csv")
    before = files(paths.venv)
    with pytest.raises(InstallationError, match="is not a folder"):
        remove(paths)
    assert files(elsewhere) == set()
    assert files(paths.venv) == before


def test_of_a_link_only_the_link_goes(paths, tmp_path):
    write_files(tmp_path, "elsewhere/thesis")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    remove(paths, link)
    assert not link.is_symlink()
    assert files(tmp_path / "elsewhere") == {"thesis"}


@pytest.mark.root
def test_nothing_goes_while_something_is_mounted_in_it(paths, tmp_path):
    source = write_files(tmp_path / "source", "thesis.tex")
    folder = paths.venv / "share" / "my data"
    folder.mkdir(parents=True)
    before = files(paths.venv)
    with (
        mounted(folder, "--bind", source),
        pytest.raises(UsageError, match=r"something is mounted at .*my data"),
    ):
        remove(paths)
    assert files(paths.venv) == before
    assert (source / "thesis.tex").read_text() == "mine"


@pytest.fixture
def installed(paths, tmp_path):
    """Install a package with uv, whose files are those of uv's cache; return its folder."""
    wheel = make_wheel(
        tmp_path, "tool", "1.0", modules={"tool/__init__.py": "", "tool/page": "a page"}
    )
    shutil.rmtree(paths.venv)
    process.run([uv.uv(), "venv", "--python", sys.executable, paths.venv])
    words = ("--offline", "--link-mode", "hardlink", "--python", paths.venv)
    assert process.run([uv.uv(), "pip", "install", *words, wheel]).ok
    return next(paths.venv.glob("lib/python*/site-packages")) / "tool"


def edit_in_place(file):
    with file.open("a", encoding="utf-8") as opened:
        opened.write("# mine")


def edit_with_the_same_size(file):
    file.write_text("my page"[:6], "utf-8")


def replace_and_keep_the_time(file):
    status = file.stat()
    file.unlink()
    file.write_text("mine, and longer")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "edit", [edit_in_place, edit_with_the_same_size, replace_and_keep_the_time]
)
def test_an_edited_file_of_a_package_is_kept(paths, installed, edit):
    path = (installed / "page").relative_to(paths.folder).as_posix()
    edit(installed / "page")
    text = (installed / "page").read_text()
    remove(paths)
    assert kept(paths) == {path}
    assert next(paths.kept_files.glob(f"*/{path}")).read_text() == text


def test_a_checkout_that_is_linked_into_the_packages_is_left_alone(
    paths, installed, tmp_path
):
    checkout = installed.rename(tmp_path / "checkout")
    edit_in_place(checkout / "page")
    before = files(checkout)
    installed.symlink_to(checkout)
    remove(paths)
    assert files(checkout) == before
    assert kept(paths) == {installed.relative_to(paths.folder).as_posix()}


def test_what_a_killed_run_has_left_is_removed_by_the_next(paths, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(kept_files, "remove_path", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove(paths)
    assert len([*paths.work.iterdir()]) == 1
    clear_away(paths)
    assert [*paths.work.iterdir()] == []


def test_of_a_package_with_an_empty_record_goes_what_has_another_name(paths, tmp_path):
    site = paths.venv / "lib/python3.12/site-packages"
    write_files(site, "cut-1.0.dist-info/RECORD", text="")
    write_files(site, "cut/mine.py")
    cached = write_files(tmp_path, "cut.so") / "cut.so"
    os.link(cached, site / "cut" / "cut.so")
    remove(paths)
    assert kept(paths) == {".venv/lib/python3.12/site-packages/cut/mine.py"}
    assert cached.exists()
