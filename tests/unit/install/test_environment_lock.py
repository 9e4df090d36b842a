import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.environments import running
from gpuinstall.environments.records import (
    check_finished,
    find_unfinished_change,
)
from gpuinstall.environments.running import Owner
from gpuinstall.install.environment_lock import (
    environment_lock,
    folder_lock,
    undo_change,
)
from gpuinstall.install.journal import Journal, read_journal, write_journal
from tests.lab.listener import Listener
from tests.unit.install.environments import write_files


@pytest.fixture
def place(tmp_path):
    return EnvironmentPaths.at(tmp_path / "a" / ".venv")


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_command_removes_its_lock_and_staging_folder(place, tmp_path, is_interrupted):
    with suppress(KeyboardInterrupt), environment_lock(place, Reporter(), wait=0):
        assert (place.work / "lock").exists()
        (place.work / "staging-0123abcd").mkdir()
        if is_interrupted:
            raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("run", "left"),
    [
        (environment_lock, set()),
        (environment_lock, {"last"}),
        (folder_lock, set()),
        (folder_lock, {"last"}),
        (folder_lock, {"changing"}),
    ],
)
def test_git_ignores_the_working_folder(place, run, left):
    with run(place, Reporter(), wait=0):
        for name in left:
            (place.work / name).mkdir()
        assert (place.work / ".gitignore").read_text("utf-8") == "*\n"
    stays = left and {*left, ".gitignore"}
    assert {entry.name for entry in place.work.glob("*")} == stays


def test_staging_leftovers_are_removed_and_user_files_kept(place):
    others = {
        ".my.notes",
        ".mine.0123abcd",
        ".discarded-0123",
        "staging-notes",
        "last-notes",
    }
    left = {"staging-0123abcd", ".discarded-0123abcd", ".new-0123abcd"}
    files = [f"{name}/file" for name in left | others]
    write_files(place.work, ".boot.0123abcd", *files)
    with environment_lock(place, Reporter(), wait=0):
        pass
    names = {entry.name for entry in place.work.iterdir()}
    assert names == {*others, ".gitignore"}


@pytest.mark.parametrize("name", ["lock", ".gitignore"])
def test_user_folder_with_reserved_name_is_kept(place, name):
    write_files(place.work, f"{name}/mine")
    with suppress(InstallationError), environment_lock(place, Reporter(), wait=0):
        pass
    assert (place.work / name / "mine").exists()


def test_second_command_reports_its_wait_and_times_out(place):
    listener = Listener()
    with (
        environment_lock(place, Reporter(), wait=0),
        pytest.raises(InstallationError) as caught,
        environment_lock(place, listener, wait=0.2),
    ):
        pass
    assert caught.value.code == "busy"
    [wait] = listener.waits
    assert wait.startswith("waiting up to 0 s for another command, which is using ")


@pytest.mark.parametrize(
    "folder",
    [
        "FILE",
        pytest.param(
            "/proc/env",
            marks=pytest.mark.skipif(
                sys.platform != "linux", reason="/proc takes no folder on Linux"
            ),
        ),
    ],
)
def test_unwritable_folder_fails_without_a_wait(tmp_path, folder):
    (tmp_path / "file").touch()
    listener = Listener()
    place = EnvironmentPaths(Path(folder.replace("FILE", f"{tmp_path}/file/.venv")))
    with (
        pytest.raises(InstallationError, match="cannot be written") as refused,
        environment_lock(place, listener, wait=60),
    ):
        pass
    assert str(place.folder) in refused.value.message
    assert listener.waits == []


