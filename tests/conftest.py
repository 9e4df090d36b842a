"""Shared fixtures and the Hypothesis profile of all tests."""

import compileall
import gc
import os
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.lab import compiler, disk, memory, own_gpus, own_home
from tests.lab.clone import ROOT

pytest_plugins = [
    "tests.lab.fixtures",
    "tests.lab.index_fixtures",
    "tests.lab.advice",
    "tests.lab.skips",
]

settings.register_profile(
    "gpuinstall",
    deadline=None,  # A busy machine must not fail a test.
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # Every run tries the same examples.
    max_examples=25,  # ``make torture`` gives each document reader minutes.
)
settings.load_profile("gpuinstall")
disk.play()
own_gpus.play()


def pytest_addoption(parser):
    """Add the option --accept, which rewrites expected output of stories."""
    parser.addoption(
        "--accept",
        action="store_true",
        help="rewrite the expected output of stories; review the diff",
    )


def pytest_configure(config):
    """Replace the user's home; workers inherit the session's home."""
    if hasattr(config, "workerinput"):
        return
    if "not heavy" in config.getoption("-m"):
        config.add_cleanup(memory.move_in())
    # Kernel processes write no bytecode, so each would compile these modules.
    compileall.compile_dir(ROOT / "src", quiet=1)
    home = Path(tempfile.mkdtemp(prefix="a home "))
    own_home.move_in(home)
    compiler.provide(home / "compiler")
    # LD_PRELOAD is a list, so the path must contain no space.
    hidden = Path(tempfile.mkdtemp(prefix="gpuinstall-"))
    if config.getoption("-m") != "gpu":
        own_gpus.hide(hidden)
        # Programs that start after the folder's removal would warn.
        config.add_cleanup(partial(os.environ.pop, "LD_PRELOAD", None))
    for folder in (home, hidden):
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_finish():
    """Exclude collected tests from garbage collection (10% faster)."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Use one more worker than processors, because many tests wait."""
    return (os.cpu_count() or 1) + 1


for _name in ("SIGINT", "SIGHUP"):
    _number = getattr(signal, _name, None)
    if _number and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number, signal.SIG_DFL
        )  # A background job's children inherit ignored signals.
