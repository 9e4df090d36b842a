"""Removal of environments, and the user's files in them."""

import os
import shutil
import sys
from unittest.mock import Mock

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.environment_paths import EnvironmentPaths, packages_folders
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.text import sanitize
from gpuinstall.base.values import replace
from gpuinstall.environments import discarding
from gpuinstall.environments.discarding import discard_folder
from gpuinstall.environments.environment import (
    compute_script_digests,
    find_modified_scripts,
)
from gpuinstall.environments.ownership import find_user_paths
from gpuinstall.install.journal import remove_leftovers
from tests.lab.listener import Listener
from tests.lab.mounts import mounted
from tests.lab.skips import needs_links
from tests.lab.wheels import make_wheel
from tests.unit.install.environments import (
    MARKER,
    SCRIPTS,
    SITE,
    make_environment,
    write_files,
)


@pytest.fixture
def paths(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / "project" / ".venv")
    paths.work.mkdir(parents=True)
    make_environment(paths.venv, "old")
    return paths


def remove(paths, folder=None):
    """Remove an environment, and return the user's files in it."""
    folder = folder or paths.venv
    found = find_user_paths(folder)
    discard_folder(folder, paths.work, Reporter())
    return found


def files(folder):
    found = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return {path.relative_to(folder).as_posix() for path in found}


def test_files_written_by_installers_are_not_user_files(paths):
    assert remove(paths) == []
    assert {path.name for path in paths.folder.iterdir()} == {paths.work.name}
    assert [*paths.work.iterdir()] == []


def test_only_files_of_the_user_are_listed(paths):
    write_files(paths.venv, "notebooks/a.ipynb", text="n" * 4000)
    write_files(paths.venv, f"{SITE}/mine.py")
    assert remove(paths) == [f"{SITE}/mine.py", "notebooks"]
    assert not paths.venv.exists()


@pytest.mark.parametrize("name", [f"{SCRIPTS}/activate", "pyvenv.cfg"])
def test_modified_scripts_are_listed(paths, name):
    write_files(paths.venv, f"{SCRIPTS}/activate", "pyvenv.cfg", text="uv's")
    marker = replace(MARKER, scripts=compute_script_digests(paths.venv))
    marker.write(paths.venv)
    assert find_modified_scripts(paths.venv) == set()
    with (paths.venv / name).open("a") as file:
        file.write("mine")
    assert name in find_user_paths(paths.venv)


@needs_links
def test_removal_of_a_link_keeps_its_target(paths, tmp_path):
    write_files(tmp_path, "elsewhere/thesis")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    remove(paths, link)
    assert not link.is_symlink()
    assert files(tmp_path / "elsewhere") == {"thesis"}


@pytest.mark.root
def test_environment_with_a_mount_is_not_removed(paths, tmp_path):
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
    """Install a package linked to uv's cache, and return its folder."""
    wheel = make_wheel(
        tmp_path, "tool", "1.0", modules={"tool/__init__.py": "", "tool/page": "a page"}
    )
    shutil.rmtree(paths.venv)
    process.run([uv.uv(), "venv", "--python", sys.executable, paths.venv])
    words = ("--offline", "--link-mode", "hardlink", "--python", paths.venv)
    assert process.run([uv.uv(), "pip", "install", *words, wheel]).ok
    [site] = packages_folders(paths.venv)
    return site / "tool"


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
def test_modified_file_of_a_package_is_listed(paths, installed, edit):
    path = (installed / "page").relative_to(paths.venv).as_posix()
    assert path not in find_user_paths(paths.venv)
    edit(installed / "page")
    assert find_user_paths(paths.venv) == [path]


@needs_links
def test_symlinked_package_checkout_is_not_removed(paths, installed, tmp_path):
    checkout = installed.rename(tmp_path / "checkout")
    edit_in_place(checkout / "page")
    before = files(checkout)
    installed.symlink_to(checkout)
    assert remove(paths) == [installed.relative_to(paths.venv).as_posix()]
    assert files(checkout) == before


def test_next_command_completes_an_interrupted_removal(paths, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(discarding, "remove_path", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove(paths)
    assert len([*paths.work.iterdir()]) == 1
    remove_leftovers(paths)
    assert [*paths.work.iterdir()] == []


def test_file_that_cannot_be_removed_is_reported(paths, monkeypatch):
    monkeypatch.setattr(discarding, "remove_path", Mock())
    with pytest.raises(InstallationError, match="cannot be removed"):
        remove(paths)


def test_files_of_package_with_empty_record_are_listed(paths, tmp_path):
    site = paths.venv / SITE
    write_files(site, "cut-1.0.dist-info/RECORD", text="")
    write_files(site, "cut/mine.py")
    cached = write_files(tmp_path, "cut.so") / "cut.so"
    os.link(cached, site / "cut" / "cut.so")
    assert remove(paths) == [f"{SITE}/cut/mine.py"]
    assert cached.exists()


@pytest.mark.root
def test_hint_removes_an_immutable_file(paths):
    file = write_files(paths.venv, "notes.txt") / "notes.txt"
    if not process.run(["chattr", "+i", file]).ok:
        pytest.skip("this file system has no immutable files")
    try:
        with pytest.raises(InstallationError, match="cannot be removed") as caught:
            remove(paths)
        assert [*paths.work.iterdir()] != []
        for line in (caught.value.hint or "").splitlines():
            process.run(["sh", "-c", line])
        assert [*paths.work.iterdir()] == []
    finally:
        process.run(["chattr", "-R", "-i", paths.work])


def test_all_removed_user_files_are_listed(paths):
    names = [f"{number:060}.txt" for number in range(200)]
    write_files(paths.venv, *names)
    listener = Listener()
    discard_folder(paths.venv, paths.work, listener)
    lines = [sanitize(notice) for notice in listener.notices]
    assert all(any(name in line for line in lines) for name in names)
