"""Runs that are killed at random moments, and the next ones too: what they leave is whole, and the user's files are there."""

import os
import random
import shutil
import signal
import time
from collections import Counter

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.packages import read_packages
from gpuinstall.install.hold import hold, take_back
from gpuinstall.install.transaction import (
    changing,
    commit,
    replace_environment,
    unfinished,
)
from tests.unit.install.test_transaction import SITE, planned, put

FILES = 300
WATCHED = 200
"""How many kills at least fall between the journal's name and the commit."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = EnvironmentPaths(tmp_path / ".venv")
    put(place.root, *package("1"))
    put(place.root, "small-1", {"small/__init__.py": "1"})
    (place.root / "notes.txt").write_text("mine")
    return place


def package(version):
    """A package of many files, of which each names its version."""
    modules = {f"big/{n % 40}/m{n}.py": f"{version}.{n}" for n in range(FILES)}
    return (f"big-{version}", {**modules, f"big/only-{version}.py": ""})


def upgrade(place):
    versions = [
        one.version
        for one in read_packages(place.packages_folders)
        if one.name == "big"
    ]
    other = "2" if versions == ["1"] else "1"
    with (
        hold(place, Reporter()),
        changing(planned(place, package(other), ("big",)), Reporter()) as journal,
    ):
        commit(place, journal, Reporter())


def small(place):
    other = "2" if (place.root / SITE / "small-1.dist-info").exists() else "1"
    comes = (f"small-{other}", {"small/__init__.py": other})
    with (
        hold(place, Reporter()),
        changing(planned(place, comes, ("small",)), Reporter()) as journal,
    ):
        commit(place, journal, Reporter())


def back(place):
    if place.last.exists():
        take_back(place, Reporter(), takes_over=False)


def rebuild(place):
    staging = place.work / "staging-89abcdef"
    shutil.copytree(place.root, staging, copy_function=os.link)
    (staging / "notes.txt").unlink(missing_ok=True)
    with hold(place, Reporter()):
        replace_environment(place, staging, Reporter())


def killed(place, act, seconds, *, in_change):
    """Start an act in a process of its own and kill it after a while; return whether a change was under way."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act(place)
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + 20
    while in_change and not unfinished(place) and time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return False
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return unfinished(place)


def faults(place):
    """What is wrong with an environment that is at rest."""
    found = []
    packages: dict[str, list[str]] = {}
    for one in read_packages(place.packages_folders):
        packages.setdefault(one.name, []).append(one.version)
    for name in ("big", "small"):
        if len(packages.get(name, ())) != 1:
            found.append(f"{name}: {packages.get(name)}")
            continue
        [version] = packages[name]
        module = place.root / SITE / name
        texts = {
            file.read_text().partition(".")[0] for file in module.rglob("*.py")
        } - {""}
        if texts != {version}:
            found.append(f"{name} {version} has files of {texts}")
        if name == "big" and len([*module.rglob("m*.py")]) != FILES:
            found.append("big lacks files")
    return found


@pytest.mark.heavy
def test_kills_at_random_moments_leave_the_old_or_the_new(place, record_property):
    acts = (upgrade, small, back, rebuild)
    chance = random.Random(0)
    counts = Counter[str]()
    wrong = []
    while counts["watched"] < WATCHED or counts["kills"] < 2 * WATCHED:
        act = chance.choice(acts)
        in_change = chance.random() < 0.9
        seconds = chance.random() * (0.02 if in_change else 0.3)
        watched = killed(place, act, seconds, in_change=in_change)
        counts["kills"] += 1
        counts["watched"] += watched
        if watched and chance.random() < 0.5:
            counts["twice"] += killed(
                place, heal, chance.random() * 0.03, in_change=False
            )
        heal(place)
        wrong += [
            f"{act.__name__} after {counts['kills']}: {fault}"
            for fault in faults(place)
        ]
        notes = [
            path
            for folder in (place.root, place.work, place.kept)
            for path in folder.rglob("notes.txt")
        ]
        if not notes:
            wrong.append(f"{act.__name__} after {counts['kills']}: notes are gone")
        if act is rebuild and not (place.root / "notes.txt").exists():
            (place.root / "notes.txt").write_text("mine")
        shutil.rmtree(place.kept, ignore_errors=True)
    record_property("kills", dict(counts))
    assert wrong == []


def heal(place):
    with hold(place, Reporter()):
        pass
