import os
import shutil
import sys
from types import SimpleNamespace

import pytest
from filelock import FileLock

from gpuinstall.base import files
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.shell import quote_word
from gpuinstall.cli.install import find_existing_interpreter
from gpuinstall.environments import records
from gpuinstall.environments.records import (
    check_finished,
    find_changed_environment,
    find_recorded_environments,
    find_unfinished_change,
    forget_environment,
    is_recorded,
    record_environment,
    record_identity,
    was_created_here,
)
from tests.unit.install.environments import (
    PYTHON,
    SITE,
    make_environment,
    use_state_folder,
)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    use_state_folder(monkeypatch, tmp_path / "state")
    return tmp_path / "state"


def test_existing_environments_are_remembered(tmp_path):
    made = [make_environment(tmp_path / name, name) for name in ("a b", "ü")]
    for venv in (*made, *made):
        record_environment(venv, "one", is_created=True)
    assert find_recorded_environments() == made
    shutil.rmtree(made[0])
    assert find_recorded_environments() == made[1:]
    forget_environment(made[1])
    forget_environment(made[1])
    assert find_recorded_environments() == []


def test_new_clone_of_adopted_environment_is_unknown(tmp_path):
    made = make_environment(tmp_path / ".venv", "ours")
    record_environment(made, "ours", is_created=False)
    assert is_recorded(made)
    clone = tmp_path / "clone"
    shutil.copytree(made, clone, symlinks=True)
    shutil.rmtree(made)
    clone.rename(made)
    assert not is_recorded(made)


def test_copied_or_adopted_environment_is_distinguished(tmp_path):
    made = make_environment(tmp_path / ".venv", "ours")
    assert (is_recorded(made), was_created_here(made)) == (False, False)
    record_environment(made, "ours", is_created=False)
    assert (is_recorded(made), was_created_here(made)) == (True, False)
    record_environment(made, "ours", is_created=True)
    assert (is_recorded(made), was_created_here(made)) == (True, True)
    copied = shutil.copytree(made, tmp_path / "clone" / ".venv")
    assert (is_recorded(copied), was_created_here(copied)) == (False, True)
    for number in range(20):
        record_environment(made, f"proof {number}", is_created=True)
    # This may be the identity of the previous environment, many verifications ago.
    assert was_created_here(made)
    for number in range(100):
        record_environment(made, f"another {number}", is_created=True)
    assert not was_created_here(made)


def test_changed_environment_of_a_parent_is_found(tmp_path, monkeypatch):
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    below = tmp_path / "app" / "nodes"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    for root in (tmp_path / "venv", tmp_path / "app" / "venv"):
        work = root / SITE / ".gpuinstall"
        (work / "last").mkdir(parents=True)
        record_identity(work, "a digest")
    found = find_changed_environment()
    assert found
    assert found.venv == tmp_path / "app" / "venv"
    shutil.rmtree(tmp_path / "app" / "venv")
    assert find_changed_environment() is None


def test_unwritable_state_folder_is_ignored(tmp_path, state):
    state.touch()
    record_environment(
        make_environment(tmp_path / ".venv", "ours"), "ours", is_created=True
    )
    forget_environment(tmp_path / ".venv")
    assert find_recorded_environments() == []


def test_forgetting_an_environment_removes_its_journal_records(tmp_path, state):
    venv = make_environment(tmp_path / ".venv", "ours")
    record_environment(venv, "ours", is_created=True)
    record_identity(EnvironmentPaths(venv).work, "a digest")
    forget_environment(venv)
    assert list((state / "gpuinstall" / "environments").iterdir()) == []


def test_unfinished_change_is_reported_with_the_rollback_command(tmp_path):
    ours, theirs = make_environment(tmp_path / "a", "ours"), tmp_path / "b"
    work = theirs / SITE / ".gpuinstall"
    assert find_unfinished_change(ours) is find_unfinished_change(theirs) is None
    # While an environment is being replaced, its path does not exist.
    shutil.rmtree(ours)
    for folder in (EnvironmentPaths(ours).work, work):
        (folder / "changing").mkdir(parents=True)
    with pytest.raises(InstallationError, match="was interrupted"):
        find_existing_interpreter(None, ours)
    commands = {
        ours: f"gpuinstall env rollback --venv {quote_word(ours)} ",
        theirs: f"gpuinstall env rollback --into --python {quote_word(theirs / PYTHON)} ",
    }
    for venv, command in commands.items():
        error = find_unfinished_change(venv)
        assert error
        assert (error.hint or "").startswith(command)


@pytest.mark.skipif(os.name == "nt", reason="requires flock")
def test_running_change_is_not_called_interrupted(tmp_path):
    venv = tmp_path / ".venv"
    place = EnvironmentPaths(venv)
    place.current_change.mkdir(parents=True)
    with (
        FileLock(place.lock_file),
        pytest.raises(InstallationError, match="another command is changing"),
    ):
        check_finished(venv)
    with pytest.raises(InstallationError, match="was interrupted"):
        check_finished(venv)


def test_lock_file_is_tested_on_windows(tmp_path, monkeypatch):
    place = EnvironmentPaths(tmp_path / ".venv")
    held, calls = [False], []

    def locking(_descriptor, mode, count):
        calls.append((mode, count))
        if held[0]:
            raise PermissionError(13, "Permission denied")

    msvcrt = SimpleNamespace(locking=locking, LK_NBLCK="lock")
    monkeypatch.setitem(sys.modules, "msvcrt", msvcrt)
    monkeypatch.setattr(files, "sys", SimpleNamespace(platform="win32"))
    assert records._probe_lock(place) == (False, True)
    assert calls == []
    place.work.mkdir()
    place.lock_file.touch()
    assert records._probe_lock(place) == (False, True)
    assert calls == [("lock", 1)]
    held[0] = True
    assert records._probe_lock(place) == (True, True)
