"""The order of steps in a change, with a kill after each step."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.packages import read_packages
from gpuinstall.install import transaction
from gpuinstall.install.environment_lock import environment_lock
from gpuinstall.install.file_change import find_staged_files, plan_change
from gpuinstall.install.state import inspect_environment
from gpuinstall.install.transaction import apply_change
from gpuinstall.lock.file.lock import parse
from tests.lab.wheels import record
from tests.unit.install.environments import lock_text, make_environment

SITE = "lib/python3.12/site-packages"
LOCK = "pylock.cu126.toml"
ENTRY = """
[[packages]]
name = "small"
version = "{version}"
[[packages.wheels]]
url = "https://index.example/small-{version}-py3-none-any.whl"
hashes = {{ sha256 = "2222222222222222222222222222222222222222222222222222222222222222" }}
"""
CALLS = ("rename", "replace", "unlink", "rmdir", "mkdir", "link")
METADATA = "small-2.dist-info/METADATA"
OLD = {"small/__init__.py": "1", "small/gone.py": "1"}
NEW = {"small/__init__.py": "2", "small/new.py": "2", METADATA: "2"}


class Killed(BaseException):
    """A simulated kill of the process."""


class Steps:
    """Recorded file system calls, with a kill after a given number."""

    def __init__(self, folder):
        self.folder = folder
        self.made: list[tuple[str, str]] = []
        self.last: int | None = None

    def __enter__(self):
        self.patched = pytest.MonkeyPatch()
        for name in CALLS:
            self.patched.setattr(os, name, self._recorded(name, getattr(os, name)))
        self.patched.setattr(os, "fsync", self._synced)
        self.patched.setattr(
            transaction, "sync_file_system", lambda _: self._add("sync", "all")
        )
        return self

    def __exit__(self, *_):
        self.patched.undo()

    def _recorded(self, name, real):
        def call(*paths, **options):
            self._add(name, [path for path in paths if not isinstance(path, int)][-1])
            return real(*paths, **options)

        return call

    def _synced(self, number):
        self._add("sync", Path(f"/proc/self/fd/{number}").readlink())

    def _add(self, name, path):
        if self.last is not None and len(self.made) >= self.last:
            raise Killed
        path = os.path.relpath(path, self.folder) if path != "all" else path
        self.made.append((name, path))


def put(root, version, files):
    """Write a package as an installer does."""
    name = f"small-{version}.dist-info/RECORD"
    for file, text in files.items():
        (root / SITE / file).parent.mkdir(parents=True, exist_ok=True)
        (root / SITE / file).write_text(text)
    rows = {file: text.encode() for file, text in files.items()}
    (root / SITE / name).parent.mkdir(parents=True, exist_ok=True)
    (root / SITE / name).write_bytes(record(rows, name))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A managed environment with small 1, and the files of small 2."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = EnvironmentPaths(tmp_path / "project" / ".venv")
    make_environment(place.venv, "old")
    put(place.venv, "1", OLD)
    text = lock_text() + ENTRY.format(version="1")
    for folder in (place.folder, place.venv):
        (folder / LOCK).write_text(text)
    versions = {"torch": "2.14.1", "small": "1"}
    mark(place, packages=versions)
    (place.venv / "notes.txt").write_text("mine")
    return place


def change(place):
    """Change small 1 to small 2, and its lock."""
    staging = place.work / "staging-0123abcd"
    shutil.rmtree(staging, ignore_errors=True)
    put(staging, "2", NEW)
    (staging / LOCK).write_text(lock_text() + ENTRY.format(version="2"))
    arriving = read_packages([staging / SITE])
    planned = plan_change(
        place,
        added={**find_staged_files(arriving, staging, place), LOCK: staging / LOCK},
        after={"small": "2"},
        old_packages=[
            one
            for one in read_packages(place.find_packages_folders())
            if one.name == "small"
        ],
        own={LOCK},
        locks={
            LOCK: (
                (place.folder / LOCK).read_text(),
                (staging / LOCK).read_text(),
            )
        },
    )
    with apply_change(planned, Reporter()):
        make_stamp(place)


def make_stamp(place):
    """Write the marker and the stamp, as the end of a verification does."""
    mark(place, packages={"torch": "2.14.1", "small": "2"})
    part = place.work / ".part"
    part.write_text("stamp")
    os.replace(part, place.folder / "stamp.json")  # noqa: PTH105  the test records os.replace


def mark(place, packages):
    """Write the marker of the environment's lock file."""
    marker = read_marker(place.venv)
    assert marker
    digest = parse(LOCK, (place.venv / LOCK).read_text()).sha256
    replace(marker, lock_sha256=digest, packages=packages).write(
        place.venv, place.work if place.work.exists() else None, is_cached=True
    )


