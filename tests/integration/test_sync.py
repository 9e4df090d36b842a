"""Tests of the imports of commands that change nothing."""

import re
import sys

from gpuinstall.base.process import run
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
OWN_MODULES = 127
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


WATCHING = f"""
import os, runpy, sys
def watch(event, words):
    if event == "open" and words[0] == os.environ["PIP_CONFIG_FILE"]:
        os.write(2, b"read pip.conf\\n")
sys.addaudithook(watch)
runpy.run_path({str(FOLDER)!r}, run_name="__main__")
"""


def test_pip_configuration_is_read_once(workshop, play):
    play(FakeDriver((A100,)))
    workshop.document("lock", "torch==2.10.0", "--target", "cu130")
    file = workshop.folder.with_name("pip.conf")
    file.write_text("[global]\nextra-index-url = https://index.example/\n", "utf-8")
    variables = {**workshop.environment, "PIP_CONFIG_FILE": str(file)}
    for words in (("sync",), ("install",), ("plan",)):
        done = run(
            [sys.executable, "-c", WATCHING, *words],
            env=variables,
            cwd=workshop.folder,
        )
        assert done.err.count("read pip.conf") == 1, (words, done.err)
