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

from tests.frozen import GPUINSTALL
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.mounts import mounted
from tests.lab.nobody import open_folder
from tests.lab.processes import succeed
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


def kill_install(start, is_changing):
    """Start installations until one is killed during its change."""
    for version in ("2.0", "1.0") * 5:
        running = start("install", f"big=={version}", f"alpha=={version}")
        while not is_changing() and running.poll() is None:
            time.sleep(0.0005)
        time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        if is_changing():
            return
    pytest.fail("no command was killed during its change")


RECOVERING = (("run", "python", "-V"), ("sync",), ("env", "rollback"))


@pytest.mark.root
@pytest.mark.parametrize("words", mostly_heavy(RECOVERING, RECOVERING[:1]))
def test_next_container_recovers_a_killed_change(project, words):
    journal = project.folder / ".venv.gpuinstall" / "changing"
    first = with_new_home(project, "first")
    kill_install(lambda *words: started(first, words, (*HOST, "first")), journal.exists)
    verified = project.run("verify")
    assert verified.status == 4
    assert "gpuinstall env rollback" in verified.err
    second = with_new_home(project, "second")
    running = started(second, words, (*HOST, "second"))
    assert running.wait() == 0
    assert not journal.exists()
    assert faults(project.folder / ".venv", FILES) == []
    second.succeed("install", "big==2.0", "alpha==2.0")
    second.succeed("install", "big==1.0", "alpha==2.0")
    with_new_home(project, "third").succeed("env", "rollback")
    assert faults(project.folder / ".venv", FILES) == []
    assert project.python("import alpha; print(open(alpha.__file__).read())") == "2.0"
    assert project.python("import big; print(open(big.__file__).read())") == "2.0"


FORMS = (
    "another user of the group",
    "root of a user's project",
    "cache on another disk",
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
        return self.base / "app"

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
        lines = [f"hostname host{self.number}", f"mount --bind {source} {folder}"]
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
        return (self.project.folder / ".venv.gpuinstall" / "changing").exists()


@pytest.fixture
def enter(project):
    """Return a function that creates a container of a form."""
    with ExitStack() as stack:

        def create(form):
            base = stack.enter_context(open_folder())
            for name in ("app", "python"):
                (base / name).mkdir()
            source = replace(project, folder=base / "project")
            shutil.copytree(project.folder, source.folder, symlinks=True)
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

    def command(*words):
        status, output = container.run(*GPUINSTALL, *words)
        assert status == 0, f"{words}: {status}: {output[-1500:]}"
        return output

    def find_version():
        status, output = container.run(sys.executable, "-c", CHECK, FILES)
        assert status == 0, output
        return output.strip()

    def install(version):
        command("install", f"big=={version}", f"alpha=={version}")
        assert find_version() == version

    command("sync")
    assert find_version() == "1.0"
    code = "import alpha; print(open(alpha.__file__).read())"
    assert command("run", "python", "-c", code).endswith("1.0\n")
    install("2.0")
    kill_install(
        lambda *words: container.start(*GPUINSTALL, *words), container.is_changing
    )
    container.number += 1
    command("sync")
    assert not container.is_changing()
    find_version()
    install("1.0")
    install("2.0")
    container.number += 1
    command("env", "rollback")
    assert find_version() == "1.0"
    command("env", "remove", "--yes")
    assert container.run("test", "-e", ".venv/bin/python")[0]
    if kernel:
        assert kernel.poll() is None
        kernel.kill()
        kernel.communicate()
