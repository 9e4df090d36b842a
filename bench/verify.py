"""What ``verify`` costs against importing the torch that it verifies: the CPU build, from pip's find-links."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import GPUINSTALL, UV, Row, paired, real_torch, run, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator


def rows() -> Iterator[Row]:
    """Take turns between the quick checks and a bare import, in one environment."""
    wheel = real_torch()
    if wheel is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "env"
        python = environment / "bin" / "python"
        run([UV, "venv", "-q", "--no-project", "--python", sys.executable, environment])
        run([UV, "pip", "install", "-q", "--python", python, wheel])
        verify = partial(seconds, [GPUINSTALL, "verify", "--python", python])
        import_torch = partial(seconds, [python, "-c", "import torch"])
        pair = paired(verify, import_torch, 5)
    yield pair.more("verify, against import torch", 2.0)
