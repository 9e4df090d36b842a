import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.install.swap import environment_lock, is_idle
from tests.lab.listener import Listener


def test_a_run_leaves_nothing_behind(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / "a" / ".venv")
    with environment_lock(paths, Reporter(), wait=0):
        assert paths.guard.exists()
        assert not is_idle(paths)
    assert list(tmp_path.iterdir()) == []
    assert is_idle(paths)


def test_a_previous_environment_stays_and_git_does_not_see_it(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    with environment_lock(paths, Reporter(), wait=0):
        paths.previous.mkdir()
    assert {entry.name for entry in paths.work.iterdir()} == {"previous", ".gitignore"}
    assert (paths.work / ".gitignore").read_text("utf-8") == "*\n"
    assert is_idle(paths)


@pytest.mark.parametrize(
    "left", ["owner", "staging", "previous=1", "pylock.private.toml"]
)
def test_what_a_run_that_died_has_left_is_seen(tmp_path, left):
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    paths.work.mkdir()
    (paths.work / left).touch()
    assert not is_idle(paths)


@pytest.mark.parametrize("name", ["lock", ".gitignore", "owner"])
def test_a_folder_in_the_place_of_a_file_of_ours_is_not_removed(tmp_path, name):
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    (paths.work / name).mkdir(parents=True)
    (paths.work / name / "mine").touch()
    with suppress(InstallationError), environment_lock(paths, Reporter(), wait=0):
        pass
    assert (paths.work / name / "mine").exists()


def test_what_a_run_has_begun_is_cleared_away_however_it_ends(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / ".venv")

    def interrupted():
        with environment_lock(paths, Reporter(), wait=0):
            paths.staging.mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_the_second_run_says_for_whom_it_waits_and_gives_up(tmp_path):
    paths, listener = EnvironmentPaths.at(tmp_path / ".venv"), Listener()
    with (
        environment_lock(paths, Reporter(), wait=0),
        pytest.raises(InstallationError) as caught,
        environment_lock(paths, listener, wait=0.2),
    ):
        pass
    assert caught.value.code == "busy"
    assert "process" in caught.value.message
    assert len(listener.waits) == 1
    assert "process" in listener.waits[0]


def test_the_second_run_goes_on_when_the_first_has_ended(tmp_path):
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    entered, leave, order = threading.Event(), threading.Event(), list[str]()

    def first():
        with environment_lock(paths, Reporter(), wait=0):
            entered.set()
            leave.wait(10)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    entered.wait(10)
    threading.Timer(0.2, leave.set).start()
    with environment_lock(paths, Reporter(), wait=10):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(InstallationError) as caught,
        environment_lock(
            EnvironmentPaths.at(tmp_path / "file" / ".venv"), Reporter(), wait=0
        ),
    ):
        pass
    assert caught.value.code == "not-writable"
    assert "file" in caught.value.message


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no folder on Linux")
def test_a_place_that_takes_no_folder_is_a_fault_and_no_reason_to_wait():
    listener = Listener()
    with (
        pytest.raises(InstallationError, match="cannot be written"),
        environment_lock(EnvironmentPaths.at(Path("/proc/env")), listener, wait=60),
    ):
        pass
    assert listener.waits == []
