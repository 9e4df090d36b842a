"""Tests of the imports of commands that change nothing."""

import re
import sys

from tests.frozen import FOLDER
from tests.lab.driver import A100, FakeDriver
from tests.lab.processes import succeed

HEAVY = {
    "asyncio",
    "base64",
    "concurrent.futures",
    "csv",
    "ctypes",
    "email",
    "filecmp",
    "glob",
    "gpuinstall.base.poetry",
    "gpuinstall.base.uv",
    "gpuinstall.catalog.failures.table",
    "gpuinstall.install.environment_lock",
    "gpuinstall.install.file_change",
    "gpuinstall.install.selection",
    "gpuinstall.install.transaction",
    "gpuinstall.install.unpack",
    "gpuinstall.wheels.learned.reader",
    "gpuinstall.lock.resolve.locks",
    "gpuinstall.lock.uv.fetch",
    "gpuinstall.lock.write",
    "gpuinstall.plan.relax",
    "gpuinstall.sources.web",
    "gpuinstall.sources.workspace",
    "gpuinstall.verify.files",
    "gpuinstall.verify.kernel_run",
    "gpuinstall.verify.verdict",
    "html.parser",
    "http.client",
    "pynvml",
    "requests",
    "rich",
    "secrets",
    "socket",
    "ssl",
    "tempfile",
    "tomli_w",
    "urllib.request",
    "zipfile",
}
OWN_MODULES = 128
"""The maximum number of gpuinstall's modules, without vendors' modules."""


def test_sync_imports_no_heavy_modules(workshop, play):
    play(FakeDriver((A100,)))
    workshop.document("lock", "torch==2.10.0", "--target", "cu130", "--target", "cpu")
    workshop.document("sync")
    heavy = {}
    # With --venv, the start is checked completely.
    for words in (("sync",), ("install",), ("run", "--venv", ".venv", "true")):
        program = [sys.executable, "-X", "importtime", str(FOLDER)]
        done = succeed(
            [*program, *words], env=workshop.environment, cwd=workshop.folder
        )
        modules = set(
            re.findall(r"^import time:.*\| +([\w.]+)$", done.err, re.MULTILINE)
        )
        assert "gpuinstall.lock.file.fit" in modules
        assert len([one for one in modules if "gpuinstall" in one]) <= OWN_MODULES
        if HEAVY & modules:
            heavy[words[0]] = sorted(HEAVY & modules)
    assert heavy == {}
