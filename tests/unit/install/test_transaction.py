"""Changes in place modify only their own files, even if interrupted."""

import json
import os
import re
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpuinstall.base import process
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quote_word
from gpuinstall.base.values import replace
from gpuinstall.environments.guard import CONSTRAINTS
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.environments.records import record_environment, was_created_here
from gpuinstall.environments.running import Owner
from gpuinstall.install import journal as journals
from gpuinstall.install import transaction
from gpuinstall.install.environment_lock import environment_lock, undo_change
from gpuinstall.install.file_change import find_staged_files, plan_change
from gpuinstall.install.journal import read_journal
from gpuinstall.install.transaction import apply_change, replace_environment
from gpuinstall.lock.file.lock import parse
from tests.lab.cases import mostly_heavy
from tests.lab.listener import Listener
from tests.lab.mounts import mounted
from tests.lab.wheels import record
from tests.unit.install import environments
from tests.unit.install.environments import write_files

SITE = "lib/python3.12/site-packages"
ALPHA_1 = {"alpha/__init__.py": "one", "alpha/old.py": "old", "../../../bin/alpha": "1"}
ALPHA_2 = {"alpha/__init__.py": "two", "alpha/new/x.py": "x", "../../../share/a": "2"}
# A file becomes a folder, and a folder a file.
ALPHA_1 |= {"alpha/data": "d", "alpha/more/x.py": "m", "alpha/more/y/z.json": "z"}
ALPHA_2 |= {"alpha/data/x.json": "x", "alpha/data/y/z.py": "z", "alpha/more": "m"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An environment with two packages, a user file, and compiled modules."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = EnvironmentPaths(tmp_path / ".venv")
    put(place.root, "alpha-1", ALPHA_1)
    put(place.root, "beta-1", {"beta.py": "b"})
    write(place.root / SITE / "alpha" / "__pycache__" / "old.cpython-312.pyc", "old")
    write(place.root / "notes.txt", "mine")
    return place


@pytest.fixture
def site(place):
    return place.root / SITE


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    os.utime(path, ns=(10**18, 10**18))


def put(root, package, files):
    """Write a package as an installer does."""
    for name, text in files.items():
        write(root / SITE / name, text)
    name = f"{package}.dist-info/RECORD"
    data = {file: text.encode() for file, text in files.items()}
    write(root / SITE / name, record(data, name).decode())


def tree(place):
    """Return the files of an environment except compiled modules."""
    found = {}
    for path in sorted(place.root.rglob("*")):
        if not path.is_dir() and path.suffix != ".pyc" and path != place.pointer:
            found[path.relative_to(place.root).as_posix()] = path.read_text()
    return found


def planned(place, comes=("alpha-2", ALPHA_2), goes=("alpha",)):
    staging = place.work / "staging-0123abcd"
    shutil.rmtree(staging, ignore_errors=True)
    arriving: tuple[InstalledPackage, ...] = ()
    if comes:
        put(staging, *comes)
        arriving = read_packages([staging / SITE])
    return plan_change(
        place,
        added=find_staged_files(arriving, staging, place),
        after={package.name: package.version for package in arriving},
        old_packages=[
            one
            for one in read_packages(place.find_packages_folders())
            if one.name in goes
        ],
        own=(),
        locks=lock_change(place),
    )


def lock_change(place):
    """Return the text of the project's lock file before and after a change."""
    name = environments.MARKER.lock
    old, new = (
        file.read_text() if file.exists() else ""
        for file in (place.folder / name, place.root / name)
    )
    return {name: (old, new)}


def change(place, *arguments):
    """Apply and commit a change, and return the reports."""
    listener = Listener()
    with apply_change(planned(place, *arguments), listener):
        pass
    return listener


def begun(place, meanwhile=lambda: None):
    """Apply a change, and simulate a kill before the commit."""
    change = planned(place)
    meanwhile()
    transaction._write_journal(change)
    transaction._apply(change)


def begun_by(place, **facts):
    """Assign the current change to another host or boot."""
    journal = read_journal(place.current_change)
    assert journal
    changed = replace(journal, owner=replace(Owner.here(), **facts))
    journals.write_journal(changed, place, place.current_change)


def restart(monkeypatch):
    """Simulate a restart of the host after all files were written."""
    after = time.time_ns() + 10**9
    monkeypatch.setattr(transaction, "read_restart_time", lambda _boot: after)


def back(place):
    """Roll back the last change, and return the reports."""
    listener = Listener()
    undo_change(place, listener)
    return listener


def heal_now(place):
    """Lock the environment to recover a change, and return the reports."""
    listener = Listener()
    with environment_lock(place, listener):
        pass
    return listener


def refusal(action, *arguments):
    with pytest.raises(UsageError) as refused:
        action(*arguments)
    return refused.value


def contents(place):
    return {
        name: text for name, text in tree(place).items() if ".dist-info" not in name
    }


def test_change_modifies_only_files_of_changed_packages(place):
    notes = (place.root / "notes.txt").stat().st_ino
    assert change(place).notices == []
    assert contents(place) == {
        "notes.txt": "mine",
        "share/a": "2",
        f"{SITE}/alpha/__init__.py": "two",
        f"{SITE}/alpha/data/x.json": "x",
        f"{SITE}/alpha/data/y/z.py": "z",
        f"{SITE}/alpha/more": "m",
        f"{SITE}/alpha/new/x.py": "x",
        f"{SITE}/beta.py": "b",
    }
    assert (place.root / "notes.txt").stat().st_ino == notes
    for emptied in (f"{SITE}/alpha/__pycache__", "bin"):
        assert not (place.root / emptied).exists()
    assert back(place).notices == []


@pytest.mark.parametrize("step", ["publish_locks", None])
def test_failed_change_is_rolled_back(place, monkeypatch, step):
    before = tree(place)
    failure = Mock(side_effect=InstallationError("unwritable", "it cannot be written"))
    meanwhile = Mock() if step else failure
    with monkeypatch.context() as patched:
        if step:
            patched.setattr(transaction, step, failure)
        with pytest.raises(InstallationError), apply_change(planned(place), Reporter()):
            meanwhile()
    assert tree(place) == before
    assert not place.current_change.exists()
    assert not (place.root / "share").exists()


@pytest.mark.parametrize("has_links", [True, False])
def test_last_change_can_be_undone_and_redone(place, monkeypatch, has_links):
    if not has_links:
        # In this case, files are copied.
        refused = Mock(side_effect=PermissionError(1, "Operation not permitted"))
        monkeypatch.setattr(os, "link", refused)
    first = tree(place)
    change(place)
    second = tree(place)
    for number, expected in enumerate((first, second, first)):
        back(place)
        (place.root / f"new-{number}").write_text("mine")
        now = tree(place)
        assert {name: now[name] for name in now if "new-" not in name} == expected
    assert all((place.root / f"new-{number}").exists() for number in range(3))


def test_package_change_replaces_file_with_folder(place, site):
    write(site / "alpha/more/__pycache__/x.cpython-312.pyc", "compiled")
    assert change(place).notices == []
    assert (site / "alpha/more").read_text() == "m"
    write(site / "alpha/data/y/__pycache__/z.cpython-312.pyc", "compiled")
    assert change(place, ("alpha-1", ALPHA_1)).notices == []
    assert (site / "alpha/data").read_text() == "d"


@pytest.mark.parametrize("name", ["m.pyc", "__pycache__/mine.cpython-312.pyc"])
def test_folder_with_compiled_files_blocks_a_package_file(place, site, name):
    (site / "alpha/__init__.py").unlink()
    write(site / "alpha/__init__.py" / name, "mine")
    error = refusal(planned, place)
    assert error.code == "path-taken"
    folder = site / "alpha/__init__.py"
    assert f"{folder} is a folder" in error.message
    assert error.hint.startswith(f"mv {quote_word(folder)} ")


def test_all_blocking_paths_are_reported_at_once(place, site):
    write(site / "alpha/more/mine.txt", "mine")
    write(site / "alpha/new", "mine")
    write(place.root / "share", "mine")
    error = refusal(planned, place)
    blocking = [place.root / "share", site / "alpha/more", site / "alpha/new"]
    commands = [
        f"mv {quote_word(path)} {quote_word(f'{path}.old')}" for path in blocking
    ]
    lines = error.hint.splitlines()
    assert sorted(line.partition("   # ")[0] for line in lines) == sorted(commands)
    for line in lines:
        process.run(["sh", "-c", line])
    change(place)


@pytest.mark.parametrize("name", ["alpha/old.py", "alpha"])
def test_change_of_an_immutable_file_is_rolled_back(place, site, name):
    before = tree(place)
    file = site / name
    if not shutil.which("chattr") or not process.run(["chattr", "+i", file]).ok:
        pytest.skip("this file system or user cannot make files immutable")
    try:
        with pytest.raises(InstallationError) as refused:
            change(place)
    finally:
        process.run(["chattr", "-i", file])
    assert str(file) in refused.value.message
    assert tree(place) == before
    assert not place.current_change.exists()


def test_write_error_includes_the_path_of_the_file(place, monkeypatch):
    change = planned(place)
    real = os.replace

    def refuse(source, destination):
        if str(destination).endswith("alpha/new/x.py"):
            raise PermissionError(
                1, "Operation not permitted", source, None, destination
            )
        real(source, destination)

    monkeypatch.setattr(os, "replace", refuse)
    with (
        pytest.raises(InstallationError, match=r"alpha/new/x\.py cannot be written"),
        apply_change(change, Reporter()),
    ):
        pass


WRITTEN = {
    "a file in a folder of the package": ({"alpha/data/mine.txt": "m"}, ["alpha/data"]),
    "a file of the new version": (
        {"alpha/data/x.json": "m"},
        ["alpha/data/x.json", "alpha/data"],
    ),
    "a file instead of a folder": (
        {"alpha/more": "m"},
        ["alpha/more", "alpha/more/x.py"],
    ),
    "a new and a removed file": (
        {"alpha/new/x.py": "m, since", "alpha/old.py": "m"},
        ["alpha/new/x.py", "alpha/old.py"],
    ),
    "emptied files": (
        {"alpha/__init__.py": "", "alpha/new/x.py": ""},
        ["alpha/__init__.py", "alpha/new/x.py"],
    ),
}
"""Files that the user writes after a killed change, and the files reported."""


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_files_written_after_killed_change_are_kept(
    place, site, monkeypatch, name, *, is_restarted
):
    written, stays = WRITTEN[name]
    begun(place)
    if is_restarted:
        begun_by(place, boot="an earlier one")
        restart(monkeypatch)
    for file, text in written.items():
        (site / file).write_text(text)
    [notice] = heal_now(place).notices
    assert notice.startswith("Kept")
    assert all(one in notice for one in stays)
    kept = {"alpha/__init__.py": "one", "alpha/old.py": "old"} | written
    assert {file: (site / file).read_text() for file in kept} == kept
    assert not place.current_change.exists()


def test_file_shared_with_another_package_is_kept(place, site):
    put(place.root, "gamma-1", {"alpha/old.py": "old"})
    # top_level.txt may not be valid UTF-8.
    (site / "gamma-1.dist-info/top_level.txt").write_bytes(b"caf\xe9\n")
    (site / "alpha/old.py").write_text("edited")
    assert change(place, None).notices == []
    assert (site / "alpha/old.py").read_text() == "edited"


MODIFIED = {
    "a longer file": ("alpha/old.py", "edited, and longer"),
    "an emptied file": ("alpha/old.py", ""),
    "an empty file at a new path": ("alpha/new/x.py", ""),
    "the same size": ("alpha/old.py", "new"),
    "a file that no installer recorded": ("alpha/new/x.py", "mine"),
    "a command": ("../../../bin/alpha", "edited"),
    "a file of two packages": ("alpha/both.py", "edited"),
    "a file without a digest": ("alpha/plain.txt", "edited"),
}


@pytest.mark.parametrize("keeps_time", [False, True])
@pytest.mark.parametrize("name", MODIFIED)
def test_modified_file_is_reported_and_restored_by_rollback(
    place, site, name, keeps_time
):
    file, text = MODIFIED[name]
    more = {"alpha/both.py": "b"}
    if name == "a file without a digest":
        more |= {"alpha/plain.txt": "p"}
    put(place.root, "alpha-1", {**ALPHA_1, **more})
    put(place.root, "gamma-1", {"alpha/both.py": "b"})
    rows = site / "alpha-1.dist-info/RECORD"
    without = re.sub(r"(plain\.txt),.*", r"\1,,", rows.read_text())
    rows.write_text(without)
    path = Path(os.path.normpath(site / file))
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if keeps_time:
        os.utime(path, ns=(10**18, 10**18))
    new = {**ALPHA_2, **dict.fromkeys(more, "2")}
    [notice] = change(place, ("alpha-2", new)).notices
    relative = path.relative_to(place.root).as_posix()
    assert notice.startswith(
        f"Replaced 1 modified file: {relative}; gpuinstall env rollback"
    )
    back(place)
    assert path.read_text() == text


def replace_unnoticed(path, text):
    """Replace a file with the same size and time, and renew RECORD's ctime."""
    status = path.stat()
    mine = path.with_name("mine")
    write(mine, text)
    os.utime(mine, ns=(status.st_atime_ns, status.st_mtime_ns))
    mine.replace(path)
    for rows in path.parents[1].glob("*.dist-info/RECORD"):
        rows.chmod(0o600)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_edit_with_a_newer_record_is_reported(place, site, size):
    more = {"alpha/old.py": "old" * size, "alpha-1.dist-info/INSTALLER": "uv"}
    put(place.root, "alpha-1", {**ALPHA_1, **more})
    replace_unnoticed(site / "alpha/old.py", "OLD" * size)
    tomorrow = time.time_ns() + 86400 * 10**9
    os.utime(site / "alpha-1.dist-info/RECORD", ns=(tomorrow, tomorrow))
    for _ in range(2):
        [notice] = change(place).notices
        assert notice.startswith(f"Replaced 1 modified file: {SITE}/alpha/old.py")
        back(place)


def test_named_pipe_replacing_a_file_is_reported(place, site):
    (site / "alpha/new").mkdir()
    os.mkfifo(site / "alpha/new/x.py")
    [notice] = change(place).notices
    assert notice.startswith(f"Replaced 1 modified file: {SITE}/alpha/new/x.py")


def save(path, text):
    write(path.with_name("mine"), text)
    path.with_name("mine").replace(path)


def save_and_keep_time(path, text):
    status = path.stat()
    write(path.with_name("mine"), text)
    times = (status.st_atime_ns, status.st_mtime_ns)
    os.utime(path.with_name("mine"), ns=times)
    path.with_name("mine").replace(path)


SAVED = {
    "before the journal": ("_write_journal", "mine, since", save),
    "in place before the journal": ("_write_journal", "OLD", Path.write_text),
    "after the journal": ("_apply", "mine, since", save),
    "with the same time": ("_apply", "OLD", save_and_keep_time),
    "in place": ("_apply", "OLD", Path.write_text),
}


@pytest.mark.parametrize("name", SAVED)
def test_file_saved_during_change_is_kept(place, site, monkeypatch, name):
    step, text, save_file = SAVED[name]
    take_step = getattr(transaction, step)

    def save_first(change):
        save_file(site / "alpha/old.py", text)
        return take_step(change)

    with monkeypatch.context() as patched:
        patched.setattr(transaction, step, save_first)
        [notice] = change(place).notices
    assert notice == f"Kept {SITE}/alpha/old.py (saved during the change)"
    assert (site / "alpha/old.py").read_text() == text
    back(place)
    back(place)
    assert (site / "alpha/old.py").read_text() == text


def test_killed_change_is_not_restored_through_link(place, site, tmp_path):
    first = tree(place)
    begun(place)
    outside = tmp_path / "outside"
    (site / "alpha").rename(outside)
    (site / "alpha").symlink_to(outside)
    write(outside / "__pycache__/old.cpython-312.pyc", "mine")
    before = {path: path.read_text() for path in outside.rglob("*.*") if path.is_file()}
    error = refusal(heal_now, place)
    assert error.message == f"{site / 'alpha'} is a link to {outside}"
    assert before == {path: path.read_text() for path in before}
    (site / "alpha").unlink()
    heal_now(place)
    assert tree(place) == first


def test_modified_files_are_reported_before_the_commit(place, site, monkeypatch):
    (site / "alpha/old.py").write_text("edited")
    begun_change = planned(place)
    listener = Listener()
    failure = OSError(5, "Input/output error")
    monkeypatch.setattr(transaction, "_keep_journal", Mock(side_effect=failure))
    with (
        pytest.raises(InstallationError, match="Input/output error"),
        apply_change(begun_change, listener),
    ):
        pass
    assert "Replaced 1 modified file" in listener.notices[0]


def test_environment_rebuild_without_lock_warns(place, monkeypatch):
    failure = InstallationError("unwritable", "pylock.cpu.toml cannot be written")
    monkeypatch.setattr(transaction, "publish_locks", Mock(side_effect=failure))
    [warning] = rebuilt(place).warnings
    assert warning.startswith("pylock.cpu.toml cannot be written; ")
    assert not place.current_change.exists()


def test_empty_user_folder_is_replaced_by_package_file(place, site):
    (site / "alpha/new/x.py/y/z").mkdir(parents=True)
    change(place)
    assert (site / "alpha/new/x.py").read_text() == "x"


def test_user_folder_replacing_package_file_is_kept(place, site):
    (site / "alpha/old.py").unlink()
    write(site / "alpha/old.py/mine.txt", "mine")
    change(place, None)
    assert (site / "alpha/old.py/mine.txt").read_text() == "mine"


@pytest.mark.parametrize("link", [f"{SITE}/alpha", "share", "bin"])
@pytest.mark.parametrize("comes", [("alpha-2", ALPHA_2), None])
def test_files_in_symlinked_directories_are_not_changed(place, tmp_path, link, comes):
    checkout = tmp_path / "checkout"
    if (place.root / link).exists():
        (place.root / link).rename(checkout)
    else:
        checkout.mkdir()
    (checkout / "a").write_text("mine")
    (place.root / link).symlink_to(checkout)
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    if link == "share" and comes is None:
        change(place, comes)
    else:
        error = refusal(planned, place, comes)
        assert (error.code, error.exit_code) == ("leads-outside", 2)
        removes_link = str(error.hint).startswith(f"rm {place.root / link} ")
        # The environment needs the interpreter behind the link.
        assert removes_link == (link != "bin")
    assert before == {path: path.read_bytes() for path in before}


def test_constraints_edited_during_the_download_are_kept(place):
    staged = place.work / "staging-0123abcd" / CONSTRAINTS
    write(staged, "new")
    write(place.root / CONSTRAINTS, "mine")
    settings = plan_change(
        place,
        added={CONSTRAINTS: staged},
        after={},
        old_packages=[],
        own=[CONSTRAINTS],
        locks={},
    )
    with apply_change(settings, Listener()):
        pass
    assert tree(place)[CONSTRAINTS] == "mine"


def test_user_symlink_is_restored_by_rollback(place, site, tmp_path):
    (tmp_path / "mine.py").write_text("mine")
    path = site / "alpha" / "old.py"
    path.unlink()
    path.symlink_to(tmp_path / "mine.py")
    change(place)
    assert (tmp_path / "mine.py").read_text() == "mine"
    back(place)
    assert path.is_symlink()


def test_file_outside_the_environment_is_not_removed(place, tmp_path):
    put(place.root, "evil-1", {"evil.py": "e", "../../../../thesis.txt": "theirs"})
    change(place, None, ("evil",))
    assert (tmp_path / "thesis.txt").read_text() == "theirs"
    assert f"{SITE}/evil.py" not in tree(place)


def newcomer(place, text="newer"):
    """Create a complete environment to replace the current one."""
    staging = place.work / "staging-89abcdef"
    shutil.rmtree(staging, ignore_errors=True)
    put(staging, "alpha-3", {"alpha/__init__.py": text})
    return staging


@pytest.mark.parametrize("is_there", [False, True])
def test_new_environment_is_created_in_an_empty_folder(place, is_there):
    change(place)
    shutil.rmtree(place.root)
    if is_there:
        place.root.mkdir()
    replace_environment(place, newcomer(place), {}, Reporter())
    assert contents(place) == {f"{SITE}/alpha/__init__.py": "newer"}
    assert not place.last_change.exists()


def test_rebuild_keeps_the_previous_environment(place):
    first = tree(place)
    change(place)
    back(place)
    [kept] = rebuilt(place).notices
    latest = place.previous
    assert contents(place) == {f"{SITE}/alpha/__init__.py": "newer"}
    assert kept.startswith(f"Kept {latest}, ")
    assert "notes.txt" in kept
    assert (latest / ".gitignore").read_text().endswith("*\n")
    (place.root / "since.txt").write_text("mine")
    assert "since.txt" in back(place).notices[0]
    assert tree(place) == first
    back(place)
    assert tree(place)["since.txt"] == "mine"
    # A later change removes the rollback data and keeps the environment.
    change(place)
    assert (latest / "notes.txt").read_text() == "mine"
    [removed, _] = rebuilt(place).notices
    assert removed.startswith(f"Removing {latest}, including ")
    assert "notes.txt" in removed
    assert (latest / "since.txt").read_text() == "mine"
    assert not (latest / "notes.txt").exists()


def test_rollback_of_a_rebuild_never_removes_an_environment(place):
    write(place.root / "pyvenv.cfg", "first")
    rebuilt(place)
    with dying_after_rename("leaving"):
        replace_environment(place, place.previous, {}, Reporter())
    write(place.root / "pyvenv.cfg", "another tool's")
    error = refusal(heal_now, place)
    assert error.code == "path-taken"
    process.run(["sh", "-c", (error.hint or "").partition("   #")[0]])
    heal_now(place)
    assert tree(place) == {"pyvenv.cfg": "another tool's"}
    assert (place.folder / ".venv.previous.old/notes.txt").exists()
    assert (place.previous / SITE / "alpha/__init__.py").read_text() == "newer"


def test_rebuild_reports_before_its_journal_is_kept(place):
    class Watching(Listener):
        def notice(self, label, text):
            super().notice(label, text)
            assert place.has_unfinished_change()

    watching = Watching()
    replace_environment(place, newcomer(place), {}, watching)
    assert "notes.txt" in watching.notices[0]


def test_compiled_files_of_the_user_are_kept(place, site):
    names = {"old.mine.pyc", "old.v2.pyc", "old.cpython-312.mine.pyc", "notes.txt"}
    names.add("mine.cpython-312.pyc")
    folder = site / "alpha/__pycache__"
    write_files(folder, "old.cpython-312.opt-2.pyc", "old.pypy311.pyc", *names)
    change(place)
    assert {path.name for path in folder.iterdir()} == names


def rebuilt(place):
    listener = Listener()
    replace_environment(place, newcomer(place), {}, listener)
    return listener


RECREATED = {
    "after a change": change,
    "after a rebuild": rebuilt,
    "after a killed change": begun,
}


@pytest.mark.parametrize("name", RECREATED)
def test_recreated_environment_is_not_rolled_back(place, name):
    mark(place, "first")
    RECREATED[name](place)
    mark(place, "second")
    for path in list(place.root.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write(place.root / "pyvenv.cfg", "another tool's")
    if place.has_unfinished_change():
        [notice] = heal_now(place).notices
        assert "another tool has recreated" in notice
    error = refusal(back, place)
    assert error.code == "no-previous"
    assert tree(place) == {"pyvenv.cfg": "another tool's"}


def test_recreated_environment_is_kept_after_a_killed_rebuild(place):
    new = newcomer(place)
    write(new / "pyvenv.cfg", "new")
    with dying_after_rename("leaving"):
        replace_environment(place, new, {}, Reporter())
    write(place.root / "pyvenv.cfg", "another tool's")
    assert any(notice.startswith("Kept ") for notice in heal_now(place).notices)
    assert tree(place) == {"pyvenv.cfg": "another tool's"}
    assert (place.previous / "notes.txt").exists()


def mark(place, name):
    """Write the marker of this user's environment."""
    record_environment(place.venv, name, is_created=True)
    replace(environments.MARKER, id=name).write(place.venv)


def moved(place):
    """Move an environment with its journals."""
    folder = place.folder.with_name(f"{place.folder.name}-moved")
    folder.mkdir()
    for path in (place.venv, place.work):
        if path.exists():
            path.rename(folder / path.name)
    return EnvironmentPaths(folder / ".venv")


def test_killed_change_is_rolled_back_after_a_move(place):
    before = tree(place)
    begun(place)
    place = moved(place)
    heal_now(place)
    assert tree(place) == before


def test_change_is_rolled_back_after_a_move(place):
    mark(place, "first")
    before = tree(place)
    change(place)
    mark(place, "second")
    place = moved(place)
    back(place)
    assert tree(place) == before
    assert was_created_here(place.venv)


@contextmanager
def dying(moment):
    """Simulate a kill at a file system call, and yield the counter."""
    calls = [0]

    def counted(real):
        def call(*arguments, **options):
            calls[0] += 1
            if calls[0] == moment:
                raise KeyboardInterrupt
            if calls[0] > moment:
                # A killed process runs no cleanup.
                raise SystemExit
            return real(*arguments, **options)

        return call

    with (
        suppress(KeyboardInterrupt, SystemExit),
        pytest.MonkeyPatch.context() as patched,
    ):
        for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "link"):
            patched.setattr(os, name, counted(getattr(os, name)))
        yield calls


@contextmanager
def dying_after_rename(name):
    """Simulate a kill after a folder with this name was renamed."""
    real = os.rename

    def rename(source, *arguments):
        real(source, *arguments)
        if Path(source).name == name:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "rename", rename)
        yield


