"""Changes in which one system call fails, as on a broken disk or NFS."""

import errno
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from gpuinstall.base import process
from tests.frozen import GPUINSTALL
from tests.lab.driver import COMPILE, HERE, NO_GPU
from tests.lab.environments import packages
from tests.lab.wheels import make_wheel
from tests.lab.whole import faults, publish_big, write_notes

FILES = 30
FAILURES = (
    *(("rename", name) for name in ("EIO", "ESTALE", "EROFS")),
    *(("mkdir", name) for name in ("EMLINK", "ENOSPC")),
    *(("rmdir", name) for name in ("EBUSY", "EIO")),
    *(("unlink", name) for name in ("EPERM", "EBUSY")),
    ("unlinkat", "EBUSY"),
    *(("linkat", name) for name in ("EMLINK", "EIO")),
    *(("fsync", name) for name in ("EIO", "ENOSPC")),
    *(("syncfs", name) for name in ("EIO", "ENOSYS")),
    *(("flock", name) for name in ("ENOLCK", "EIO")),
    *(("write", name) for name in ("ENOSPC", "ESTALE")),
    *(("read", name) for name in ("EIO", "ESTALE")),
)
MOMENTS = 8
"""The number of calls of a function that fail, one per command."""
CHANGES = (
    ("install", "big==2.0", "alpha==2.0"),
    ("install", "big==1.0", "alpha==1.0"),
)

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform != "linux", reason="requires LD_PRELOAD"),
]


@pytest.fixture
def project(workshop, stand_in_folder, play):
    play(NO_GPU)
    publish_big(stand_in_folder / "simple", FILES)
    workshop.document("install", "torch==2.14.1", "big==1.0", "alpha==1.0")
    write_notes(workshop.folder / ".venv")
    return workshop


@pytest.fixture
def run_failing(project, tmp_path):
    """Return a function that runs a command with a failing call."""
    library = tmp_path / "failing.so"
    done = process.run([*COMPILE, "-o", library, HERE / "failing.c", "-ldl"])
    assert done.ok, done.err

    def run(words, call, name, number):
        calls = tmp_path / "calls"
        calls.write_text("")
        done = subprocess.run(
            [*GPUINSTALL, *words],
            cwd=project.folder,
            env={
                **project.environment,
                "LD_PRELOAD": str(library),
                "LAB_CALL": call,
                "LAB_NUMBER": str(number),
                "LAB_ERRNO": str(getattr(errno, name)),
                "LAB_CALLS": str(calls),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr, calls.stat().st_size

    return run


def test_failing_call_is_never_a_bug(project, run_failing, capsys):
    venv = project.folder / ".venv"
    wrong, ends = [], []
    changes = [*CHANGES] * len(FAILURES) * MOMENTS
    for call, name in FAILURES:
        _, _, count = run_failing(changes.pop(), call, name, 0)
        numbers = {1, *(count * part // MOMENTS for part in range(1, MOMENTS))}
        for number in sorted(numbers - {0}):
            words = changes.pop()
            status, error, seen = run_failing(words, call, name, number)
            ends.append(status)
            told = f"{call} {name} {number}/{count} {' '.join(words)} -> {status}"
            if "a bug in" in error or "Traceback" in error or "Warning" in error:
                wrong.append(f"{told}: {error}")
            if status not in {0, 4}:
                wrong.append(f"{told}: not an error of the disk: {error}")
            if status and name == "ENOSYS":
                wrong.append(f"{told}: a sandbox without syncfs: {error}")
            if status and seen < number:
                wrong.append(f"{told}: the call did not occur: {error}")
            healed = project.run("sync")
            if healed.status:
                wrong.append(f"{told}, sync: {healed.err}")
            if call == "rmdir":
                # A metadata folder that cannot be removed stays, and is empty.
                for folder in packages(venv).glob("*.dist-info"):
                    with suppress(OSError):
                        folder.rmdir()
            wrong += [f"{told}, after sync: {one}" for one in faults(venv, FILES)]
    with capsys.disabled():
        statuses = {status: ends.count(status) for status in set(ends)}
        sys.stdout.write(f"\n{len(ends)} failing calls, exit codes {statuses}\n")
    assert wrong == [], "\n".join(wrong)


def test_names_of_files_do_not_depend_on_locale(workshop, stand_in_folder, play):
    play(NO_GPU)
    simple = stand_in_folder / "simple"
    for version in ("1.0", "2.0"):
        modules = {"alpha/__init__.py": version, "alpha/caf\xe9.py": version}
        make_wheel(simple, "alpha", version, modules=modules)
    variables = {**workshop.variables, "LC_ALL": "C", "PYTHONUTF8": "0"}
    project = replace(workshop, variables=variables)
    for words in (
        ("install", "alpha==1.0"),
        ("install", "alpha==2.0"),
        ("env", "rollback"),
        ("remove", "alpha"),
        ("verify",),
        ("env", "remove", "--yes"),
    ):
        done = project.started(*words)
        assert done.status == 0, f"{words}: {done.err}"
    assert not (project.folder / ".venv").exists()