def test_symlinked_lock_file_leaves_target_unchanged(place, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    lock = place.work / "lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(mine)
    with (
        pytest.raises(InstallationError, match="cannot be written"),
        folder_lock(place, Reporter(), wait=0),
    ):
        pass
    assert mine.read_text() == "mine"
    lock.unlink()
    lock.hardlink_to(mine)
    with folder_lock(place, Reporter(), wait=0):
        pass
    assert mine.read_text() == "mine"


def test_working_folder_removed_by_another_command_is_recreated(place, monkeypatch):
    real = Path.mkdir
    failures = [FileExistsError(17, "File exists")]

    def mkdir(path, *arguments, **options):
        # Another command used the folder during the first call.
        if path == place.work and failures:
            raise failures.pop()
        real(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with folder_lock(place, Reporter(), wait=5):
        assert (place.work / "lock").exists()


@pytest.fixture(params=["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def without_locks(request, monkeypatch):
    number = getattr(errno, request.param)

    def flock(_file, _operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)


def write_owner(place, **facts):
    """Write the journal of a change by another process."""
    owner = replace(Owner.here(), pid=os.getppid(), start=PARENT, **facts)
    write_journal(Journal(owner), place, place.current_change)


PARENT = running._read_start(os.getppid())


def recover(place):
    with environment_lock(place, Reporter(), wait=0):
        pass


@pytest.fixture
def place_with_state(place, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return place


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
@pytest.mark.usefixtures("without_locks")
@pytest.mark.parametrize(
    ("facts", "is_kept"), [({}, True), ({"start": "1"}, False), ({"boot": "b"}, False)]
)
def test_process_decides_without_flock(place_with_state, facts, is_kept):
    place = place_with_state
    write_files(place.work, "staging-0123abcd/file")
    write_owner(place)
    [journal] = [read_journal(place.current_change)]
    assert journal
    owner = replace(journal.owner, **facts)
    write_journal(Journal(owner), place, place.current_change)
    listener = Listener()
    if is_kept:
        with (
            pytest.raises(InstallationError, match="has been changing"),
            environment_lock(place, listener, wait=0),
        ):
            pass
    else:
        recover(place)
    assert place.current_change.exists() == is_kept
    # Another process may use it.
    assert (place.work / "staging-0123abcd" / "file").exists()


@pytest.mark.usefixtures("without_locks")
def test_file_system_without_locks_is_reported(place):
    listener = Listener()
    with environment_lock(place, listener, wait=0):
        [warning] = listener.warnings
    assert "is on a file system without locks" in warning


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs"])
def test_killed_command_is_recovered_after_a_restart(
    place_with_state, monkeypatch, kind
):
    monkeypatch.setattr(running, "read_file_system_type", lambda _folder: kind)
    write_owner(place_with_state, boot="another")
    recover(place_with_state)
    assert not place_with_state.current_change.exists()


def test_killed_command_of_another_container_is_recovered(place_with_state):
    write_owner(place_with_state, host="elsewhere")
    recover(place_with_state)
    assert not place_with_state.current_change.exists()


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "9p", ""])
def test_change_on_a_shared_file_system_is_kept(place_with_state, monkeypatch, kind):
    monkeypatch.setattr(running, "read_file_system_type", lambda _folder: kind)
    place = place_with_state
    write_owner(place, boot="another", host="node7")
    write_files(place.work, "staging-0123abcd/file")
    with pytest.raises(UsageError, match="node7 began to change") as refused:
        recover(place)
    assert refused.value.code == "change-elsewhere"
    assert place.current_change.exists()
    # The running command holds this file on its own machine.
    assert place.lock_file.exists()
    [fix] = refused.value.fixes
    assert str(fix).startswith("gpuinstall env rollback")
    assert "by node7 at" in str(find_unfinished_change(place.venv))
    undo_change(place, Reporter())
    assert not place.current_change.exists()
    assert (place.work / "staging-0123abcd" / "file").exists()


def test_old_staging_folder_is_removed_without_shared_locks(place, monkeypatch):
    monkeypatch.setattr(running, "read_file_system_type", lambda _folder: "nfs4")
    old, new = (place.work / f"staging-0123abc{number}" for number in range(2))
    write_files(place.work, f"{old.name}/file", f"{new.name}/file")
    os.utime(old, (0, 0))
    recover(place)
    assert not old.exists()
    assert new.exists()


def test_missing_journal_is_reported(place):
    write_files(place.venv, "notes.txt")
    place.pointer.write_text("/elsewhere/changing\n")
    assert EnvironmentPaths.find(place.venv) == EnvironmentPaths(
        place.venv, project=place.folder
    )
    with pytest.raises(InstallationError, match="journal is in /elsewhere/changing"):
        recover(place)
    with pytest.raises(InstallationError, match="journal is in /elsewhere/changing"):
        check_finished(place.venv)
    with environment_lock(place, Reporter(), wait=0, is_replaced=True):
        pass
    assert place.pointer.exists()