def rebuild(place):
    replace_environment(place, newcomer(place), {}, Reporter())


def exchange(place):
    replace_environment(place, place.previous, {}, Reporter())


PARTS = {
    "change": change,
    "heal": heal_now,
    "back": back,
    "rebuild": rebuild,
    "exchange": exchange,
}


@pytest.mark.parametrize("part", mostly_heavy(PARTS, {"change", "rebuild"}))
def test_killed_change_leaves_the_previous_or_new_state(
    place, tmp_path, tmp_path_factory, part
):
    """The recovery is also killed, and a third command completes it."""
    first = tree(place)
    if part == "back":
        change(place)
    if part == "rebuild":
        newcomer(place)
    if part == "exchange":
        rebuild(place)
    begins = PARTS[part]
    if part == "heal":
        begun(place)
    start = tree(place)
    copy = tmp_path_factory.mktemp("copy") / "start"
    shutil.copytree(tmp_path, copy, symlinks=True)
    states, wrong = set(), []
    for moment in range(1, 400):
        shutil.rmtree(tmp_path)
        shutil.copytree(copy, tmp_path, symlinks=True)
        with dying(moment) as calls:
            begins(place)
        if calls[0] < moment:
            break
        if place.root.exists():
            (place.root / "since.txt").write_text("mine")
        with dying(moment % 7 + 1):
            heal_now(place)
        with dying(10**9):
            heal_now(place)
        now = tree(place)
        folders = (place.root, place.work, place.previous)
        notes = [note for one in folders for note in one.rglob("notes.txt")]
        if now.pop("since.txt", "mine") != "mine" or not notes:
            wrong.append(moment)
        states.add(json.dumps(now))
    assert moment > 5
    assert wrong == []
    (place.root / "since.txt").unlink(missing_ok=True)
    if part in {"change", "rebuild"}:
        begins(place)
    after = start if part in {"back", "exchange"} else tree(place)
    allowed = {json.dumps(first), json.dumps(after)}
    assert states <= allowed


