"""What a checked command costs: a script with inline metadata again, and a command in a folder's environment."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.environments import VERSION

from bench.harness import PYTHON, Row, paired, real_torch, run, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

WHAT = "run script.py again, against its python"
COMMAND = "run python again, against the activated one"
MOST_S = 0.06
SCRIPT = f"""# /// script
# requires-python = "=={PYTHON}.*"
# dependencies = ["torch=={VERSION}"]
# ///
import pathlib, sys
pathlib.Path("prefix").write_text(sys.prefix)
"""


def rows() -> Iterator[Row]:
    """Take turns, where the environment is there and proven; the torch is the CPU build of pip's find-links."""
    if real_torch() is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
        own = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
        ours = [sys.executable, "-m", "gpuinstall"]
        run([*ours, "run", "script.py"], env={**os.environ, **own}, cwd=folder)
        python = Path((folder / "prefix").read_text(encoding="utf-8")) / "bin" / "python"
        yield _row(WHAT, [*ours, "run", "script.py"], [python, "script.py"], own, folder)
        run(
            [*ours, "install", f"torch=={VERSION}", "--python", PYTHON],
            env={**os.environ, **own},
            cwd=folder,
        )
        python = folder / ".venv" / "bin" / "python"
        yield _row(
            COMMAND, [*ours, "run", "python", "-c", "pass"], [python, "-c", "pass"], own, folder
        )


def _row(
    what: str, ours: list[str], beside: list[str | Path], own: dict[str, str], folder: Path
) -> Row:
    pair = paired(
        lambda: seconds(ours, env={**os.environ, **own}, cwd=folder),
        lambda: seconds(beside, env={**os.environ, **own}, cwd=folder),
        15,
    )
    return pair.more(what, MOST_S)
