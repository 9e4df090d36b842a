"""Tests of changes to a project while PyTorch's index does not respond."""

import os
import threading
import time

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.driver import A100, FakeDriver
from tests.lab.host import Answer
from tests.lab.wheels import make_wheel

SILENCE = 15
"""Seconds without data. The first response of a host has a fifth of them."""
FAILURES = ["silent", "refusing", "503", "offline"]


@pytest.fixture
def project(workshop, stand_in, play):
    """A project whose caches are a day old, and include the wheel of brush."""
    play(FakeDriver((A100,)))
    for name in ("painter", "brush"):
        make_wheel(stand_in.folder / "simple", name, "1.0")
    workshop.succeed("install", "torch", "painter", "brush", "--backend", "cu130")
    workshop.succeed("remove", "brush")
    day = time.time() - 86_400
    for path in (workshop.caches / "xdg").rglob("*"):
        os.utime(path, (day, day))
    return workshop.having(GPUINSTALL_SILENCE=str(SILENCE))


def stop(index, how):
    """Let the hosts of PyTorch's index fail."""
    for host in (index.torch, index.r2):
        if how == "refusing":
            host.close()
        elif how == "503":
            host.respond = lambda *_: Answer(503, b"busy", "text/plain")
        elif how == "silent":
            host.respond = lambda *_: threading.Event().wait(60)


@pytest.mark.parametrize("how", mostly_heavy(FAILURES, ["silent"]))
def test_changes_keep_torch_without_its_index(project, stand_in, how):
    [torch] = [line for line in locked(project) if "/torch-" in line]
    stop(stand_in, how)
    if how == "offline":
        project = project.having(GPUINSTALL_OFFLINE="1")
    for command in ("install brush", "remove painter", "lock painter"):
        start = time.monotonic()
        project.succeed(*command.split())
        # Other time limits are at least as long as the silence.
        assert time.monotonic() - start < SILENCE, command
        assert torch in locked(project)


def locked(project):
    return project.lock("pylock.cu130.toml").splitlines()
