"""Measure ``plan`` as a process and as a call."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import Row, paired, seconds, single, timed
from gpuinstall.api import Machine, Request, choose, load_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = {
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "libc": "glibc",
    "glibc": "2.36",
    "pythons": ["3.11.7", "3.12.1"],
    "driver": {"version": "535.183.01", "cuda": "12.2"},
    "gpus": [
        {"index": at, "name": "NVIDIA A100-SXM4-80GB", "compute_capability": "8.0"}
        for at in range(8)
    ],
}


def rows() -> Iterator[Row]:
    """Measure ``plan`` against ``pip --version``, and the choice alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "machine.json"
        file.write_text(json.dumps(MACHINE), encoding="utf-8")
        python = [sys.executable, "-m"]
        plan = [*python, "gpuinstall", "plan", "--machine", str(file)]
        pip = [*python, "pip", "--version"]
        pair = paired(partial(seconds, plan, cwd=folder), partial(seconds, pip), 25)
        yield pair.times("plan --machine FILE, against pip --version", 1)
    yield single("one choice, in process", _choice())


def _choice() -> float:
    choice = partial(choose, Machine.from_dict(MACHINE), Request(), load_catalog())
    return statistics.median(timed(choice) for _ in range(200))
