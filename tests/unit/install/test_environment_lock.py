import errno
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.environments import running
from gpuinstall.environments.running import Owner
from gpuinstall.install import environment_lock as locks
from gpuinstall.install.environment_lock import environment_lock, folder_lock
from tests.lab.listener import Listener
from tests.unit.install.environments import write_files


@pytest.fixture
def place(tmp_path):
    return EnvironmentPaths.at(tmp_path / "a" / ".venv")


def test_environment_lock_removes_its_file_and_folder(place, tmp_path):
    with environment_lock(place, Reporter(), wait=0):
        assert (place.work / "lock").exists()
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
    left = {"staging-0123abcd", ".discarded-0123abcd", ".new"}
    files = [f"{name}/file" for name in left | others]
    write_files(place.work, ".owner.0123abcd", *files)
    with environment_lock(place, Reporter(), wait=0):
        pass
    names = {entry.name for entry in place.work.iterdir()}
    assert names == {*others, ".gitignore"}


@pytest.mark.parametrize("name", ["lock", ".gitignore", "owner"])
def test_user_folder_with_reserved_name_is_kept(place, name):
    write_files(place.work, f"{name}/mine")
    with suppress(InstallationError), environment_lock(place, Reporter(), wait=0):
        pass
    assert (place.work / name / "mine").exists()


def test_interrupted_command_removes_its_staging_folder(place, tmp_path):
    with suppress(KeyboardInterrupt), environment_lock(place, Reporter(), wait=0):
        (place.work / "staging-0123abcd").mkdir()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_second_command_reports_its_wait_and_times_out(place):
    listener = Listener()
    with (
        environment_lock(place, Reporter(), wait=0),
        pytest.raises(InstallationError) as caught,
        environment_lock(place, listener, wait=0.2),
    ):
        pass
    assert caught.value.code == "busy"
    assert "process" in caught.value.message
    [wait] = listener.waits
    assert "process" in wait


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


@pytest.mark.skipif(sys.platform != "linux", reason="requires /proc")
@pytest.mark.usefixtures("without_locks")
def test_owner_file_is_the_lock_without_flock(place, tmp_path):
    listener = Listener()
    with environment_lock(place, listener, wait=0):
        [warning] = listener.warnings
        assert "file system without locks" in warning
        with (
            pytest.raises(InstallationError, match=f"by process {os.getpid()} on"),
            environment_lock(place, Reporter(), wait=0.2),
        ):
            pass
        here = json.loads(place.owner_file.read_text())
    assert list(tmp_path.iterdir()) == []
    # A process that has ended, and processes of another container
    for facts, age, is_stale in (
        ({"start": "1"}, 0, True),
        ({"namespace": "another"}, 0, False),
        ({"namespace": "another"}, 601, True),
        ({}, 601, False),
    ):
        write_owner(place, {**here, **facts}, age)
        taken = []
        with suppress(InstallationError), environment_lock(place, Reporter(), wait=0):
            taken.append(facts)
        assert bool(taken) == is_stale


def write_owner(place, owner, age=0.0):
    write_files(place.work, "owner", text=json.dumps(owner))
    touched = time.time() - age
    os.utime(place.owner_file, (touched, touched))


@pytest.fixture
def private_locks(monkeypatch):
    """Simulate hosts that do not see each other's locks."""
    monkeypatch.setattr(locks, "try_lock", lambda _descriptor: True)
    monkeypatch.setattr(running, "read_file_system_type", lambda _folder: "nfs4")


PARENT = {"pid": os.getppid(), "start": running._read_start(os.getppid())}
ELSEWHERE = {"host": "node7", "boot": "another"}


@pytest.mark.usefixtures("private_locks")
@pytest.mark.parametrize("facts", [PARENT, ELSEWHERE])
def test_command_with_an_invisible_lock_is_not_disturbed(place, facts):
    with environment_lock(place, Reporter(), wait=0):
        write_files(place.staging, "file")
        owner = replace(Owner.here(), **facts)
        write_files(place.work, "owner", text=owner.to_json())
        with (
            pytest.raises(InstallationError, match="still in use by process"),
            environment_lock(place, Reporter(), wait=0),
        ):
            pass
        assert (place.staging / "file").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs"])
def test_killed_command_is_recovered_after_a_restart(place, monkeypatch, kind):
    monkeypatch.setattr(running, "read_file_system_type", lambda _folder: kind)
    owner = replace(Owner.here(), boot="another")
    write_files(place.work, "owner", text=owner.to_json())
    with environment_lock(place, Reporter(), wait=0):
        pass


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "9p", ""])
def test_change_on_a_shared_file_system_is_kept(place, monkeypatch, kind):
    monkeypatch.setattr(running, "read_file_system_type", lambda _folder: kind)
    owner = replace(Owner.here(), boot="another")
    write_files(place.current_change, "journal.json")
    write_files(place.work, "owner", text=owner.to_json())
    with (
        pytest.raises(UsageError, match="being changed by"),
        environment_lock(place, Reporter(), wait=0),
    ):
        pass
    assert place.current_change.exists()


def test_killed_command_of_another_container_is_recovered(place):
    owner = replace(Owner.here(), host="elsewhere", namespace="another")
    write_files(place.work, "owner", text=owner.to_json())
    with environment_lock(place, Reporter(), wait=0):
        pass


@pytest.mark.usefixtures("private_locks")
def test_host_whose_clock_is_ahead_keeps_a_change(place, monkeypatch):
    owner = replace(Owner.here(), host="node7", boot="another")
    write_files(place.current_change, "journal.json")
    write_files(place.work, "owner", text=owner.to_json())
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 900)
    monkeypatch.setattr(time, "time_ns", lambda: int((now() + 900) * 10**9))
    with (
        pytest.raises(UsageError, match="being changed by node7 at") as refused,
        environment_lock(place, Reporter(), wait=0),
    ):
        pass
    assert refused.value.code == "change-elsewhere"
    assert place.current_change.exists()
