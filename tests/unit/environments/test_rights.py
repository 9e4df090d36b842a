"""Permission checks report the owner before a download."""

import os
from functools import partial

import pytest

from gpuinstall.base import process
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.cli import active
from gpuinstall.environments.records import find_unfinished_change
from gpuinstall.environments.rights import check_rights
from gpuinstall.install.environment_lock import undo_change
from gpuinstall.install.removal import remove
from gpuinstall.sources.configuration import PIP_NAME, read_policy
from tests.lab.listener import Listener
from tests.lab.mounts import mounted
from tests.lab.nobody import NOBODY, open_folder, run_as_nobody
from tests.unit.install.environments import make_environment

pytestmark = pytest.mark.root


@pytest.fixture
def folder():
    with open_folder() as folder:
        yield folder


def make_for_nobody(venv):
    make_environment(venv, "shared")
    (venv / "bin" / "python").chmod(0o755)
    for path in (venv.parent, venv, *venv.rglob("*")):
        os.lchown(path, NOBODY, NOBODY)
    return EnvironmentPaths(venv)


def test_writable_environment_passes_the_check(folder):
    for paths in (
        make_for_nobody(folder / ".venv"),
        EnvironmentPaths(folder / "new" / ".venv"),
    ):
        assert run_as_nobody(partial(check_rights, paths)) == "None"


def test_another_users_environment_is_not_removed_or_undone(folder, monkeypatch):
    monkeypatch.setattr("gpuinstall.base.owners.in_container", lambda: False)
    paths = make_for_nobody(folder / ".venv")
    message = f"{paths.venv} cannot be changed: it belongs to nobody"
    with pytest.raises(InstallationError, match=message):
        remove(paths, Reporter())
    with pytest.raises(InstallationError, match=message):
        undo_change(paths, Reporter())
    assert not paths.work.exists()


def test_another_users_folder_is_untrusted(folder, monkeypatch):
    assert read_policy(folder).trusts_folder
    lock = folder / "pylock.cpu.toml"
    lock.touch()
    os.chown(lock, NOBODY, NOBODY)
    assert not read_policy(folder).trusts_folder
    os.chown(folder, NOBODY, NOBODY)
    monkeypatch.setattr("gpuinstall.base.owners.in_container", lambda: False)
    assert not read_policy(folder).trusts_folder
    monkeypatch.setenv("GPUINSTALL_TRUST_FOLDER", "1")
    assert read_policy(folder).trusts_folder
    monkeypatch.delenv("GPUINSTALL_TRUST_FOLDER")
    monkeypatch.setattr("gpuinstall.base.owners.in_container", lambda: True)
    assert read_policy(folder).trusts_folder


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "environment.yml",
        "setup.cfg",
        "requirements-dev.txt",
        ".python-version",
        f".venv/{PIP_NAME}",
    ],
)
def test_another_users_file_is_untrusted(folder, name):
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert read_policy(folder).trusts_folder
    os.chown(file, NOBODY, NOBODY)
    assert not read_policy(folder).trusts_folder


def test_verify_prints_the_owner_of_a_named_interpreter(folder, monkeypatch):
    monkeypatch.setattr("gpuinstall.base.owners.in_container", lambda: False)
    paths = make_for_nobody(folder / ".venv")
    terminal = Notices()
    active.report_owner(paths.venv, terminal)
    assert terminal.notices == [("Owner", f"{paths.venv} belongs to nobody")]


class Notices(Reporter):
    """Record notices."""

    def __init__(self):
        self.notices = []

    def notice(self, label, text):
        self.notices.append((label, text))


def test_owner_of_an_unwritable_folder_is_reported(folder):
    paths = make_for_nobody(folder / ".venv")
    packages = paths.venv / "lib" / "python3.12" / "site-packages"
    for closed in (packages, paths.venv, folder):
        os.chown(closed, 0, 0)
        closed.chmod(0o755)
        assert run_as_nobody(partial(check_rights, paths)) == (
            f"{closed} cannot be written: it belongs to root and has mode 755"
        )
    new = EnvironmentPaths(folder / "project" / ".venv")
    assert run_as_nobody(partial(check_rights, new)).startswith(f"{folder} cannot be")


def test_inaccessible_interpreter_is_reported_with_its_folder(folder):
    paths = make_for_nobody(folder / ".venv")
    hidden = folder / "root"
    (hidden / "python").mkdir(parents=True)
    (hidden / "python" / "python3").touch(0o755)
    hidden.chmod(0o700)
    (paths.venv / "bin" / "python").unlink()
    (paths.venv / "bin" / "python").symlink_to(hidden / "python" / "python3")
    assert run_as_nobody(partial(check_rights, paths)) == (
        f"the Python of {paths.venv} cannot be started: {hidden}: it belongs to root and has mode 700"
    )


def test_read_only_file_system_is_reported(folder):
    with mounted(folder, "-t", "tmpfs", "none"):
        paths = EnvironmentPaths(make_environment(folder / ".venv", "made"))
        with (
            mounted(folder, "-o", "remount,ro"),
            pytest.raises(InstallationError, match="the file system is read-only"),
        ):
            check_rights(paths)


def test_another_users_environment_is_not_changed(folder, monkeypatch):
    paths = make_for_nobody(folder / ".venv")
    os.chown(folder, 0, 0)

    with pytest.raises(InstallationError, match="it belongs to nobody") as refused:
        check_rights(paths)
    hint = refused.value.hint or ""
    assert hint.startswith("export GPUINSTALL_TRUST_FOLDER=1   # trusts nobody\n")
    monkeypatch.setenv("GPUINSTALL_TRUST_FOLDER", "1")
    check_rights(paths)


def test_another_users_change_is_reported_with_its_user(folder):
    paths = make_for_nobody(folder / ".venv")
    paths.current_change.mkdir(parents=True)
    command = f"gpuinstall env rollback --venv {paths.venv}"
    error = find_unfinished_change(paths.venv)
    assert error
    assert error.message == f"a change to {paths.venv} was interrupted"
    assert error.hint == f"{command}   # completes it or rolls it back"
    os.chown(paths.current_change, 1234, 1234)
    error = find_unfinished_change(paths.venv)
    assert error
    number = paths.current_change.stat().st_uid
    assert error.message.replace("by uid ", "by ").endswith(
        f" by {number} was interrupted"
    )
    assert (error.hint or "").startswith(f"GPUINSTALL_TRUST_FOLDER=1 {command}")


def test_another_users_environment_is_started_only_if_named(folder, monkeypatch):
    paths = make_for_nobody(folder / ".venv")
    os.chown(folder, 0, 0)
    monkeypatch.setattr(active, "is_on_command_line", lambda _: False)
    with pytest.raises(UsageError, match="belongs to nobody"):
        active.check_environment_trust(paths.venv, Reporter())

    monkeypatch.setattr(active, "is_on_command_line", lambda _: True)
    listener = Listener()
    active.check_environment_trust(paths.venv, listener)
    assert listener.notices[0] == f"Owner {paths.venv} belongs to nobody"


def test_immutable_folder_is_not_explained_by_its_mode(folder):
    paths = make_for_nobody(folder / ".venv")
    if not process.run(["chattr", "+i", paths.venv]).ok:
        pytest.skip("this file system has no attributes")
    try:
        refusal = run_as_nobody(partial(check_rights, paths))
    finally:
        process.run(["chattr", "-i", paths.venv])
    assert "an attribute (see lsattr) or a security module protects it" in refusal
