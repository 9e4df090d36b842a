"""What a checked command costs: a script with inline metadata again, and a command in a folder's environment."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.environments import VERSION

from bench.harness import PYTHON, Row, paired, real_torch, run, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.harness import Words

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
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        ours = [sys.executable, "-m", "gpuinstall"]
        run([*ours, "run", "script.py"], env=environment, cwd=folder)
        prefix = (folder / "prefix").read_text(encoding="utf-8")
        python = Path(prefix) / "bin" / "python"
        yield _row(
            WHAT,
            [*ours, "run", "script.py"],
            [python, "script.py"],
            environment,
            folder,
        )
        install = [*ours, "install", f"torch=={VERSION}", "--python", PYTHON]
        run(install, env=environment, cwd=folder)
        python = folder / ".venv" / "bin" / "python"
        yield _row(
            COMMAND,
            [*ours, "run", "python", "-c", "pass"],
            [python, "-c", "pass"],
            environment,
            folder,
        )


def _row(
    what: str,
    ours: Words,
    beside: Words,
    environment: Mapping[str, str],
    folder: Path,
) -> Row:
    timed = partial(seconds, env=environment, cwd=folder)
    pair = paired(partial(timed, ours), partial(timed, beside), 15)
    return pair.more(what, MOST_S)
