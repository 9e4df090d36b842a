"""Tests that interrupt a change by signals, full disks, and file limits."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import NamedTuple

import pytest

from gpuinstall.base import process
from tests.lab.driver import NO_GPU
from tests.lab.mounts import mounted
from tests.lab.whole import faults, publish_big, started, write_notes

FILES = 300
CHANGES = (
    ("install", "big==2.0", "alpha==2.0"),
    ("install", "torch==2.13.0", "big==1.0"),
    ("remove", "big"),
    ("install", "torch==2.14.1", "big==2.0", "alpha==1.0"),
)
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
KILOBYTES = (0, 8, 32, 64, 128, 300, 600, 900, 1200, 2500)
INODES = (0, 2, 8, 20, 50, 150, 300, 400, 600, 900)
FILE_SIZES = (0, 512, 1024, 2048, 4096, 8192, 16384, 65536)
PARTS = 8
"""The number of times during a command at which it is interrupted."""

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform != "linux", reason="requires Linux mounts"),
]


@pytest.fixture
def project(workshop, stand_in_folder, play):
    """Create an environment with user files on a small disk."""
    play(NO_GPU)
    publish_big(stand_in_folder / "simple", FILES)
    options = "size=100m,nr_inodes=20000"
    with mounted(workshop.folder, "-t", "tmpfs", "-o", options, "tmpfs"):
        workshop.document("install", "torch==2.13.0")
        workshop.document("install", "torch==2.14.1", "big==1.0", "alpha==1.0")
        write_notes(workshop.folder / ".venv")
        yield workshop


class Hindrance(NamedTuple):
    """An interruption of a command."""

    what: str
    before: Callable[[], object] = bool
    """A function that prepares the environment before the command."""
    words: tuple[str, ...] = ()
    """A function that starts the command."""
    at: float = 0
    """The seconds from the start of the command to the interruption."""
    then: Callable[[int], object] = bool
    """A function that interrupts the process."""
    is_put_back: bool = True
    """Whether the interrupted command itself can roll back its change."""


def hindrances(folder, seconds):
    """Yield all interruptions of commands with this duration."""
    moments = [seconds * (part + 0.5) / PARTS for part in range(PARTS)]
    for name in SIGNALS:
        number = getattr(signal, name)
        for at in moments:
            then = partial(end_group, number)
            yield Hindrance(f"{name} after {at:.1f} s", at=at, then=then)
    for count in KILOBYTES:
        yield Hindrance(f"{count} kB free", partial(fill, folder, count))
    for count in INODES:
        yield Hindrance(f"{count} inodes free", partial(use_up_inodes, folder, count))
    for size in FILE_SIZES:
        words = ("prlimit", f"--fsize={size}")
        yield Hindrance(f"files of {size} bytes", words=words)
    for at in moments:
        then = partial(make_read_only, folder)
        what = f"read-only after {at:.1f} s"
        yield Hindrance(what, at=at, then=then, is_put_back=False)


def test_interrupted_change_leaves_one_complete_environment(project, capsys):
    folder, venv = project.folder, project.folder / ".venv"
    began = time.monotonic()
    started(project, CHANGES[-1]).wait()
    seconds = time.monotonic() - began
    ends = []
    wrong = []
    for one, words in zip(hindrances(folder, seconds), cycle(CHANGES), strict=False):
        one.before()
        running = started(project, words, one.words)
        time.sleep(one.at)
        one.then(running.pid)
        ends.append(running.wait())
        told = f"{one.what}, {' '.join(words)} -> {ends[-1]}"
        if one.is_put_back:
            wrong += [f"{told}: {fault}" for fault in faults(venv, FILES)]
        process.run(["mount", "-o", "remount,rw", folder])
        for file in folder.glob("filler*"):
            file.unlink()
        healed = project.run("sync")
        if healed.status != 0:
            wrong.append(f"{told}, sync: {healed.err}")
        wrong += [f"{told}, after sync: {fault}" for fault in faults(venv, FILES)]
    with capsys.disabled():
        sys.stdout.write(f"\n{len(ends)} moments, exit codes {Counter(ends)}\n")
    assert wrong == []


def end_group(number, process_id):
    """Send a signal to a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process_id, number)


def fill(folder, kilobytes):
    """Fill a disk until this number of kB is free."""
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize - kilobytes * 1024
    with (folder / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free)


def use_up_inodes(folder, count):
    """Fill a disk until this number of inodes is free."""
    for number in range(os.statvfs(folder).f_favail - count):
        (folder / f"filler{number}").touch()


def make_read_only(folder, _process_id):
    """Remount a disk read-only once no file is open for writing."""
    while not process.run(["mount", "-o", "remount,ro", folder]).ok:
        time.sleep(0.01)
