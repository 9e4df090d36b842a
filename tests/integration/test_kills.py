"""Tests of killed commands: gpuinstall, uv, or both.

After a kill, files of both versions may exist. After the next command, the environment
has one version, and user files are unchanged.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.driver import NO_GPU
from tests.lab.environments import packages
from tests.lab.whole import (
    faults,
    found,
    make_application,
    publish_big,
    started,
    write_notes,
)

WATCHED = int(os.environ.get("LAB_KILLS", "60"))
"""The number of times to kill between creating the journal and committing."""
FILES = 3000
WORDS = (
    ("install", "big==2.0", "alpha==2.0"),
    ("install", "big==1.0", "alpha==1.0"),
    ("remove", "big"),
    ("install", "torch==2.13.0"),
    ("install", "torch==2.14.1", "big==2.0"),
    ("env", "rollback"),
    ("sync",),
    ("install", "--into", "--venv", "app", "big==1.0"),
    ("install", "--into", "--venv", "app", "big==2.0"),
    ("env", "rollback", "--into", "--venv", "app"),
)


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create a managed and an unmanaged environment with user files."""
    play(NO_GPU)
    publish_big(stand_in_folder / "simple", FILES)
    app = make_application(workshop)
    workshop.document("install", "torch==2.13.0")
    workshop.document("install", "torch==2.14.1", "big==1.0", "alpha==1.0")
    for environment in (app, workshop.folder / ".venv"):
        write_notes(environment)
    return workshop


def changing(project, words):
    if "--into" in words:
        return packages(project.folder / "app") / ".gpuinstall" / "changing"
    return project.folder / ".venv.gpuinstall" / "changing"


def kill(project, words, seconds, who):
    """Kill a command, and return whether files were changing."""
    journal = changing(project, words)
    running = started(project, words)
    while not journal.exists() and running.poll() is None:
        time.sleep(0.0005)
    time.sleep(seconds)
    if who == "group":
        end_group(running)
    else:
        running.kill()
        running.wait()
    return journal.exists()


def end_group(running):
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def kill_uv(project, words, seconds):
    """Kill the uv of a command, and return whether it was running."""
    running = started(project, words)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while running.poll() is None:
        for child in map(int, read(children).split()):
            if b"\0pip\0install\0" in read(Path(f"/proc/{child}/cmdline")).encode():
                time.sleep(seconds)
                is_running = str(child) in read(children).split()
                if is_running:
                    os.kill(child, signal.SIGKILL)
                running.wait()
                return is_running
        time.sleep(0.001)
    return False


def read(file):
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


@pytest.mark.heavy
def test_next_command_recovers_from_a_killed_change(project, capsys):
    chance = random.Random(0)
    counts = Counter[str]()
    before = Counter[str]()
    wrong = []
    while counts["while files changed"] < WATCHED:
        words = chance.choice(WORDS)
        environment = project.folder / ("app" if "--into" in words else ".venv")
        who = chance.choice(["group", "ours", "uv"])
        if who == "uv":
            is_killed = kill_uv(project, words, chance.random() * 0.15)
            counts["uv alone"] += is_killed
        else:
            watched = kill(project, words, chance.random() * 0.12, who)
            counts["while files changed"] += watched
            counts[f"{who}, while files changed"] += watched
            counts[f"{who}, before or after"] += not watched
            if watched:
                before.update(found(environment) or ["nothing"])
            if watched and chance.random() < 0.4:
                heals = (
                    ("install", "--into", "--venv", "app")
                    if "--into" in words
                    else ("sync",)
                )
                running = started(project, heals)
                time.sleep(0.2 + chance.random() * 0.5)
                end_group(running)
                counts["a second kill"] += changing(project, words).exists()
        into = ("--into", "--venv", "app") if "--into" in words else ()
        done = project.run("install", *into) if into else project.run("sync")
        if done.status != 0:
            wrong.append(f"{words}: {done.err}")
        wrong += [f"{words}, {who}: {fault}" for fault in faults(environment, FILES)]
    with capsys.disabled():
        sys.stdout.write(f"\nkilled: {json.dumps(counts)}\n")
        sys.stdout.write(f"found before the next command: {json.dumps(before)}\n")
    assert wrong == []


