"""Mounted file systems and folders for a test."""

import os
import shutil
from contextlib import contextmanager

import pytest

from gpuinstall.base import process


@contextmanager
def mounted(place, *words):
    """Mount with mount(8) arguments, and create a missing mount point."""
    if not place.exists():
        place.mkdir(parents=True)
    if os.getuid() or shutil.which("mount") is None:
        pytest.skip("mounting requires root")
    done = process.run(["mount", *words, place])
    if not done.ok:
        pytest.skip(f"this cannot be mounted here: {done.err.strip()}")
    try:
        yield place
    finally:
        process.run(["umount", "-l", place])
