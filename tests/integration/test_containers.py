"""Tests of environments that containers use."""

import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from gpuinstall.base import uv
from gpuinstall.environments.environment import read_marker
from tests.lab.driver import NO_GPU
from tests.lab.processes import succeed
from tests.lab.projects import make_project
from tests.lab.whole import faults, publish_big, started, write_notes

FILES = 1000
HOST = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')
"""The start of a command on a host with another name."""


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create an environment with torch, alpha 1.0, and a notebook."""
    play(NO_GPU)
    publish_big(stand_in_folder / "simple", FILES)
    workshop.document("install", "torch==2.14.1", "big==1.0", "alpha==1.0")
    write_notes(workshop.folder / ".venv")
    return workshop


def with_new_home(project, name):
    """Return the project as another container uses it."""
    home = project.caches.with_name(name)
    return project.having(
        XDG_STATE_HOME=str(home / "state"), XDG_CACHE_HOME=str(home / "cache")
    )


def said_by(project, *words):
    done = project.succeed(*words)
    return " ".join((done.err + done.out).split())


STARTED = "in an environment that gpuinstall did not create"


def test_fresh_home_adopts_the_environment(project):
    notes = project.folder / ".venv" / "notes.txt"
    inode = notes.stat().st_ino
    for name in ("second", "third"):
        container = with_new_home(project, name)
        assert STARTED in said_by(container, "run", "python", "--version")
        said = said_by(container, "sync")
        assert STARTED in said
        assert "gpuinstall sync --replace" in said
        assert notes.stat().st_ino == inode
        assert project.entries() >= {".venv"}
        assert ".venv.previous" not in project.entries()
        assert STARTED not in said_by(container, "sync")
        assert STARTED not in said_by(container, "run", "python", "--version")
        untrusted = container.having(GPUINSTALL_TRUST_FOLDER="0")
        for words in (("sync",), ("run", "python", "--version")):
            done = untrusted.run(*words)
            assert done.status == 2, done.err
            assert "gpuinstall sync --replace" in done.err
    container = with_new_home(project, "fourth").having(GPUINSTALL_TRUST_FOLDER="0")
    container.succeed("sync", "--replace", "--discard-previous")
    assert STARTED not in said_by(container, "run", "python", "--version")


def kill(project, words, before=()):
    """Kill a command while it changes the environment."""
    journal = project.folder / ".venv.gpuinstall" / "changing"
    for version in ("2.0", "1.0") * 5:
        running = started(
            project, (*words, f"big=={version}", f"alpha=={version}"), before
        )
        while not journal.exists() and running.poll() is None:
            time.sleep(0.0005)
        time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if journal.exists():
            return
    pytest.fail("no command was killed during its change")


@pytest.mark.root
@pytest.mark.parametrize(
    "words", [("sync",), ("run", "python", "-V"), ("env", "rollback")]
)
def test_next_container_recovers_a_killed_change(project, words):
    kill(with_new_home(project, "first"), ("install",), (*HOST, "first"))
    verified = project.run("verify")
    assert verified.status == 4
    assert "gpuinstall env rollback" in verified.err
    second = with_new_home(project, "second")
    running = started(second, words, (*HOST, "second"))
    assert running.wait() == 0
    assert not (project.folder / ".venv.gpuinstall" / "changing").exists()
    assert faults(project.folder / ".venv", FILES) == []
    second.succeed("install", "big==2.0", "alpha==2.0")
    second.succeed("install", "big==1.0", "alpha==2.0")
    with_new_home(project, "third").succeed("env", "rollback")
    assert faults(project.folder / ".venv", FILES) == []
    assert project.python("import alpha; print(open(alpha.__file__).read())") == "2.0"
    assert project.python("import big; print(open(big.__file__).read())") == "2.0"


def test_copied_project_imports_its_own_code(workshop, play):
    play(NO_GPU)
    make_project(workshop.folder, "lb", [])
    workshop.document("install", "torch==2.14.1", "-e", ".")
    code = ("run", "python", "-c", "import lb; print(lb.__file__)")
    assert said_by(workshop, *code) == f"{workshop.folder}/lb.py"
    copy = replace(workshop, folder=workshop.folder.with_name("copy"))
    shutil.copytree(workshop.folder, copy.folder, symlinks=True)
    done = copy.run(*code)
    assert done.status == 2
    assert f"lb would be imported from {workshop.folder}" in done.err
    copy.succeed("sync")
    assert said_by(copy, *code) == f"{copy.folder}/lb.py"
    markers = [read_marker(one.folder / ".venv") for one in (workshop, copy)]
    assert len({marker.id for marker in markers if marker}) == 2
    assert "already up to date" in said_by(workshop, "sync")
    assert said_by(workshop, *code) == f"{workshop.folder}/lb.py"


def test_pip_removed_by_uv_is_not_reported(project):
    python = project.folder / ".venv" / "bin" / "python"
    locks = list(project.folder.glob("pylock.*.toml"))
    command = [uv.uv(), "pip", "sync", "--python", python, *locks]
    index = project.environment["UV_DEFAULT_INDEX"]
    succeed(command, env={**project.environment, "UV_INDEX_URL": index})
    assert not list(python.parents[1].glob("lib/*/site-packages/pip"))
    assert "missing" not in said_by(project, "sync")
    succeed([python, "-m", "pip", "--version"])