def edited_again(site):
    write(site / "alpha" / "old.py", "mine, since")


def verified(site):
    place = EnvironmentPaths(site.parents[2])
    journal = read_journal(place.current_change)
    assert journal
    journal = replace(journal, is_verified=True)
    journals.write_journal(journal, place, place.current_change)


def write_own_lock(place):
    """Write an environment's copy of its lock; return the project's path."""
    mark(place, "first")
    lock = place.folder / environments.MARKER.lock
    text = environments.lock_text()
    (place.root / lock.name).write_text(text)
    digest = parse(lock.name, text).sha256
    replace(environments.MARKER, lock_sha256=digest).write(place.venv)
    return lock


def test_lock_file_with_a_future_time_is_replaced(place):
    lock = write_own_lock(place)
    write(lock, "of a clock that is ahead")
    os.utime(lock, (time.time() + 1000, time.time() + 1000))
    change(place)
    assert lock.read_text() == environments.lock_text()


@pytest.mark.parametrize("kind", ["change", "rebuild", "killed change"])
def test_lock_file_saved_during_a_change_is_kept(place, site, kind):
    lock = write_own_lock(place)
    new = planned(place)
    locks = lock_change(place)
    listener = Listener()
    if kind == "killed change":
        begun(place)
        verified(site)
    write(lock, "mine")
    if kind == "killed change":
        listener = heal_now(place)
    elif kind == "rebuild":
        new = newcomer(place)
        for name in ("gpuinstall.json", lock.name):
            shutil.copy2(place.root / name, new)
        replace_environment(place, new, locks, listener)
    else:
        with apply_change(new, listener):
            pass
    assert lock.read_text() == "mine"
    assert f"Kept {lock} (modified since)" in listener.notices


