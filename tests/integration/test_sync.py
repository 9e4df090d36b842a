"""How soon a command starts that finds nothing to do."""

import re
import subprocess
import sys

from tests.frozen import FOLDER
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.workshop import Workshop

A100 = FakeDriver(
    (FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2"),)
)


HEAVY = {
    "ctypes",
    "email",
    "gpuinstall.install.unpack",
    "gpuinstall.wheels.learned.reader",
    "gpuinstall.lock.solve.solve",
    "gpuinstall.lock.file.fetch",
    "gpuinstall.lock.file.write",
    "gpuinstall.verify.cover",
    "html.parser",
    "http.client",
    "pynvml",
    "requests",
    "rich",
    "socket",
    "ssl",
    "urllib.request",
    "zipfile",
}


def test_nothing_heavy_is_imported_if_nothing_is_to_do(stand_in, tmp_path, play):
    play(A100)
    (tmp_path / "project").mkdir()
    team = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    team.document("lock", "torch==2.10.0", "--target", "cu130", "--target", "cpu")
    team.document("sync")
    heavy = {}
    # With --venv a start is checked in full each time.
    for words in (("sync",), ("install",), ("run", "--venv", ".venv", "true")):
        program = [sys.executable, "-X", "importtime", str(FOLDER)]
        done = subprocess.run(
            [*program, *words],
            env=team.environment,
            cwd=team.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        modules = set(
            re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE)
        )
        assert "gpuinstall.lock.file.fit" in modules
        if HEAVY & modules:
            heavy[words[0]] = sorted(HEAVY & modules)
    assert heavy == {}