def contents(place):
    """Return the files of the project, except the journals."""
    return {
        path.relative_to(place.folder).as_posix(): path.read_text()
        for path in sorted(place.folder.rglob("*"))
        if path.is_file()
        and place.work not in path.parents
        and path != place.pointer
        and path.name not in {"gpuinstall.json", "stamp.json"}
    }


def test_environment_change_steps_run_in_order(place):
    with Steps(place.folder) as steps:
        change(place)
    journal = steps.made.index(("rename", ".venv.gpuinstall/changing"))
    files = [
        number
        for number, (name, path) in enumerate(steps.made)
        if path.startswith(f".venv/{SITE}/small/") and name in {"replace", "unlink"}
    ]
    order = [
        find_sync(steps, os.path.relpath(place.scratch, place.folder)),
        journal,
        steps.made.index(("sync", ".venv.gpuinstall"), journal),
        min(files),
        max(files),
        steps.made.index(("replace", f".venv/{SITE}/{METADATA}")),
        steps.made.index(("replace", f".venv/{SITE}/small-2.dist-info/RECORD")),
        steps.made.index(("unlink", f".venv/{SITE}/small-1.dist-info/RECORD")),
        steps.made.index(("replace", "stamp.json")),
        steps.made.index(("sync", "all")),
        steps.made.index(("replace", LOCK)),
        steps.made.index(("rename", ".venv.gpuinstall/last")),
    ]
    assert order == sorted(order)
    assert steps.made[-1] == ("sync", ".venv.gpuinstall/last")
    assert len(files) == 3
    syncs = [name for name, _ in steps.made if name == "sync"]
    assert len(syncs) == 6


def find_sync(steps, folder):
    """Return the number of the first fsync of a file in a folder."""
    synced = (
        name == "sync" and path.startswith(f"{folder}/") for name, path in steps.made
    )
    return [*synced].index(True)


def test_kill_between_steps_leaves_a_consistent_state(place, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "project"
    shutil.copytree(place.folder, copy, symlinks=True)
    before = contents(place)
    with Steps(place.folder) as steps:
        change(place)
    after = contents(place)
    assert before != after
    halves, unnoticed = [], []
    for number, (name, _) in enumerate(steps.made):
        if name == "mkdir":  # most of these folders exist
            continue
        shutil.rmtree(place.folder)
        shutil.copytree(copy, place.folder, symlinks=True)
        with Steps(place.folder) as killed, suppress(Killed):
            killed.last = number
            change(place)
        if not is_mixture_found(place, before):
            unnoticed.append(steps.made[number])
        with Steps(place.folder), environment_lock(place, Reporter()):
            pass
        if contents(place) not in (before, after) or place.has_unfinished_change():
            halves.append(steps.made[number])
    assert halves == []
    # The user may delete the journal, so that the packages are reinstalled.
    assert unnoticed == []


def is_mixture_found(place, before):
    """Return whether mixed versions are recognized without a journal."""
    existing = inspect_environment(place)
    if existing.lock is None or existing.versions["small"] == "2":
        return True
    now = contents(place)
    changed = {name for name in now | before if now.get(name) != before.get(name)}
    return changed <= {LOCK, f".venv/{LOCK}"}