def test_recovery_keeps_both_versions_of_a_written_file(place, site):
    (site / "alpha" / "old.py").write_text("mine")
    begun(place)
    edited_again(site)
    notices = heal_now(place).notices
    [folder] = place.work.glob("kept-*")
    change(place, ("beta-2", {"beta.py": "b2"}), ("beta",))
    assert (site / "alpha/old.py").read_text() == "mine, since"
    assert (folder / "before" / SITE / "alpha/old.py").read_text() == "mine"
    [kept] = notices
    assert kept.endswith(f"; the previous content is in {folder})")
    assert (place.work / ".gitignore").exists()


def test_modified_files_of_a_recreated_environment_are_kept(place, site):
    mark(place, "first")
    (site / "alpha" / "old.py").write_text("mine")
    begun(place)
    (place.root / "gpuinstall.json").unlink()
    [notice] = heal_now(place).notices
    [folder] = place.work.glob("kept-*")
    assert notice.startswith(f"Kept {folder} (an interrupted change: another tool")
    assert (folder / "before" / SITE / "alpha/old.py").read_text() == "mine"


def test_completed_change_reports_and_restores_modified_files(place, site):
    (site / "alpha" / "old.py").write_text("mine")
    begun(place)
    verified(site)
    [notice] = heal_now(place).notices
    assert notice.startswith("Replaced 1 modified file: ")
    back(place)
    assert (site / "alpha" / "old.py").read_text() == "mine"


