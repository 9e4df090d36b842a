"""Tests of environments that containers use."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuinstall.base import uv
from gpuinstall.environments.environment import read_marker
from tests.frozen import GPUINSTALL
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.mounts import mounted
from tests.lab.nobody import open_folder
from tests.lab.processes import succeed
from tests.lab.projects import make_project
from tests.lab.whole import faults, publish_big, started, write_notes
from tests.lab.workshop import Workshop

FILES = 300
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
        said = said_by(container, "run", "python", "--version")
        assert STARTED in said
        assert "gpuinstall sync --replace" in said
        # The first container ran the kernels.
        said = said_by(container, "sync")
        assert "already up to date" in said
        assert STARTED not in said
        assert notes.stat().st_ino == inode
        assert project.entries() >= {".venv"}
        assert ".venv.previous" not in project.entries()
        assert STARTED not in said_by(container, "run", "python", "--version")
        untrusted = container.having(GPUINSTALL_TRUST_FOLDER="0")
        for words in (("sync",), ("run", "python", "--version")):
            done = untrusted.run(*words)
            assert done.status == 2, done.err
            assert "gpuinstall sync --replace" in done.err
    container = with_new_home(project, "fourth")
    assert STARTED in said_by(container, "verify")
    assert STARTED not in said_by(container, "verify")
    container = with_new_home(project, "fifth").having(GPUINSTALL_TRUST_FOLDER="0")
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


RECOVERING = (("run", "python", "-V"), ("sync",), ("env", "rollback"))


@pytest.mark.root
@pytest.mark.parametrize("words", mostly_heavy(RECOVERING, RECOVERING[:1]))
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


FORMS = (
    "bind mount",
    "image layer",
    "read-only project",
    "another user of the group",
    "root of a user's project",
    "cache on another disk",
    "two containers at once",
    "copied image",
    "running kernel",
)
USER, MEMBER = 1234, 1235
"""The owner of a project, and another member of the group 1234."""
CHECK = """
import pathlib, sys
[site] = pathlib.Path(".venv/lib").glob("python*/site-packages")
files = [*site.glob("big/**/*.py"), *site.glob("alpha/*.py")]
versions = {file.read_text().partition(" ")[0] for file in files}
notes = [site / "big" / "notes.txt", pathlib.Path(".venv/notes.txt")]
assert all(note.read_text() == "mine" for note in notes), "notes are lost"
assert not pathlib.Path(".venv.previous").exists(), "rebuilt"
assert len(versions) == 1 and len(files) == int(sys.argv[1]) + 2, (versions, len(files))
print(*versions)
"""


@dataclass
class Container:
    """A project as a container uses it, with its own mounts and variables."""

    project: Workshop
    form: str
    base: Path
    """A folder that every user can enter."""
    number: int = 0

    @property
    def folder(self) -> Path:
        """The project's folder in the container."""
        return self.base / ("copy" if self.form == "copied image" else "app")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the next container, which has a new home folder."""
        home = self.base / f"home{self.number}"
        home.mkdir(exist_ok=True)
        home.chmod(0o777)
        variables = {
            **self.project.environment,
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "UV_CACHE_DIR": str(home / "uv"),
            "TMPDIR": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if self.form == "cache on another disk":
            variables["UV_CACHE_DIR"] = str(self.base / "disk" / "uv")
        if self.form == "root of a user's project":
            variables["container"] = "docker"
        if self.form == "another user of the group":
            variables["GPUINSTALL_TRUST_FOLDER"] = "1"
        return variables

    def start(self, *words) -> "subprocess.Popen[str]":
        """Start a command in a container."""
        source, folder = self.project.folder, self.folder
        lines = [f"hostname host{self.number}"]
        if self.form == "image layer":
            upper, work = self.base / "upper", self.base / "work"
            options = f"lowerdir={source},upperdir={upper},workdir={work}"
            lines.append(f"mount -t overlay -o {options} overlay {folder}")
        elif self.form != "copied image":
            lines.append(f"mount --bind {source} {folder}")
        if self.form == "read-only project":
            lines.append(f"mount -o remount,ro,bind {folder}")
        execute = 'exec "$@"'
        if self.form == "another user of the group":
            # Other users may be unable to enter the folder of this Python.
            base = Path(sys.base_prefix)
            for private in base.parents:
                if not private.stat().st_mode & 0o001:
                    aside = self.base / "python"
                    lines += [
                        f"mount --bind {base} {aside}",
                        f"mount -t tmpfs -o mode=755 none {private}",
                        f"mkdir -p {base}",
                        f"mount --bind {aside} {base}",
                    ]
            ids = f"--reuid {MEMBER} --regid {USER} --clear-groups"
            execute = f'umask 002; exec setpriv {ids} "$@"'
        script = " && ".join([*lines, f"cd {folder}", execute])
        return subprocess.Popen(
            ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", *map(str, words)],
            env=self.environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words) -> tuple[int, str]:
        """Return the exit status and the output of a command."""
        running = self.start(*words)
        output, _ = running.communicate(timeout=300)
        return running.returncode, output

    def is_changing(self) -> bool:
        """Return whether a journal of an unfinished change exists."""
        names = (".venv.gpuinstall/changing", ".venv/.gpuinstall/changing")
        roots = (self.project.folder, self.base / "upper", self.base / "copy")
        return any((root / name).exists() for root in roots for name in names)


def succeed_in(container, *words):
    status, output = container.run(*words)
    assert status == 0, f"{words}: {status}: {output[-1500:]}"
    return output


def version_in(container):
    return succeed_in(container, sys.executable, "-c", CHECK, FILES).strip()


def kill_in(container, words, is_changing):
    """Kill a command when its change begins."""
    running = container.start(*words)
    while not is_changing() and running.poll() is None:
        time.sleep(0.0005)
    time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


class Steps:
    """The steps of each form with gpuinstall."""

    def __init__(self, container):
        self.container = container

    def command(self, *words):
        return succeed_in(self.container, *GPUINSTALL, *words)

    def install(self, version="2.0"):
        self.command("install", f"big=={version}", f"alpha=={version}")
        assert version_in(self.container) == version

    def sync(self):
        self.command("sync")
        assert version_in(self.container) == "1.0"

    def run(self):
        code = "import alpha; print(open(alpha.__file__).read())"
        assert self.command("run", "python", "-c", code).endswith("1.0\n")

    def kill(self):
        container = self.container
        for version in ("1.0", "2.0") * 5:
            words = ("install", f"big=={version}", f"alpha=={version}")
            kill_in(container, (*GPUINSTALL, *words), container.is_changing)
            if container.is_changing():
                return
        raise AssertionError("no command was killed during its change")

    def recover(self):
        self.container.number += 1
        self.command("sync")
        assert not self.container.is_changing()
        version_in(self.container)

    def rollback(self):
        self.install("1.0")
        self.install("2.0")
        self.container.number += 1
        self.command("env", "rollback")
        assert version_in(self.container) == "1.0"

    def remove(self):
        self.command("env", "remove", "--yes")
        assert self.container.run("test", "-e", ".venv/bin/python")[0]


class StepsOfTwo(Steps):
    """The steps in which two containers synchronize at once."""

    def sync(self):
        other = replace(self.container, number=100)
        commands = [one.start(*GPUINSTALL, "sync") for one in (self.container, other)]
        for one in commands:
            output, _ = one.communicate(timeout=300)
            assert one.returncode == 0, output
        super().sync()


def replay(steps):
    """Return the result of each step: empty, or the reason of a failure."""
    results = {}
    for name in STEPS:
        try:
            getattr(steps, name)()
            results[name] = ""
        except (AssertionError, ValueError) as error:  # noqa: PERF203  a step takes seconds
            results[name] = str(error) or "failed"
    return results


STEPS = ("sync", "run", "install", "kill", "recover", "rollback", "remove")


@pytest.fixture
def enter(project):
    """Return a function that creates a container of a form."""
    with ExitStack() as stack:

        def create(form):
            base = stack.enter_context(open_folder())
            for name in ("app", "upper", "work", "python"):
                (base / name).mkdir()
            source = replace(project, folder=base / "project")
            shutil.copytree(project.folder, source.folder, symlinks=True)
            if form == "copied image":
                shutil.copytree(source.folder, base / "copy", symlinks=True)
            if form in {"root of a user's project", "another user of the group"}:
                succeed(["chown", "-R", f"{USER}:{USER}", source.folder, base])
                succeed(["chmod", "-R", "g+w", source.folder, base])
            if form == "cache on another disk":
                stack.enter_context(mounted(base / "disk", "-t", "tmpfs", "none"))
            return Container(source, form, base)

        yield create


@pytest.mark.heavy
@pytest.mark.root
@pytest.mark.parametrize("form", FORMS)
def test_containers_use_and_recover_environments(enter, form):
    container = enter(form)
    status, reason = container.run("true")
    if status:
        pytest.skip(f"this cannot be mounted here: {reason}")
    kernel = None
    if form == "running kernel":
        code = "import alpha, time; time.sleep(600)"
        kernel = container.start(".venv/bin/python", "-c", code)
    is_two = form == "two containers at once"
    results = replay((StepsOfTwo if is_two else Steps)(container))
    if kernel:
        assert kernel.poll() is None
        kernel.kill()
        kernel.communicate()
    failed = {step: text for step, text in results.items() if text}
    if form == "read-only project":
        assert set(failed) == {"install", "kill", "rollback", "remove"}
    else:
        assert failed == {}
    assert not any("bug in gpuinstall" in text for text in results.values())
