import errno
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import exchange
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.environment import read_marker
from gpuinstall.install import swap
from gpuinstall.install.swap import finish_swap, swap_in
from tests.unit.install.environments import lock_text, make_environment, name_of


class Killed(BaseException):
    """Plays kill -9: nothing catches it and nothing is tidied."""


@pytest.fixture
def paths(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    make_environment(paths.staging, "new", "2.15.0")
    return paths


@pytest.fixture
def replaced(paths):
    make_environment(paths.venv, "old", "2.14.1")
    make_environment(paths.previous, "older", "2.13.0")
    (paths.folder / "pylock.cu126.toml").write_text(lock_text("2.14.1"), "utf-8")
    return paths


@pytest.fixture(params=["exchange", "two renames"])
def either_way(request, monkeypatch):
    if request.param == "two renames":
        monkeypatch.setattr(swap, "exchange", lambda _one, _other: False)


def beside(paths):
    return (paths.folder / "pylock.cu126.toml").read_text("utf-8")


def test_the_first_environment_takes_its_place_with_its_lock(paths):
    swap_in(paths, paths.staging, Reporter())
    assert name_of(paths.venv) == "new"
    assert beside(paths) == lock_text("2.15.0")
    assert not paths.staging.exists()
    assert not paths.previous.exists()
    assert not paths.work.exists() or not list(paths.work.iterdir())


@pytest.mark.usefixtures("either_way")
def test_the_replaced_environment_is_kept_and_the_one_before_it_goes(
    replaced,
):
    swap_in(replaced, replaced.staging, Reporter())
    assert (name_of(replaced.venv), name_of(replaced.previous)) == ("new", "old")
    assert beside(replaced) == lock_text("2.15.0")
    assert {entry.name for entry in replaced.work.iterdir()} == {"previous"}


@pytest.mark.parametrize("is_copy", [True, False])
def test_what_has_files_of_the_users_goes_only_if_they_are_in_its_copy(
    replaced, is_copy
):
    (replaced.previous / "notes.txt").write_text("mine")
    marker = read_marker(replaced.venv)
    assert marker is not None
    if is_copy:
        replace(marker, copied_from="older").write(replaced.venv)

    swap_in(replaced, replaced.staging, Reporter())

    assert name_of(replaced.previous) == "old"
    assert {entry.name for entry in replaced.work.iterdir()} == {"previous"}
    kept = [file.name for file in replaced.kept.glob("*/previous/*")]
    assert kept == ([] if is_copy else ["notes.txt"])


@pytest.mark.usefixtures("either_way")
def test_going_back_exchanges_environment_and_lock_and_again_goes_forth(
    replaced,
):
    swap_in(replaced, replaced.staging, Reporter())
    swap_in(replaced, replaced.previous, Reporter())
    assert (name_of(replaced.venv), name_of(replaced.previous)) == ("old", "new")
    assert beside(replaced) == lock_text("2.14.1")
    swap_in(replaced, replaced.previous, Reporter())
    assert (name_of(replaced.venv), name_of(replaced.previous)) == ("new", "old")
    assert beside(replaced) == lock_text("2.15.0")


def kill_before(monkeypatch, owner, name, call=1):
    real = getattr(owner, name)
    left = [call]

    def dies(*args, **kwargs):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, dies)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("remember_replaced", 1),
        ("exchange", 1),
        ("publish_lock", 1),
        ("write_atomically", 1),
        ("remove_environment", 1),
        ("user_paths", 1),
    ],
)
def test_a_run_killed_at_any_step_leaves_the_old_environment_or_the_new_one(
    replaced, monkeypatch, step, call
):
    with monkeypatch.context() as patched:
        kill_before(patched, swap, step, call)
        with pytest.raises(Killed):
            swap_in(replaced, replaced.staging, Reporter())
    finish_swap(replaced, Reporter())
    now = name_of(replaced.venv), name_of(replaced.previous), beside(replaced)
    assert now in {
        ("old", "older", lock_text("2.14.1")),
        ("new", "old", lock_text("2.15.0")),
    }
    assert {entry.name for entry in replaced.work.iterdir()} == {"previous"}


@pytest.mark.parametrize("rename", [1, 2, 3, 4])
def test_a_run_killed_between_two_renames_is_repaired(replaced, monkeypatch, rename):
    with monkeypatch.context() as patched:
        patched.setattr(swap, "exchange", lambda _one, _other: False)
        kill_before(patched, Path, "rename", rename)
        with pytest.raises(Killed):
            swap_in(replaced, replaced.staging, Reporter())
    finish_swap(replaced, Reporter())
    assert (name_of(replaced.venv), name_of(replaced.previous)) in {
        ("old", "older"),
        ("new", "old"),
    }
    assert not replaced.aside.exists()