def test_rollback_replaces_packages_changed_by_another_tool(place, site):
    first = tree(place)
    change(place, ("alpha-2", ALPHA_2), ("alpha", "beta"))
    for name in ("alpha", "alpha-2.dist-info"):
        shutil.rmtree(site / name)
    (place.root / "share/a").unlink()
    put(place.root, "alpha-3", {"alpha/__init__.py": "three"})
    third = tree(place)
    back(place)
    assert tree(place) == first
    back(place)
    assert tree(place) == third


def test_change_without_packages_keeps_the_rollback(place, site):
    (site / "alpha/old.py").write_text("mine")
    change(place)
    lock = place.staging / "pylock.cpu.toml"
    write(lock, "of another line end")
    only_lock = plan_change(
        place,
        added={lock.name: lock},
        after={},
        old_packages=[],
        own={lock.name},
        locks={},
    )
    with apply_change(only_lock, Reporter()):
        pass
    assert (place.root / lock.name).exists()
    back(place)
    assert (site / "alpha/old.py").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "t"])
def test_incomplete_files_are_restored_after_a_power_failure(place, monkeypatch, text):
    before = tree(place)
    begun(place)
    begun_by(place, boot="an earlier one")
    for name in ("share/a", f"{SITE}/alpha/__init__.py", f"{SITE}/alpha/new/x.py"):
        path = place.root / name
        status = path.stat()
        path.write_text(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    restart(monkeypatch)
    heal_now(place)
    assert tree(place) == before


def remove_copies(journal):
    shutil.rmtree(journal / "before")


def empty(journal):
    (journal / "journal.json").write_text("")


def cut_off(journal):
    text = (journal / "journal.json").read_text()
    (journal / "journal.json").write_text(text[:100])


def remove_record(journal):
    (journal / "journal.json").unlink()


@pytest.mark.parametrize("damage", [remove_copies, empty, cut_off, remove_record])
def test_damaged_journal_is_set_aside(place, damage):
    mark(place, "first")
    begun(place)
    damage(place.current_change)
    changed = tree(place)
    [notice] = heal_now(place).notices
    [aside] = place.work.glob("kept-*")
    text = "(an interrupted change with a damaged journal)"
    assert notice == f"Kept {aside} {text}"
    assert tree(place) == changed
    assert was_created_here(place.venv)
    assert heal_now(place).notices == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes with a path")
def test_named_pipe_replacing_a_file_is_kept(place):
    begun(place)
    pipe = place.root / "share/a"
    pipe.unlink()
    os.mkfifo(pipe)
    heal_now(place)
    assert pipe.is_fifo()


@pytest.fixture
def fresh_home(place, tmp_path, monkeypatch):
    """A killed change of a container, and the state folder of the next one."""
    before = tree(place)
    begun(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "fresh"))
    return before


