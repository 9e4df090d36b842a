"""What a checked command costs: a script again, a command in a folder's environment, ``run --any`` and an image's start."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.container import can_contain, contained
from tests.lab.driver import FakeDriver, FakeGpu, build
from tests.lab.driver import environment as played
from tests.lab.environments import VERSION
from tests.lab.index import StandInIndex
from tests.lab.releases import LINUX, catalog_index

from bench.harness import PYTHON, Row, paired, real_torch, run, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.harness import Words

WHAT = "run script.py again, against its python"
COMMAND = "run python again, against the activated one"
ANY = "run --any, against its python"
IMAGE = "an image's entry point, against its command"
MOST_S = 0.06
MOST_ANY_S = 0.15
RTX_3090 = FakeGpu("NVIDIA GeForce RTX 3090", cc="8.6", memory_mib=24576, pci="10de:2204")
SCRIPT = f"""# /// script
# requires-python = "=={PYTHON}.*"
# dependencies = ["torch=={VERSION}"]
# ///
import pathlib, sys
pathlib.Path("prefix").write_text(sys.prefix)
"""


def rows() -> Iterator[Row]:
    """Take turns, where the environment is there and proven."""
    if real_torch() is not None:
        yield from _rows_of_folders()
    if shutil.which("cc"):
        yield from _rows_of_any()


def _rows_of_folders() -> Iterator[Row]:
    """Measure ``run`` with the torch of pip's find-links, which is for the CPU."""
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


def _rows_of_any() -> Iterator[Row]:
    """Measure ``run --any`` on a played machine, with an environment of the small torch.

    No image is started: a container's new /dev and loader's cache are laid over this system's, for both sides.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = folder / "index"
        catalog_index(index, ["2.10.0"], platforms=[LINUX], pythons=[PYTHON])
        project = folder / "project"
        project.mkdir()
        with StandInIndex(index) as served:
            environment = {
                **played(FakeDriver((RTX_3090,)), build(folder / "libraries"), folder),
                **served.environment(),
                "XDG_CACHE_HOME": str(folder / "cache"),
                "XDG_STATE_HOME": str(folder / "state"),
            }
            ours = [sys.executable, "-m", "gpuinstall"]
            lock = [*ours, "lock", "torch==2.10.0", "--python", PYTHON, "--target", "cu130"]
            sync = [*ours, "sync", "--target", "cu130", "--venv", ".venv-cu130"]
            for command in (lock, sync):
                run(command, env=environment, cwd=project)
        start: Words = [*ours, "run", "--any", "python", "-c", "pass"]
        bare: Words = [project / ".venv-cu130" / "bin" / "python", "-c", "pass"]
        _prove(start, environment, project)
        yield _row(ANY, start, bare, environment, project, most=MOST_ANY_S)
        if can_contain():
            start, bare = (contained(folder / "container", words) for words in (start, bare))
            _prove(start, environment, project)
            yield _row(IMAGE, start, bare, environment, project, most=MOST_ANY_S)


def _prove(start: Words, environment: Mapping[str, str], folder: Path) -> None:
    """Start twice: the first proves, and the second keeps that nothing has changed since."""
    for _ in range(2):
        run(start, env=environment, cwd=folder)
        time.sleep(1.1)


def _row(
    what: str,
    ours: Words,
    beside: Words,
    environment: Mapping[str, str],
    folder: Path,
    *,
    most: float = MOST_S,
) -> Row:
    timed = partial(seconds, env=environment, cwd=folder)
    pair = paired(partial(timed, ours), partial(timed, beside), 15)
    return pair.more(what, most)
