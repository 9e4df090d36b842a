"""Tests that malicious repositories run no code and change no other files."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.hostile.repository import LOCK, Repository
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.programs import write_program
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="requires Unix links and pipes"
)

INSTALL, SYNC, ROLLBACK, REMOVE = (
    "install --offline",
    "sync --offline",
    "env rollback",
    "env remove --yes",
)
BACK = (ROLLBACK, INSTALL, REMOVE)
MODULES = ("sitecustomize", "usercustomize", "json", "typing", "tomli", "uv", "click")


class Hostile(NamedTuple):
    """A malicious repository: contents, commands, and expected output."""

    craft: Callable[[Repository], None]
    commands: tuple[str, ...]
    said: str = ""
    starts: bool = False
    """Whether the case is about files that Python reads at startup."""


def link(name, target):
    """Return a writer that links a name to a path in the home."""
    return lambda repository: repository.link(name, repository.home / target)


def instead(name, target):
    """Return a writer that replaces a file with a link or pipe."""

    def craft(repository):
        repository.environment()
        path = repository.folder / name
        if path.is_dir():
            path.rename(path.with_name("spare"))
        path.unlink(missing_ok=True)
        if target:
            repository.link(name, repository.home / target)
        else:
            repository.fifo(name)

    return craft


def huge_lock(repository):
    with (repository.folder / LOCK).open("wb") as file:
        file.truncate(1 << 33)


def linked_folder(repository):
    """Add a marker that refers to a file outside, through a link."""
    repository.environment(lock="d/../../bashrc")
    for venv in (repository.venv, repository.work / "last" / "environment"):
        (venv / "d").symlink_to(repository.folder)
        (venv / "bashrc").write_text("curl evil", "utf-8")


def marker(**fields):
    def craft(repository):
        repository.environment(**fields)
        for name in ("bashrc", "Makefile"):
            for venv in (repository.venv, repository.work / "last" / "environment"):
                (venv / name).write_text("curl evil", "utf-8")
        repository.write("Makefile", "all:")

    return craft


def modules(repository):
    for name in MODULES:
        repository.write(f"{name}.py", repository.code)


def fake_python(repository):
    """Add an environment that uv would find."""
    repository.write(".venv/pyvenv.cfg", "home = /usr/bin\n")
    write_program(repository.venv / "bin" / "python", f": > {repository.executed}")


def endless_logs(repository):
    for name in ("F38", "log.txt"):
        repository.fifo(name)
    for name in ("38", "text"):
        repository.link(name, "/dev/zero")


def linked_lock(repository):
    repository.lock('"https://index.example/torch-2.14.1-py3-none-any.whl"')
    (repository.folder / LOCK).rename(repository.home / LOCK)
    repository.link(LOCK, repository.home / LOCK)


REPOSITORIES = {
    "change that is said to have begun": Hostile(
        lambda repository: repository.begun("changing/environment"), BACK
    ),
    "change that is a link": Hostile(
        link(".venv.gpuinstall/changing", "thesis"), (INSTALL, ROLLBACK)
    ),
    "staging with a link": Hostile(
        link(".venv.gpuinstall/staging-0123abcd", "thesis"), (INSTALL, ROLLBACK)
    ),
    "marker whose lock lies above, by a link": Hostile(linked_folder, (ROLLBACK, SYNC)),
    "marker whose lock lies above": Hostile(marker(lock="../bashrc"), (ROLLBACK, SYNC)),
    "marker of the wrong types": Hostile(
        marker(verdict=[1], torch=2, python=None), (INSTALL, "env list")
    ),
    "marker that is a pipe": Hostile(
        instead(".venv/gpuinstall.json", None), (INSTALL, "env list")
    ),
    "copy of the lock that is a link": Hostile(
        instead(f".venv/{LOCK}", "bashrc"), (ROLLBACK, INSTALL)
    ),
    ".gitignore that is a link": Hostile(
        instead(".venv.gpuinstall/.gitignore", "bashrc"), BACK
    ),
    "owner that is a link": Hostile(instead(".venv.gpuinstall/owner", "bashrc"), BACK),
    "guard that is a link to nothing": Hostile(
        instead(".venv.gpuinstall/lock", "thesis/new"), (INSTALL,)
    ),
    "last change that is a link to another environment": Hostile(
        instead(".venv.gpuinstall/last", "project/.venv"), BACK
    ),
    "replaced environment that is a link to another": Hostile(
        instead(".venv.gpuinstall/last/environment", "project/.venv"), BACK
    ),
    "staging that is a link": Hostile(
        instead(".venv.gpuinstall/staging-0", "thesis"), (INSTALL,)
    ),
    "work folder that is a link": Hostile(
        link(".venv.gpuinstall", "thesis"), (INSTALL,), "is not a folder"
    ),
    "environment that is a link to another": Hostile(
        link(".venv", "project/.venv"), BACK, "leads to"
    ),
    "lock that is a link": Hostile(linked_lock, (SYNC,), "points outside"),
    "lock that is a device": Hostile(
        link(LOCK, "/dev/zero"), (SYNC,), "cannot be read"
    ),
    "lock that is huge": Hostile(huge_lock, (SYNC,), "larger than"),
    "lock with credentials": Hostile(
        lambda repository: repository.lock(
            '"https://me:secret@index.example/torch-2.14.1-py3-none-any.whl"'
        ),
        (SYNC,),
        "user name or password",
    ),
    "pyproject.toml that is a link": Hostile(
        link("pyproject.toml", "bashrc"), ("plan", INSTALL), "points outside"
    ),
    "pip.conf of the environment that chooses an index": Hostile(
        lambda repository: repository.write(
            ".venv/pip.conf", "[global]\nindex-url = https://evil.example/simple"
        ),
        ("install --offline --replace",),
        "Index       https://evil.example/simple (from",
    ),
    "requirements that include a device": Hostile(
        lambda repository: repository.write("requirements.txt", "-r /dev/zero"),
        ("plan -r requirements.txt",),
        "/dev/zero is a file of the kernel, not of a project",
    ),
    "modules in the place of the standard library's": Hostile(
        modules,
        ("probe", "plan", INSTALL, "doctor", f"verify --python {sys.executable}"),
        starts=True,
    ),
    "logs that never end": Hostile(
        endless_logs, ("explain F38", "explain 38", "explain log.txt", "explain text")
    ),
    "environment that uv would ask": Hostile(
        fake_python, ("install --replace", "lock")
    ),
}


QUICK = {
    "logs that never end",
    "marker whose lock lies above, by a link",
    "owner that is a link",
    "last change that is a link to another environment",
    "change that is said to have begun",
    "environment that is a link to another",
    "lock that is a link",
    "requirements that include a device",
    "modules in the place of the standard library's",
}


@pytest.fixture
def repository(tmp_path):
    made = Repository(tmp_path / "home")
    made.prepare()
    return made


@pytest.mark.parametrize("name", mostly_heavy(REPOSITORIES, QUICK))
def test_malicious_repository_cannot_change_files_or_run_code(repository, play, name):
    play(NO_GPU)
    hostile = REPOSITORIES[name]
    hostile.craft(repository)
    before = repository.victims()
    for words in hostile.commands:
        workshop = clone_of(repository)
        done = (
            workshop.started(*words.split())
            if hostile.starts
            else workshop.run(*words.split())
        )
        assert done.status not in {1, None}, done.err
        assert "Traceback" not in done.err
        assert repository.victims() == before, words
    assert hostile.said in done.out + done.err


def clone_of(repository):
    """Return a workshop in the clone, with the user's home."""
    caches = repository.home / "caches"
    nothing = dict.fromkeys(
        ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL", "PIP_FIND_LINKS"), ""
    )
    person = {
        "HOME": str(repository.home),
        "UV_OFFLINE": "1",
        "VIRTUAL_ENV": str(repository.venv),
    }
    return Workshop(repository.folder, caches, nothing | person)
