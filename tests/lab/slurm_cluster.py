"""A real Slurm cluster of namespaces, each with its own fake driver."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpuinstall.base.process import Finished
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.driver import FakeDriver, build, describe
from tests.lab.programs import write_program

SCRIPTS = Path(__file__).parent / "slurm"
CONTROLLER = "10.77.0.1"
SERVE = f"""\
import shlex, threading
from pathlib import Path
from tests.lab import host
host.ADDRESS = "{CONTROLLER}"
from tests.lab.index import SimulatedIndex
for name, value in SimulatedIndex(Path("/mnt/index")).environment().items():
    print(f"export {{name}}={{shlex.quote(value)}}", flush=True)
threading.Event().wait()
"""
"""Serves the index to all nodes, and prints shell lines for commands first."""

_PREPARATION = f"""\
PYTHONPATH={ROOT} {shlex.quote(sys.executable)} /mnt/serve.py > /mnt/index.sh &
until grep -q EXTENSION_INDEX /mnt/index.sh; do sleep 0.1; done
. /mnt/index.sh
export PATH=/mnt/bin:$PATH HOME=/root COLUMNS=120 LAB_GPUS=/etc/lab/gpus.txt
export LD_LIBRARY_PATH=/mnt/libraries/nvml:/mnt/libraries/cuda
cd /mnt/project
"""

BASE = Path(os.environ.get("LAB_SLURM", "/tmp/gpuinstall-slurm-lab"))  # noqa: S108  root's own


def needs_slurm(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that runs on the cluster, with reasons to skip it."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    for mark in (
        pytest.mark.heavy,
        pytest.mark.root,
        pytest.mark.skipif(
            not (is_root and shutil.which("unshare")),
            reason="requires root and unshare, because each node is a set of namespaces",
        ),
        pytest.mark.skipif(
            not (BASE / "base.tar").exists(),
            reason=f"needs Slurm's packages: tests/lab/slurm/base.sh {BASE} (LAB_SLURM names another folder)",
        ),
    ):
        test = mark(test)
    return test


def run_on_slurm(
    drivers: Mapping[str, FakeDriver | None], index: Path, script: str
) -> Finished:
    """Run a script on the controller of a new cluster, in a shared folder.

    Args:
        drivers: The driver of each node (n1, n2, …). A node without one never responds.
        index: The wheels for all nodes.
        script: Shell lines, in which ``gpuinstall`` is a command.
    """
    # Tests are also collected on Windows, which lacks this module.
    from fcntl import LOCK_EX, flock

    share = BASE / "share"
    # Clusters use the same mounts, so only one can run.
    with (BASE / "lock").open("w") as only:
        flock(only, LOCK_EX)
        shutil.rmtree(share, ignore_errors=True)
        _fill(share, drivers, index)
        (share / "script.sh").write_text(_PREPARATION + script, "utf-8")
        words = [
            "bash",
            str(SCRIPTS / "cluster.sh"),
            str(BASE),
            str(len(drivers)),
            "/mnt/script.sh",
        ]
        subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=600,
            check=False,
        )
        out, err, status = (
            (share / name).read_text("utf-8") for name in ("out", "err", "status")
        )
    return Finished(("bash", "-c", script), int(status), out, err)


def _fill(share: Path, drivers: Mapping[str, FakeDriver | None], index: Path):
    for name in ("gpus", "project"):
        (share / name).mkdir(parents=True)
    for node, driver in drivers.items():
        if driver is None:
            continue
        (share / "gpus" / f"{node}.txt").write_text(describe(driver), "utf-8")
    build(share / "libraries")
    shutil.copytree(index, share / "index")
    (share / "serve.py").write_text(SERVE, "utf-8")
    write_program(share / "bin" / "gpuinstall", f'exec {shlex.join(GPUINSTALL)} "$@"')