@pytest.mark.parametrize("rename", [1, 2, 3, 4])
def test_going_back_killed_between_two_renames_loses_neither(
    replaced, monkeypatch, rename
):
    with monkeypatch.context() as patched:
        patched.setattr(swap, "exchange", lambda _one, _other: False)
        kill_before(patched, Path, "rename", rename)
        with pytest.raises(Killed):
            swap_in(replaced, replaced.previous, Reporter())
    finish_swap(replaced, Reporter())
    assert {name_of(replaced.venv), name_of(replaced.previous)} == {"old", "older"}


def test_leftovers_of_runs_that_died_while_building_are_cleared(replaced):
    (replaced.work / "staging-0123abcd").mkdir()
    (replaced.work / ".owner.0123abcd").touch()
    (replaced.work / ".gitignore").touch()
    finish_swap(replaced, Reporter())
    assert {entry.name for entry in replaced.work.iterdir()} == {
        "previous",
        ".gitignore",
    }
    assert name_of(replaced.venv) == "old"
    assert list(replaced.work.glob("staging-*")) == []


def test_other_files_in_the_working_folder_stay(replaced):
    names = {".my.notes", ".mine.0123abcd", "staging-notes", "previous-notes=1"}
    for name in names:
        (replaced.work / name).mkdir()
        (replaced.work / name / "mine").touch()
    finish_swap(replaced, Reporter())
    assert {entry.name for entry in replaced.work.iterdir()} == {*names, "previous"}
    assert all((replaced.work / name / "mine").exists() for name in names)


def test_the_replaced_environment_is_kept_if_the_new_one_was_removed_after_a_kill(
    replaced, monkeypatch
):
    (replaced.venv / "notes").touch()
    with monkeypatch.context() as patched:
        kill_before(patched, swap, "publish_lock")
        with pytest.raises(Killed):
            swap_in(replaced, replaced.staging, Reporter())
    shutil.rmtree(replaced.venv)
    finish_swap(replaced, Reporter())
    assert name_of(replaced.previous) == "old"
    assert (replaced.previous / "notes").exists()


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EBUSY])
def test_a_place_that_cannot_be_renamed_is_refused_with_the_way_out(
    replaced, monkeypatch, number
):
    def fixed(_one, _other):
        raise OSError(number, "cannot")

    monkeypatch.setattr(swap, "exchange", fixed)
    with pytest.raises(InstallationError) as caught:
        swap_in(replaced, replaced.staging, Reporter())
    assert caught.value.code == "not-replaceable"
    assert "--venv" in (caught.value.hint or "")
    assert name_of(replaced.venv) == "old"
    assert beside(replaced) == lock_text("2.14.1")
    assert not replaced.staging.exists()


def test_a_lock_that_cannot_be_written_costs_no_environment(replaced):
    (replaced.folder / "pylock.cu126.toml").unlink()
    (replaced.folder / "pylock.cu126.toml").mkdir()
    with pytest.raises(InstallationError):
        swap_in(replaced, replaced.staging, Reporter())
    with pytest.raises(InstallationError):
        finish_swap(replaced, Reporter())
    (replaced.folder / "pylock.cu126.toml").rmdir()
    finish_swap(replaced, Reporter())
    assert (name_of(replaced.venv), name_of(replaced.previous)) == ("new", "old")
    assert beside(replaced) == lock_text("2.15.0")


def test_what_was_replaced_is_not_lost_where_the_one_before_cannot_be_removed(
    replaced, monkeypatch
):
    rename = Path.rename

    def renamed(path, target):
        if path == replaced.previous:
            raise PermissionError(errno.EACCES, "it is in use")
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", renamed)
        with pytest.raises(
            InstallationError, match="previous cannot be written: it is in use"
        ):
            swap_in(replaced, replaced.staging, Reporter())
        with pytest.raises(
            InstallationError, match="previous cannot be written: it is in use"
        ):
            finish_swap(replaced, Reporter())
        assert (name_of(replaced.venv), name_of(replaced.previous)) == ("new", "older")
    finish_swap(replaced, Reporter())
    assert (name_of(replaced.venv), name_of(replaced.previous)) == ("new", "old")


def test_something_that_is_no_environment_is_kept_as_the_previous_one(
    paths,
):
    paths.venv.mkdir()
    (paths.venv / "thesis.txt").write_text("mine", "utf-8")
    swap_in(paths, paths.staging, Reporter())
    assert (paths.previous / "thesis.txt").read_text("utf-8") == "mine"


@pytest.mark.skipif(
    sys.platform not in {"linux", "darwin"},
    reason="this system cannot exchange two folders",
)
def test_two_folders_change_places(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not exchange(tmp_path / "one", tmp_path / "other"):
        pytest.skip("this file system cannot exchange two folders")
    assert (tmp_path / "one" / "other").exists()
    assert (tmp_path / "other" / "one").exists()


@pytest.mark.skipif(
    sys.platform not in {"linux", "darwin"},
    reason="this system cannot exchange two folders",
)
def test_what_is_missing_is_an_error_and_not_an_inability(tmp_path):
    (tmp_path / "one").mkdir()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "other")