def test_fresh_home_recovers_a_killed_change(place, fresh_home):
    [notice] = heal_now(place).notices
    assert re.match(r"Recovers an interrupted change of \d+ files by \S+, ", notice)
    assert tree(place) == fresh_home


@pytest.mark.parametrize("reason", ["trust is off", "a path outside", "a link"])
def test_foreign_change_is_not_recovered(place, fresh_home, monkeypatch, reason):
    write(place.folder / "thesis.txt", "mine")
    file = place.current_change / "journal.json"
    document = json.loads(file.read_text())
    match reason:
        case "trust is off":
            monkeypatch.setenv("GPUINSTALL_TRUST_FOLDER", "0")
        case "a path outside":
            document["added"]["../thesis.txt"] = [4, 10**18]
            file.write_text(json.dumps(document))
        case "a link":
            (place.current_change / "before" / "link").symlink_to(place.folder)
    changed = tree(place)
    assert refusal(heal_now, place).code == "others-change"
    assert (place.folder / "thesis.txt").exists()
    assert tree(place) == changed != fresh_home


def test_another_users_change_is_reported_with_its_user(place, fresh_home, monkeypatch):
    monkeypatch.setattr(transaction, "is_foreign", lambda _path, _folder: True)
    error = refusal(heal_now, place)
    assert error.code == "others-change"
    owner = place.current_change.owner()
    assert error.message.endswith(f"is an interrupted change by {owner}")
    assert (error.hint or "").startswith("GPUINSTALL_TRUST_FOLDER=1 gpuinstall env")
    assert tree(place) != fresh_home
    monkeypatch.setenv("GPUINSTALL_TRUST_FOLDER", "1")
    heal_now(place)
    assert tree(place) == fresh_home


