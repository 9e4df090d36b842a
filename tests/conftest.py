"""The lab's fixtures and hypothesis' profile, for every folder of tests."""

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
    deadline=None,  # a busy machine is no failure
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # every clone tries the same examples
    max_examples=25,  # make torture gives the readers of documents minutes
)
settings.load_profile("gpuinstall")
disk.play()
own_gpus.play()


def pytest_addoption(parser):
    """Add the option that rewrites stories."""
    parser.addoption(
        "--accept",
        action="store_true",
        help="rewrite the expected output of stories; review the diff",
    )


def pytest_configure(config):
    """Leave the user's home; its workers are started in the one that the session makes. A blank in it is no fault."""
    if hasattr(config, "workerinput"):
        return
    if "not heavy" in config.getoption("-m"):
        config.add_cleanup(memory.move_in())
    # The processes that run kernels write no bytecode, so each would compile these modules.
    compileall.compile_dir(ROOT / "src", quiet=1)
    home = Path(tempfile.mkdtemp(prefix="a home "))
    own_home.move_in(home)
    compiler.provide(home / "compiler")
    # Without a blank: LD_PRELOAD is a list.
    hidden = Path(tempfile.mkdtemp(prefix="gpuinstall-"))
    if config.getoption("-m") != "gpu":
        own_gpus.hide(hidden)
        # Programs that start after the folder has gone would warn.
        config.add_cleanup(partial(os.environ.pop, "LD_PRELOAD", None))
    for folder in (home, hidden):
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


def pytest_collection_finish():
    """Leave thousands of tests out of what the collector walks while they run: a tenth of their time."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are processors: a test of processes waits for a fifth of its time."""
    return (os.cpu_count() or 1) + 1


for _name in ("SIGINT", "SIGHUP"):
    _number = getattr(signal, _name, None)
    if _number and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number, signal.SIG_DFL
        )  # a job in the background hands down that it ignores them
