"""Tests of environments that containers use."""

import pytest

from tests.lab.driver import NO_GPU
from tests.lab.wheels import make_wheel


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create an environment with torch, alpha 1.0, and a notebook."""
    play(NO_GPU)
    for version in ("1.0", "2.0"):
        files = {"alpha/__init__.py": version}
        make_wheel(stand_in_folder / "simple", "alpha", version, modules=files)
    workshop.document("install", "torch==2.14.1", "alpha==1.0")
    (workshop.folder / ".venv" / "notes.ipynb").write_text("mine")
    return workshop


def with_new_home(project, name):
    """Return the project as another container uses it: without records and caches."""
    home = project.caches.with_name(name)
    return project.having(
        XDG_STATE_HOME=str(home / "state"), XDG_CACHE_HOME=str(home / "cache")
    )


def said_by(project, *words):
    done = project.succeed(*words)
    return " ".join((done.err + done.out).split())


STARTED = "in an environment that gpuinstall did not create"


def test_fresh_home_adopts_the_environment(project):
    notes = project.folder / ".venv" / "notes.ipynb"
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
