"""Tests of changes to files that other programs use."""

import random
import time

import pytest

from tests.windows.machine import HOME, LAUNCHER

FOLDER = f"{HOME}\\changes"
SITE = f"{FOLDER}\\.venv\\Lib\\site-packages"
PYTHON = f"{FOLDER}\\.venv\\Scripts\\python.exe"
OPEN = """
import os, sys, time
file = open(sys.argv[1])
print(flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
time.sleep(float(sys.argv[3]))
"""
"""Keep a file open for some seconds after a change begins."""
LOAD = "import markupsafe._speedups, time; print(flush=True); time.sleep(7200)"
KILLS = 15
SEED = 137


@pytest.fixture(scope="module")
def environment(plain, project):
    """A project with einops and MarkupSafe."""
    assert project  # bootstrap.py has run
    install = ("install", "einops==0.7.0", "markupsafe==2.1.5")
    done = plain.run(LAUNCHER, *install, cwd=FOLDER)
    assert done.status == 0, done.text
    return FOLDER


@pytest.fixture
def command(plain, environment):
    """Run the launcher in the project."""
    assert environment

    def run(*arguments, status=0):
        done = plain.run(LAUNCHER, *arguments, cwd=FOLDER)
        assert done.status == status, done.text
        return done.text

    return run


@pytest.fixture
def versions(plain):
    """Return the installed versions of a package."""

    def find(name):
        found = plain.path(SITE).glob("*.dist-info")
        packages = [path.stem.lower().split("-") for path in found]
        return [version for package, version in packages if package == name]

    return find


@pytest.fixture
def using(plain):
    """Start a program, and wait until it uses a file."""

    def start(program, code, *arguments):
        started = plain.start(program, "-c", code, *arguments, cwd=FOLDER)
        started.stdout.readline()
        return started

    return start


def opened(using, seconds):
    """Keep a module of einops open."""
    module = f"{SITE}\\einops\\__init__.py"
    journal = f"{FOLDER}\\.venv.gpuinstall\\changing"
    return using("python", OPEN, module, journal, str(seconds))


def test_packages_are_upgraded_removed_and_restored(command, versions):
    command("install", "einops==0.8.0")
    assert versions("einops") == ["0.8.0"]
    command("env", "rollback")
    assert versions("einops") == ["0.7.0"]
    command("remove", "einops")
    assert versions("einops") == []
    command("env", "rollback")
    assert versions("einops") == ["0.7.0"]


def test_file_in_use_for_a_moment_is_replaced(command, versions, using):
    with opened(using, 2):
        command("install", "einops==0.8.0")
    assert versions("einops") == ["0.8.0"]


def test_change_of_file_in_use_is_rolled_back(command, versions, using):
    with opened(using, 7200) as program:
        text = command("install", "einops==0.7.0", status=4)
        program.kill()
    assert "Close the programs that use it" in text
    assert versions("einops") == ["0.8.0"]


def test_change_of_loaded_library_is_rolled_back(command, versions, using):
    with using(PYTHON, LOAD) as program:
        text = command("install", "markupsafe==3.0.2", status=4)
        program.kill()
    assert "Close the programs that use it" in text
    assert versions("markupsafe") == ["2.1.5"]


def test_killed_changes_are_completed_or_rolled_back(plain, command, versions):
    began = time.monotonic()
    command("install", "einops==0.8.1")
    usual = time.monotonic() - began
    delays = random.Random(SEED)
    for number in range(KILLS):
        version = ("0.7.0", "0.8.0")[number % 2]
        install = plain.start(LAUNCHER, "install", f"einops=={version}", cwd=FOLDER)
        with install as process:
            time.sleep(delays.uniform(0.1, 1) * usual)
            process.kill()  # ends the launcher's job
    command("install", "einops==0.8.1")
    assert versions("einops") == ["0.8.1"]
    work = plain.path(FOLDER) / ".venv.gpuinstall"
    assert {path.name for path in work.iterdir()} == {".gitignore", "last"}


def test_second_command_waits_for_the_first(plain, command, versions):
    with plain.start(LAUNCHER, "install", "einops==0.7.0", cwd=FOLDER) as first:
        command("install", "markupsafe==3.0.3")
        first.communicate()
    assert first.returncode == 0
    assert versions("einops") == ["0.7.0"]
    assert versions("markupsafe") == ["3.0.3"]


def test_confirmed_removal_leaves_no_files(plain, command):
    text = command("env", "remove", status=2)
    assert "--yes" in text
    assert "created or modified by you" not in command("env", "remove", "--yes")
    assert not plain.path(FOLDER).joinpath(".venv").exists()
