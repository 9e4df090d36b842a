"""Power cuts on an ext4 file system, during and after changes.

Like xfstests, the test shuts the file system down: nothing more is written,
not even the log.
"""

import fcntl
import os
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from gpuinstall.base import process
from tests.lab.driver import NO_GPU
from tests.lab.environments import packages
from tests.lab.whole import faults, publish_big, started, write_notes

FILES = 300
EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_ITS_LOG = 2
CHANGES = (
    ("install", "big==2.0", "alpha==2.0"),
    ("install", "torch==2.13.0"),
    ("install", "alpha==2.0"),
    ("remove", "big"),
)
DURING = (0.0, 0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
"""Times of power cuts, in seconds after the journal is created."""
AFTER = (0, 0, 0, 0.2, 0.5, 1, 2, 3, 4, 5)
"""Times of power cuts, in seconds after the end of the command."""

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.root,
    pytest.mark.skipif(sys.platform != "linux", reason="requires ext4 on Linux"),
]


class Disk:
    """An ext4 image and its mount point."""

    def __init__(self, image, place):
        self.image, self.place = image, place

    @contextmanager
    def mounted(self):
        self.place.mkdir(parents=True, exist_ok=True)
        done = process.run(["mount", "-o", "loop", self.image, self.place])
        if not done.ok:
            pytest.skip(f"no image can be mounted here: {done.err.strip()}")
        try:
            yield
        finally:
            self.unmount()

    def unmount(self):
        """Unmount the disk, which killed processes may use for a moment."""
        for _ in range(100):
            if self.place.is_mount():
                process.run(["umount", self.place])
            if not process.run(["losetup", "--associated", self.image]).out:
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.image} is still in use")

    def cut_the_power(self):
        descriptor = os.open(self.place, os.O_RDONLY)
        flags = WITHOUT_ITS_LOG.to_bytes(4, sys.byteorder)
        fcntl.ioctl(descriptor, EXT4_IOC_SHUTDOWN, flags)
        os.close(descriptor)


@pytest.fixture
def disk(tmp_path):
    if os.getuid() or shutil.which("mkfs.ext4") is None:
        pytest.skip("requires root and mkfs.ext4")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(400_000_000)
    assert process.run(["mkfs.ext4", "-q", image]).ok
    return Disk(image, tmp_path / "disk")


@pytest.fixture
def project(workshop, stand_in_folder, disk, play):
    """Create an environment, uv's cache, and records on the disk."""
    play(NO_GPU)
    publish_big(stand_in_folder / "simple", FILES)
    with disk.mounted():
        folder = disk.place / "project"
        folder.mkdir()
        caches = disk.place / "caches"
        shutil.copytree(workshop.caches, caches, symlinks=True)
        project = replace(workshop, folder=folder, caches=caches)
        project.document("install", "torch==2.14.1", "big==1.0", "alpha==1.0")
        write_notes(folder / ".venv")
        process.run(["sync"])
    return project


def test_power_failure_leaves_a_repairable_environment(project, disk, tmp_path, capsys):
    found = Counter[str]()
    wrong = []
    moments = [("during", at) for at in DURING] + [("after", at) for at in AFTER]
    whole = disk.image
    for number, (when, at) in enumerate(moments):
        words = CHANGES[number % len(CHANGES)]
        disk.image = tmp_path / "copy"
        process.run(["cp", "--sparse=always", whole, disk.image])
        with disk.mounted():
            status = until_the_cut(project, words, when, at, disk)
        with disk.mounted():
            told = f"{' '.join(words)} -> {status}, {at} s {when}"
            venv = project.folder / ".venv"
            if when == "after":
                missing = versions_missing(venv, words)
                wrong += [f"{told}: {name} is not there" for name in missing]
                wrong += [f"{told}: {fault}" for fault in faults(venv, FILES)]
            else:
                found.update(faults(venv, FILES) or ["nothing"])
            wrong += [f"{told}, healed: {fault}" for fault in healed(project)]
            empty = [*venv.rglob("*.dist-info/RECORD"), venv / "pyvenv.cfg"]
            wrong += [f"{told}: {f} is empty" for f in empty if not f.stat().st_size]
    with capsys.disabled():
        sys.stdout.write(f"\n{len(moments)} moments; found during a change: {found}\n")
    assert wrong == [], "\n".join(wrong)


def until_the_cut(project, words, when, at, disk):
    """Run a command until the power cut, and return its exit status."""
    running = started(project, words)
    changing = project.folder / ".venv.gpuinstall" / "changing"
    if when == "after":
        running.wait()
    else:
        while not changing.exists() and running.poll() is None:
            time.sleep(0.0005)
    time.sleep(at)
    disk.cut_the_power()
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    return running.wait()


def versions_missing(venv, words):
    """Return the versions of which installed files are missing."""
    names = [word.replace("==", "-") for word in words[1:] if "==" in word]
    return [name for name in names if not [*packages(venv).glob(f"{name}*.dist-info")]]


def healed(project):
    """Yield the faults that remain after the next commands."""
    for words in (("sync",), ("install", "big==2.0", "alpha==2.0")):
        for _ in range(5):
            done = project.run(*words)
            clean = [line for line in done.err.splitlines() if "cache clean" in line]
            if done.status == 0 or not clean:
                break
            command = clean[0].partition("do")[2].partition("#")[0].split()
            process.run(command, env=project.environment)
        if done.status:
            yield f"{' '.join(words)}: {done.err}"
        yield from faults(project.folder / ".venv", FILES)