def test_fresh_home_rolls_back_a_trusted_change(place, tmp_path, monkeypatch):
    mark(place, "first")
    before = tree(place)
    change(place)
    mark(place, "second")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "fresh"))
    monkeypatch.setenv("GPUINSTALL_TRUST_FOLDER", "0")
    assert refusal(back, place).code == "no-previous"
    monkeypatch.delenv("GPUINSTALL_TRUST_FOLDER")
    back(place)
    assert tree(place) == before


def test_change_without_a_state_folder_is_rolled_back(place, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    before = tree(place)
    change(place)
    assert tree(place) != before
    back(place)
    assert tree(place) == before


def test_interrupt_while_writing_journal_leaves_no_change(place, monkeypatch):
    before = tree(place)
    real = journals.sync_folder

    def interrupted(_folder):
        monkeypatch.setattr(transaction, "sync_folder", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(transaction, "sync_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        change(place)
    assert not place.current_change.exists()
    assert tree(place) == before


def test_last_change_is_compared_after_a_restart(place, site):
    mark(place, "first")
    change(place)
    origin = place.last_change / "origin"
    _, inode = origin.read_text().split()
    # Another tool added a file that the change did not write.
    with (site / "alpha-2.dist-info/RECORD").open("a") as record:
        record.write("alpha/theirs.py,,\n")
    for text in ("two", "t"):
        status = (site / "alpha/__init__.py").stat()
        (site / "alpha/__init__.py").write_text(text)
        os.utime(site / "alpha/__init__.py", ns=(10**18, status.st_mtime_ns))
        assert not journals.needs_recovery(place)
        origin.write_text(f"before {inode}")
        assert journals.needs_recovery(place)
        heal_now(place)
        assert not journals.needs_recovery(place)
        assert (site / "alpha-2.dist-info/RECORD").exists() == (text == "two")


def test_copy_does_not_keep_the_last_change(place, tmp_path):
    mark(place, "first")
    change(place)
    copy = EnvironmentPaths(tmp_path / "copy" / ".venv")
    shutil.copytree(place.root, copy.root)
    shutil.copytree(place.work, copy.work)
    assert journals.needs_recovery(copy)
    heal_now(copy)
    assert not copy.work.exists()
    assert place.last_change.exists()


@pytest.mark.parametrize("folder_lock", [None, "cpu", "other"])
def test_rollback_restores_the_set_of_lock_files(place, folder_lock):
    name = "pylock.cu130.toml"
    lock = place.folder / name
    old = folder_lock or ""
    if old:
        write(lock, old)
    new = planned(place)
    locks = {name: (old, "new")}
    new = replace(new, journal=replace(new.journal, locks=locks))
    with apply_change(new, Reporter()):
        pass
    for expected in (old, "new", old):
        back(place)
        assert (lock.read_text() if lock.exists() else "") == expected
    write(lock, "mine")
    assert f"Kept {lock} (modified since)" in back(place).notices
    assert lock.read_text() == "mine"


def test_environment_points_to_the_journal_during_a_change(place):
    begun(place)
    assert place.pointer.read_text() == f"{place.current_change}\n"
    place.current_change.rename(place.work / "hidden")
    with pytest.raises(InstallationError) as refused:
        heal_now(place)
    assert refused.value.code == "journal-elsewhere"
    (place.work / "hidden").rename(place.current_change)
    heal_now(place)
    assert not place.pointer.exists()


def test_complete_rebuild_is_not_an_error(place, monkeypatch):
    write(place.root / "pyvenv.cfg", "old")
    new = newcomer(place)
    write(new / "pyvenv.cfg", "new")
    failures: list[Path] = []
    real = Path.rename

    def rename(path, target):
        if path.name == "environment" and len(failures) < 2:
            failures.append(path)
            raise OSError(16, "Device or resource busy")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    listener = Listener()
    replace_environment(place, new, {}, listener)
    assert (place.root / "pyvenv.cfg").read_text() == "new"
    [warning] = listener.warnings
    assert warning.startswith("the previous environment is still in ")
    heal_now(place)
    assert (place.previous / "pyvenv.cfg").read_text() == "old"


def test_metadata_folder_that_is_busy_is_removed(place, site, monkeypatch):
    failures: list[Path] = []
    real = Path.rmdir

    def rmdir(path):
        if path == site / "alpha-1.dist-info" and not failures:
            failures.append(path)
            raise OSError(16, "Device or resource busy")
        real(path)

    monkeypatch.setattr(Path, "rmdir", rmdir)
    change(place)
    assert [path.name for path in failures] == ["alpha-1.dist-info"]
    assert not (site / "alpha-1.dist-info").exists()


def test_rollback_without_a_change_is_an_error(place):
    assert refusal(back, place).code == "no-previous"


def test_rollback_waits_for_running_change(place):
    before = tree(place)
    with ExitStack() as other:
        other.enter_context(environment_lock(place, Reporter()))
        other.enter_context(apply_change(planned(place), Reporter()))
        assert place.has_unfinished_change()

        class Waiting(Listener):
            def wait(self, text):
                super().wait(text)
                other.close()

        versions = undo_change(place, Waiting())
    assert tree(place) == before
    # The versions before the rollback are read after the wait.
    assert versions == {"alpha": "2", "beta": "1"}


@pytest.mark.root
@pytest.mark.parametrize("name", ["alpha/more", "alpha/__init__.py", "__pycache__"])
def test_mounted_files_are_not_changed(place, site, tmp_path, name):
    target, mine = site / name, tmp_path / "mine"
    if name == "__pycache__":
        target.mkdir()
    if target.is_dir():
        write_files(mine, "beta.cpython-312.pyc", "x.py")
    else:
        mine.write_text("mine")
    before = {
        path: path.read_text() for path in (mine, *mine.glob("*")) if path.is_file()
    }
    with mounted(target, "--bind", mine):
        change(place, None, ("beta",))
        if name != "__pycache__":
            for comes in (None, ("alpha-2", ALPHA_2)):
                error = refusal(planned, place, comes)
                assert (error.code, error.exit_code) == ("leads-outside", 2)
                assert (error.hint or "").startswith("umount ")
    assert before == {path: path.read_text() for path in before}
