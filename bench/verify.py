"""What ``verify`` costs against importing the torch that it verifies: the CPU build, from pip's find-links."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import uv
from tests.lab.environments import VERSION

from bench.pairs import paired, run, seconds
from bench.row import Row, in_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

WHAT = "verify, against import torch"
MOST_S = 2.0


def rows() -> Iterator[Row]:
    """Take turns between the quick checks and a bare import, in one environment."""
    find_links = os.environ.get("PIP_FIND_LINKS", "")
    if not any(Path(find_links).glob(f"torch-{VERSION}-*.whl")):
        yield Row(WHAT, "", "", "", f"(no torch {VERSION} in PIP_FIND_LINKS)")
        return
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "env" / "bin" / "python"
        run([uv.find_uv_bin(), "venv", "-q", "--no-project", "--python", sys.executable, python.parents[1]])
        torch = ["--find-links", find_links, f"torch=={VERSION}"]
        run([uv.find_uv_bin(), "pip", "install", "-q", "--python", python, *torch])
        ours: list[str | Path] = [sys.executable, "-m", "gpuinstall", "verify", "--python", python]
        pair = paired(lambda: seconds(ours), lambda: seconds([python, "-c", "import torch"]), 5)
    more = pair.ours - pair.beside
    yield Row(
        WHAT, in_seconds(pair.ours), in_seconds(pair.beside), f"+{more:.2f} s", f"≤ +{MOST_S:g} s", more <= MOST_S
    )