@pytest.mark.heavy
def test_packages_of_a_damaged_journal_are_restored(project):
    words = ("install", "big==2.0", "alpha==2.0")
    assert kill(project, words, 0.05, "group")
    (changing(project, words) / "journal.json").write_text("")
    assert "damaged journal" in project.succeed("sync").err
    assert faults(project.folder / ".venv", FILES) == []
    project.succeed(*words)
    assert faults(project.folder / ".venv", FILES) == []


def in_container(name):
    """Return the command for a container without other processes."""
    unshare = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    return (*unshare, "sh", "-c", f'hostname {name}; exec "$@"', "sh")


@pytest.mark.heavy
@pytest.mark.root
def test_containers_share_a_volume_without_conflicts(project):
    other = in_container("other")
    journal = changing(project, ())

    running = started(project, ("install", "alpha==2.0"), other)
    while not (project.folder / ".venv.gpuinstall" / "lock").exists():
        assert running.poll() is None
    done = project.run("install", "big==2.0")
    assert (done.status, running.wait()) == (0, 0), done.err
    lock = project.lock("pylock.cpu.toml")
    assert 'name = "alpha"\nversion = "2.0"' in lock
    assert 'name = "big"\nversion = "2.0"' in lock
    assert faults(project.folder / ".venv", FILES) == []

    running = started(project, ("install", "big==1.0"), other)
    while not journal.exists():
        assert running.poll() is None
    end_group(running)
    assert journal.exists()
    assert "Rolled back an interrupted change" in project.succeed("sync").err
    assert faults(project.folder / ".venv", FILES) == []


PRIVATE_LOCKS = """
import fcntl, runpy, sys
from gpuinstall.environments import running
fcntl.flock = lambda *_: None
running.read_file_system_type = lambda _folder: "nfs4"
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def on_host(name, boot=None):
    """Return the command for a host that sees no NFS locks of other hosts."""
    lines = [f"hostname {name}"]
    if boot:
        lines.append(f"mount --bind {boot} /proc/sys/kernel/random/boot_id")
    script = " && ".join([*lines, 'exec "$@"'])
    python = (sys.executable, "-c", PRIVATE_LOCKS)
    return ("unshare", "--mount", "--uts", "sh", "-c", script, "sh", *python)


@pytest.mark.heavy
@pytest.mark.root
@pytest.mark.parametrize("is_same_boot", [True, False])
def test_host_with_own_locks_keeps_a_running_change(project, tmp_path, is_same_boot):
    journal, venv = changing(project, ()), project.folder / ".venv"
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    second = on_host("second", None if is_same_boot else boot)
    words = ("install", "big==2.0", "alpha==2.0")
    running = started(project, words, on_host("first"))
    while not journal.exists():
        assert running.poll() is None
        time.sleep(0.0005)
    os.killpg(running.pid, signal.SIGSTOP)
    status = 4 if is_same_boot else 2
    assert started(project, ("sync",), second).wait() == status
    assert journal.exists()
    os.killpg(running.pid, signal.SIGCONT)
    assert running.wait() == 0
    assert faults(venv, FILES) == []
    assert started(project, ("sync",), second).wait() == 0

    assert kill(project, ("install", "big==1.0", "alpha==1.0"), 0.02, "group")
    recovery: tuple[str, ...] = ("sync",)
    if not is_same_boot:
        assert started(project, recovery, second).wait() == 2
        recovery = ("env", "rollback")
    assert started(project, recovery, second).wait() == 0
    assert not journal.exists()
    assert faults(venv, FILES) == []


@pytest.mark.heavy
def test_container_without_the_journal_reports_a_killed_change(project, tmp_path):
    words, venv = ("install", "big==2.0", "alpha==2.0"), project.folder / ".venv"
    assert kill(project, words, 0.05, "group")
    work = changing(project, words).parent
    work.rename(tmp_path / "hidden")
    for command in ("sync", "verify"):
        error = project.refusal(command, exit_code=4)
        assert error["code"] == "journal-elsewhere", command
        assert str(work) in error["message"]
    assert project.run("run", "python", "-c", "").status == 4
    (tmp_path / "hidden").rename(work)
    project.succeed("sync")
    assert faults(venv, FILES) == []
    assert not (venv / ".gpuinstall").exists()
    assert kill(project, words, 0.05, "group")
    work.rename(tmp_path / "hidden")
    project.succeed("sync", "--replace")
    assert found(venv) == []
    assert not (venv / ".gpuinstall").exists()
