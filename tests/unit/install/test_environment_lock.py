import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.install.hold import hold, only_run
from tests.lab.listener import Listener


def at(venv):
    return EnvironmentPaths.at(venv)


def test_a_run_leaves_nothing_behind(tmp_path):
    place = at(tmp_path / "a" / ".venv")
    with hold(place, Reporter(), wait=0):
        assert (place.work / "lock").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_journal_stays_and_git_does_not_see_it(tmp_path):
    place = at(tmp_path / ".venv")
    with hold(place, Reporter(), wait=0):
        place.last_change.mkdir()
    assert {entry.name for entry in place.work.iterdir()} == {"last", ".gitignore"}
    assert (place.work / ".gitignore").read_text("utf-8") == "*\n"


@pytest.mark.parametrize("left", [(), ("last",), ("changing",)])
def test_git_does_not_see_a_run_that_makes_locks_nor_what_stays_after_it(
    tmp_path, left
):
    place = at(tmp_path / ".venv")
    for name in left:
        (place.work / name).mkdir(parents=True)
    with only_run(place, Reporter(), wait=0):
        assert (place.work / ".gitignore").read_text("utf-8") == "*\n"
    assert place.work.exists() == bool(left)
    assert (place.work / ".gitignore").exists() == bool(left)


def test_what_runs_that_died_have_left_goes_and_other_files_stay(tmp_path):
    place = at(tmp_path / ".venv")
    others = {".my.notes", ".mine.0123abcd", "staging-notes", "last-notes"}
    for name in ("staging-0123abcd", ".new", *others):
        (place.work / name).mkdir(parents=True)
        (place.work / name / "file").touch()
    (place.work / ".owner.0123abcd").touch()
    with hold(place, Reporter(), wait=0):
        pass
    assert {entry.name for entry in place.work.iterdir()} == others


@pytest.mark.parametrize("name", ["lock", ".gitignore", "owner"])
def test_a_folder_in_the_place_of_a_file_of_ours_is_not_removed(tmp_path, name):
    place = at(tmp_path / ".venv")
    (place.work / name).mkdir(parents=True)
    (place.work / name / "mine").touch()
    with suppress(InstallationError), hold(place, Reporter(), wait=0):
        pass
    assert (place.work / name / "mine").exists()


def test_what_a_run_has_begun_is_cleared_away_however_it_ends(tmp_path):
    place = at(tmp_path / ".venv")

    def interrupted():
        with hold(place, Reporter(), wait=0):
            (place.work / "staging-0123abcd").mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_the_second_run_says_for_whom_it_waits_and_gives_up(tmp_path):
    place, listener = at(tmp_path / ".venv"), Listener()
    with (
        hold(place, Reporter(), wait=0),
        pytest.raises(InstallationError) as caught,
        hold(place, listener, wait=0.2),
    ):
        pass
    assert caught.value.code == "busy"
    assert "process" in caught.value.message
    assert len(listener.waits) == 1
    assert "process" in listener.waits[0]


def test_the_second_run_goes_on_when_the_first_has_ended(tmp_path):
    place = at(tmp_path / ".venv")
    entered, leave, order = threading.Event(), threading.Event(), list[str]()

    def first():
        with hold(place, Reporter(), wait=0):
            entered.set()
            leave.wait(10)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    threading.Timer(0.2, leave.set).start()
    with hold(place, Reporter(), wait=10):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InstallationError) as caught,
        hold(at(tmp_path / "file" / ".venv"), Reporter(), wait=0),
    ):
        pass
    assert caught.value.code == "not-writable"
    assert "file" in caught.value.message


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no folder on Linux")
def test_a_place_that_takes_no_folder_is_a_fault_and_no_reason_to_wait():
    listener = Listener()
    with (
        pytest.raises(InstallationError, match="cannot be written"),
        hold(at(Path("/proc/env")), listener, wait=60),
    ):
        pass
    assert listener.waits == []


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path):
    place = at(tmp_path / ".venv")
    (tmp_path / "mine").write_text("mine")
    place.work.mkdir()
    (place.work / "lock").symlink_to(tmp_path / "mine")
    with (
        pytest.raises(InstallationError, match="cannot be written"),
        only_run(place, Reporter(), wait=0),
    ):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_lock_that_is_another_name_of_a_file_does_not_empty_it(tmp_path):
    place = at(tmp_path / ".venv")
    mine = tmp_path / "mine"
    mine.write_text("mine")
    place.work.mkdir()
    (place.work / "lock").hardlink_to(mine)
    with only_run(place, Reporter(), wait=0):
        assert not (place.work / "lock").samefile(mine)
    assert mine.read_text() == "mine"
